// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/controller/findings"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/intent"
)

// quotaWarning is the share of a quota, in percent, from which on it is said that it is used.
const quotaWarning = 90

// bounded is a resource that quotas bound.
type bounded struct {
	name   string // what people call several of them
	option string // of the command openstack quota set
}

var boundedResources = map[string]bounded{
	"network":             {"networks", "networks"},
	"subnet":              {"subnets", "subnets"},
	"port":                {"ports", "ports"},
	"router":              {"routers", "routers"},
	"floatingip":          {"floating IPs", "floating-ips"},
	"security_group":      {"security groups", "secgroups"},
	"security_group_rule": {"rules of security groups", "secgroup-rules"},
}

// nearlyExceeded are findings of quotas that have little room left, before something is refused for
// them, and warnings, which stay the same while that is so. A project that is to have none of a
// resource, and has none, has neither.
func nearlyExceeded(list []cloud.Quota) (found, warnings []findings.Finding) {
	for _, q := range list {
		if q.Limit < 0 || q.Used == 0 || q.Used*100 < q.Limit*quotaWarning {
			continue
		}
		b := boundedResources[q.Resource]
		says := func(used string) findings.Finding {
			return findings.Finding{
				Object: compile.NetworkObject(intent.DefaultNetworkName), Reason: v1alpha1.ReasonQuotaNearlyExceeded,
				Message: fmt.Sprintf("project %s of OpenStack has %s %s that its quota lets it have: "+
					"what comes beyond is refused; delete what is not needed, or have an administrator raise it (openstack quota set --%s NUMBER %[1]s)",
					q.Project, used, b.name, b.option),
			}
		}
		found = append(found, says(fmt.Sprintf("%d of the %d", q.Used, q.Limit)))
		warnings = append(warnings, says(fmt.Sprintf("%d %% or more of the", quotaWarning)))
	}
	return found, warnings
}

// quotasRead takes how much projects have used of their quotas.
func (r *Runner) quotasRead(list []cloud.Quota) {
	found, warnings := nearlyExceeded(list)
	r.publish(func() { r.quotas = list })
	r.findings.Warn(warnings)
	r.identities.press(found)
}

// maxQuotas is how many quotas the condition names: a message has its bound in the API.
const maxQuotas = 20

// press has the Network default say which quotas are nearly exceeded.
func (i *identities) press(found []findings.Finding) {
	var messages []string
	for _, f := range found[:min(len(found), maxQuotas)] {
		messages = append(messages, f.Message)
	}
	if more := len(found) - maxQuotas; more > 0 {
		messages = append(messages, fmt.Sprintf("%d more", more))
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pressure, i.quotasKnown = strings.Join(messages, "; "), true
	i.queue.Add(target{kind: intent.KindNetwork, name: intent.DefaultNetworkName})
}

// writePressure writes the condition QuotaPressure. What an earlier controller has written stays
// until quotas are known.
func (i *identities) writePressure(ctx context.Context, t target) error {
	i.mu.Lock()
	message, known := i.pressure, i.quotasKnown
	i.mu.Unlock()
	before := &v1alpha1.Network{}
	if !known {
		return nil
	}
	if err := i.Access.Get(ctx, t.key(), before); err != nil {
		return client.IgnoreNotFound(err)
	}
	now := before.DeepCopy()
	if message == "" {
		reconcile.RemoveConditions(&now.Status.Conditions, v1alpha1.ConditionQuotaPressure)
	} else {
		reconcile.SetCondition(&now.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionQuotaPressure, Status: metav1.ConditionTrue,
			Reason: v1alpha1.ReasonQuotaNearlyExceeded, Message: message, ObservedGeneration: now.Generation,
		})
	}
	if equality.Semantic.DeepEqual(before.Status.Conditions, now.Status.Conditions) {
		return nil
	}
	return i.Access.WriteStatus(ctx, before, now)
}
