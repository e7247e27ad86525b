// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/controller/reconcile/reconciletest"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
)

// A quota is said to be nearly exceeded from nine tenths on, by its project and its resource, with
// what to do.
func TestNearlyExceeded(t *testing.T) {
	for _, tc := range []struct {
		name  string
		quota cloud.Quota
		want  string // what is said; empty: nothing
	}{
		{"none", cloud.Quota{Resource: "port", Used: 1000, Limit: -1}, ""},
		{"room", cloud.Quota{Resource: "port", Used: 89, Limit: 100}, ""},
		{"nine tenths", cloud.Quota{Project: "p1", Resource: "port", Used: 90, Limit: 100},
			"project p1 of OpenStack has 90 of the 100 ports that its quota lets it have: what comes beyond is refused; " +
				"delete what is not needed, or have an administrator raise it (openstack quota set --ports NUMBER p1)"},
		{"all", cloud.Quota{Resource: "security_group", Used: 10, Limit: 10}, "10 of the 10 security groups"},
		{"more than all", cloud.Quota{Resource: "router", Used: 3, Limit: 2}, "3 of the 2 routers"},
		{"by its option", cloud.Quota{Resource: "security_group_rule", Used: 95, Limit: 100}, "--secgroup-rules NUMBER"},
		{"nothing of what it may not have", cloud.Quota{Resource: "floatingip"}, ""},
		{"something of what it may have no more", cloud.Quota{Resource: "floatingip", Used: 1}, "1 of the 0 floating IPs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found, warnings := nearlyExceeded([]cloud.Quota{tc.quota})
			if tc.want == "" {
				if len(found) > 0 || len(warnings) > 0 {
					t.Errorf("%+v, %+v", found, warnings)
				}
				return
			}
			if len(found) != 1 || found[0].Object != "Network default" || found[0].Reason != "QuotaNearlyExceeded" ||
				!strings.Contains(found[0].Message, tc.want) {
				t.Errorf("%+v, want %q", found, tc.want)
			}
		})
	}
}

// notes keeps what is not in effect.
type notes map[intent.PolicyRef]string

// SetUnsupported implements findings.Hub.
func (n notes) SetUnsupported(objects map[intent.PolicyRef]string) {
	clear(n)
	for ref, text := range objects {
		n[ref] = text
	}
}

// newQuotaRunner returns a Runner of a cluster with the Network default.
func newQuotaRunner(t *testing.T) (*Runner, notes, *record.FakeRecorder) {
	t.Helper()
	said, events := notes{}, record.NewFakeRecorder(10)
	access := reconciletest.Access(&v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: intent.DefaultNetworkName},
		Status: v1alpha1.NetworkStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionProgrammed, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonProgrammed},
		}},
	})
	access.Events = events
	r, err := New(Options{
		Log: slog.New(slog.DiscardHandler), Monitor: heartbeat.New(heartbeat.Bound), Hub: said, Access: access,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.have, r.set, r.compiled = resource.NewInventory(), resource.NewSet(), intent.NewStore().State()
	return r, said, events
}

// conditionsOf are those of the Network default once they are written, by their types.
func conditionsOf(t *testing.T, r *Runner) map[string]metav1.Condition {
	t.Helper()
	network := target{kind: intent.KindNetwork, name: intent.DefaultNetworkName}
	if err := r.identities.write(t.Context(), network); err != nil {
		t.Fatal(err)
	}
	now := &v1alpha1.Network{}
	if err := r.Access.Get(t.Context(), network.key(), now); err != nil {
		t.Fatal(err)
	}
	all := map[string]metav1.Condition{}
	for _, c := range now.Status.Conditions {
		all[c.Type] = c
	}
	return all
}

// The Network default says which quotas are nearly exceeded, with the numbers, as long as that is
// so. It is Programmed all the same.
func TestQuotaPressure(t *testing.T) {
	r, said, _ := newQuotaRunner(t)
	if c := conditionsOf(t, r); len(c) != 1 {
		t.Errorf("before quotas are known: %+v", c)
	}
	near := []cloud.Quota{{Project: "p1", Resource: "port", Used: 95, Limit: 100}, {Project: "p1", Resource: "subnet", Used: 2, Limit: 2}}
	for used := range 3 {
		near[0].Used = 95 + used
		r.quotasRead(near)
		c := conditionsOf(t, r)
		pressure := c[v1alpha1.ConditionQuotaPressure]
		if pressure.Status != metav1.ConditionTrue || pressure.Reason != "QuotaNearlyExceeded" ||
			!strings.Contains(pressure.Message, fmt.Sprint(95+used, " of the 100 ports")) || !strings.Contains(pressure.Message, "2 of the 2 subnets") {
			t.Errorf("%+v", pressure)
		}
		if c[v1alpha1.ConditionProgrammed].Status != metav1.ConditionTrue {
			t.Errorf("%+v", c)
		}
	}
	r.report(nil, nil)
	if len(said) > 0 {
		t.Errorf("said not to be in effect: %v", said)
	}
	for n := range 200 {
		near = append(near, cloud.Quota{Project: fmt.Sprint("many", n), Resource: "port", Used: 1, Limit: 1})
	}
	r.quotasRead(near)
	const bound = 32768
	if m := conditionsOf(t, r)[v1alpha1.ConditionQuotaPressure].Message; len(m) > bound || !strings.HasSuffix(m, "; 182 more") {
		t.Errorf("%d bytes: %s", len(m), m)
	}
	near = near[:2]
	near[0].Limit, near[1].Limit = 1000, 1000
	r.quotasRead(near)
	if c := conditionsOf(t, r); len(c) != 1 {
		t.Errorf("with room again: %+v", c)
	}
}

// A quota that comes to be nearly exceeded is one Event, however its number changes.
func TestEventsOfQuotas(t *testing.T) {
	r, _, events := newQuotaRunner(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.findings.Run(ctx) })
	defer running.Wait()
	defer cancel()
	// Of other resources are the Events that show what was looked at meanwhile.
	reads := func(used int, others ...string) {
		list := []cloud.Quota{{Project: "p1", Resource: "port", Used: used, Limit: 100}}
		for _, other := range others {
			list = append(list, cloud.Quota{Project: "p1", Resource: other, Used: 1, Limit: 1})
		}
		r.quotasRead(list)
	}
	next := func(of string) {
		t.Helper()
		want := "Warning QuotaNearlyExceeded project p1 of OpenStack has 90 % or more of the " + of + " that"
		if e := <-events.Events; !strings.HasPrefix(e, want) {
			t.Errorf("Event %q, want %q", e, want)
		}
	}
	reads(50, "network")
	next("networks")
	reads(91)
	next("ports")
	for used := 92; used < 100; used++ {
		reads(used)
	}
	reads(100, "subnet")
	next("subnets")
	reads(50, "router")
	next("routers")
	reads(95)
	next("ports")
}

// Metrics have the last reading of quotas with limits, and for how long Neutron has been away.
func TestMetrics(t *testing.T) {
	r, _, _ := newQuotaRunner(t)
	synctest.Test(t, func(t *testing.T) {
		measured := func(want string) {
			t.Helper()
			if err := testutil.CollectAndCompare(r.metrics, strings.NewReader(want), "coelan_neutron_quota_limit",
				"coelan_neutron_quota_used", "coelan_neutron_away_seconds"); err != nil {
				t.Error(err)
			}
		}
		const away = `# HELP coelan_neutron_away_seconds For how long Neutron could not be used; 0: it can.
# TYPE coelan_neutron_away_seconds gauge
coelan_neutron_away_seconds `
		measured(away + "0\n")
		r.quotasRead([]cloud.Quota{
			{Project: "p1", Resource: "network", Used: 7, Limit: -1}, {Project: "p1", Resource: "port", Used: 95, Limit: 100},
		})
		r.report(nil, errors.New("away"))
		time.Sleep(7 * time.Second)
		r.report(nil, errors.New("still away"))
		measured(away + `7
# HELP coelan_neutron_quota_limit What a project may have of a resource; without a series if there is no limit.
# TYPE coelan_neutron_quota_limit gauge
coelan_neutron_quota_limit{project="p1",resource="port"} 100
# HELP coelan_neutron_quota_used What a project has of a resource that it may not have any number of.
# TYPE coelan_neutron_quota_used gauge
coelan_neutron_quota_used{project="p1",resource="port"} 95
`)
		r.report(nil, nil)
		r.quotasRead(nil)
		measured(away + "0\n")
	})
}

// What objects ask for and Neutron does not do is counted, and so are calls.
func TestMetricsOfProblems(t *testing.T) {
	r, _, _ := newQuotaRunner(t)
	r.report([]resource.Problem{{Object: "Port shop/web", Reason: "QuotaExceeded"}, {Object: "Network red"}}, nil)
	want := `# HELP coelan_neutron_calls_total Calls of Neutron's API, and of keystone's about projects.
# TYPE coelan_neutron_calls_total counter
coelan_neutron_calls_total 0
# HELP coelan_neutron_problems What objects ask for and Neutron does not do.
# TYPE coelan_neutron_problems gauge
coelan_neutron_problems 2
`
	if err := testutil.CollectAndCompare(r.metrics, strings.NewReader(want), "coelan_neutron_calls_total",
		"coelan_neutron_problems"); err != nil {
		t.Error(err)
	}
}
