// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/controller/reconcile"
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
			found := nearlyExceeded([]cloud.Quota{tc.quota})
			if tc.want == "" {
				if len(found) > 0 {
					t.Errorf("%+v", found)
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

func newQuotaRunner(t *testing.T) (*Runner, notes) {
	t.Helper()
	said := notes{}
	r, err := New(Options{Log: slog.New(slog.DiscardHandler), Monitor: heartbeat.New(heartbeat.Bound), Hub: said})
	if err != nil {
		t.Fatal(err)
	}
	return r, said
}

// The Network default says so as long as it is so, whatever else is said of it.
func TestQuotaIsSaid(t *testing.T) {
	r, said := newQuotaRunner(t)
	network := reconcile.ObjectRef(intent.KindNetwork, intent.DefaultNetworkName)
	near := []cloud.Quota{{Project: "p1", Resource: "port", Used: 95, Limit: 100}}
	r.quotasRead(near)
	if !strings.Contains(said[network], "95 of the 100 ports") {
		t.Errorf("said: %v", said)
	}
	r.report(nil, errors.New("away"))
	if !strings.Contains(said[network], "95 of the 100 ports") || !strings.Contains(said[network], "away") {
		t.Errorf("while Neutron is away: %v", said)
	}
	r.report(nil, nil)
	near[0].Limit = 1000
	r.quotasRead(near)
	if len(said) > 0 {
		t.Errorf("with room again: %v", said)
	}
}

// Metrics have the last reading of quotas with limits, and for how long Neutron has been away.
func TestMetrics(t *testing.T) {
	r, _ := newQuotaRunner(t)
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
	r, _ := newQuotaRunner(t)
	r.set, r.compiled = resource.NewSet(), intent.NewStore().State()
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
