// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"

	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/controller/findings"
	"coelan.io/coelan/internal/intent"
)

// quotaWarning is the share of a quota, in percent, from which on it is said that it is used.
const quotaWarning = 90

// reasonQuotaNear is the reason of that.
const reasonQuotaNear = "QuotaNearlyExceeded"

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
// them. A project that is to have none of a resource, and has none, has no finding.
func nearlyExceeded(list []cloud.Quota) (found []findings.Finding) {
	for _, q := range list {
		if q.Limit < 0 || q.Used == 0 || q.Used*100 < q.Limit*quotaWarning {
			continue
		}
		b := boundedResources[q.Resource]
		found = append(found, findings.Finding{
			Object: compile.NetworkObject(intent.DefaultNetworkName), Reason: reasonQuotaNear,
			Message: fmt.Sprintf("project %s of OpenStack has %d of the %d %s that its quota lets it have: "+
				"what comes beyond is refused; delete what is not needed, or have an administrator raise it (openstack quota set --%s NUMBER %[1]s)",
				q.Project, q.Used, q.Limit, b.name, b.option),
		})
	}
	return found
}

// quotasRead takes how much projects have used of their quotas.
func (r *Runner) quotasRead(list []cloud.Quota) {
	r.publish(func() { r.quotas = list })
}
