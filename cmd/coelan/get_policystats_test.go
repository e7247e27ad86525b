// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/intent"
)

func ruleStat(namespace, name string, rule int, packets uint64) agentapi.PolicyStat {
	kind := intent.NetworkPolicy
	if namespace == "" {
		kind = intent.ClusterNetworkPolicy
	}
	return agentapi.PolicyStat{
		Policies: []intent.PolicyRef{{Kind: kind, Namespace: namespace, Name: name}}, Rule: rule, Direction: "ingress", Decision: "allowed",
		Packets: packets, Bytes: 100 * packets,
	}
}

func closedStat(packets uint64) agentapi.PolicyStat {
	return agentapi.PolicyStat{Direction: "ingress", Decision: "denied", Packets: packets, Bytes: 100 * packets}
}

func TestMeantStatistics(t *testing.T) {
	stats := []agentapi.PolicyStat{ruleStat("shop", "web", 1, 1), ruleStat("shop", "db", 1, 1), ruleStat("other", "web", 1, 1), ruleStat("", "guard", 1, 1), closedStat(1)}
	for _, tc := range []struct {
		namespace string
		args      []string
		want      string
	}{
		{"", nil, "shop/web shop/db other/web /guard closed "},
		{"shop", nil, "shop/web shop/db "},
		{"", []string{"web"}, "shop/web other/web "},
		{"shop", []string{"web"}, "shop/web "},
		{"", []string{"other/web"}, "other/web "},
		{"", []string{"guard"}, "/guard "},
		{"nobody", nil, ""},
	} {
		got := ""
		for _, s := range stats {
			switch {
			case !isMeantStat(s, tc.namespace, tc.args):
			case len(s.Policies) == 0:
				got += "closed "
			default:
				got += s.Policies[0].Namespace + "/" + s.Policies[0].Name + " "
			}
		}
		if got != tc.want {
			t.Errorf("%q in %q: %q, want %q", tc.args, tc.namespace, got, tc.want)
		}
	}
}

// Nodes are added up. Where nothing was for a closed port, there is nothing to say of them.
func TestRowsOfStatistics(t *testing.T) {
	all := []nodeStat{
		{"n1", ruleStat("shop", "web", 0, 1)}, {"n1", closedStat(0)}, {"n2", ruleStat("shop", "web", 0, 2)}, {"n2", ruleStat("shop", "web", 2, 0)},
		{"n2", closedStat(0)}, {"n3", closedStat(0)},
	}
	want := []string{"NetworkPolicy shop/web ingress - allowed 3 300", "NetworkPolicy shop/web ingress 2 allowed 0 0"}
	if diff := cmp.Diff(want, lines(statRows(all, false))); diff != "" {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
	all[5].PolicyStat = closedStat(7)
	want = []string{
		"n1 NetworkPolicy shop/web ingress - allowed 1 100", "n2 NetworkPolicy shop/web ingress - allowed 2 200",
		"n2 NetworkPolicy shop/web ingress 2 allowed 0 0", "n3 (ports are closed) ingress - denied 7 700",
	}
	if diff := cmp.Diff(want, lines(statRows(all, true))); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}
