// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

var hopMACs = map[string]intent.MAC{
	"192.0.2.10": {2, 0, 0, 0, 9, 10}, "192.0.2.11": {2, 0, 0, 0, 9, 11}, "2001:db8:7::10": {2, 0, 0, 0, 9, 16},
}

// policyRouted is egressCluster with these next hops of the Egress batch, of which those with a MAC
// are known and those in down do not work.
func policyRouted(t *testing.T, change func(*intent.Objects), hops []string, down ...string) *Compiler {
	t.Helper()
	o, states := egressCluster()
	known, failed := map[NeighbourKey]intent.MAC{}, map[NextHopKey]bool{}
	for _, text := range hops {
		hop := netip.MustParseAddr(text)
		o.EgressPaths[0].NextHops = append(o.EgressPaths[0].NextHops, hop)
		if mac, ok := hopMACs[text]; ok {
			known[NeighbourKey{"office", hop}] = mac
		}
		for _, e := range o.EgressAddresses {
			failed[NextHopKey{"office", e.Address, hop}] = slices.Contains(down, text)
		}
	}
	o.EgressPaths[0].Check = intent.NextHopCheck{Protocol: intent.CheckICMP}
	change(&o)
	in := inputOf(stateOf(t, o))
	in.Numbers = in.Numbers.WithEgress(states).WithNeighbours(known).WithNextHopsDown(failed)
	c := New()
	c.Compile(in)
	return c
}

// hopsOf counts the slots of each next hop of an address: by its MAC, "asked for", or why there is
// none.
func hopsOf(c *Compiler, address string) map[string]int {
	found := map[string]int{}
	for _, f := range flowsOf(c.desired, c)["egress-address/office "+address] {
		m, _ := c.Explain(f.Cookie)
		switch {
		case f.Table == policyRoute.ID && m.Drops() && f.Priority == 50:
			found[m.Reason]++
		case f.Table != policyHop.ID:
		default:
			to := "asked for"
			for _, a := range f.Actions {
				for text, mac := range hopMACs {
					if a.String() == openflow.SetField(openflow.EthDst(openflow.MAC(mac))).String() {
						to = text
					}
				}
			}
			found[to]++
		}
	}
	return found
}

func TestPolicyRoutes(t *testing.T) {
	const four, six = "192.0.2.30", "2001:db8:7::30"
	same := func(*intent.Objects) {}
	for _, tc := range []struct {
		name      string
		change    func(*intent.Objects)
		hops      []string
		down      []string
		four, six map[string]int
	}{
		{"one of each family", same, []string{"192.0.2.10", "2001:db8:7::10"}, nil,
			map[string]int{"192.0.2.10": 1}, map[string]int{"2001:db8:7::10": 1}},
		{"two", same, []string{"192.0.2.10", "192.0.2.11"}, nil,
			map[string]int{"192.0.2.10": 32, "192.0.2.11": 32},
			map[string]int{"Egress batch has no next hop of this family": 1}},
		{"one of two is down", same, []string{"192.0.2.10", "192.0.2.11"}, []string{"192.0.2.11"},
			map[string]int{"192.0.2.10": 1}, map[string]int{"Egress batch has no next hop of this family": 1}},
		{"all are down", same, []string{"192.0.2.10", "2001:db8:7::10"}, []string{"192.0.2.10", "2001:db8:7::10"},
			map[string]int{"no next hop of Egress batch answers: 192.0.2.10": 1},
			map[string]int{"no next hop of Egress batch answers: 2001:db8:7::10": 1}},
		{"an unknown MAC", same, []string{"192.0.2.10", "192.0.2.12"}, nil,
			map[string]int{"192.0.2.10": 32, "asked for": 32},
			map[string]int{"Egress batch has no next hop of this family": 1}},
		{"another node is active", func(o *intent.Objects) {
			for i := range o.EgressAddresses {
				o.EgressAddresses[i].Nodes = []string{"o2"}
			}
		}, []string{"192.0.2.10"}, nil, map[string]int{}, map[string]int{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := policyRouted(t, tc.change, tc.hops, tc.down...)
			if diff := gocmp.Diff(tc.four, hopsOf(c, four)); diff != "" {
				t.Errorf("IPv4 (-want +got):\n%s", diff)
			}
			if diff := gocmp.Diff(tc.six, hopsOf(c, six)); diff != "" {
				t.Errorf("IPv6 (-want +got):\n%s", diff)
			}
			for owner, flows := range flowsOf(c.desired, c) {
				for _, f := range flows {
					if natText.MatchString(f.String()) {
						t.Errorf("%s translates: %s", owner, f.String())
					}
				}
			}
		})
	}
}

// A next hop that fails, comes back or gets another MAC changes the flows of its address alone.
func TestPolicyRoutesFollow(t *testing.T) {
	o, states := egressCluster()
	hop := netip.MustParseAddr("192.0.2.10")
	other := netip.MustParseAddr("192.0.2.11")
	o.EgressPaths[0].NextHops = []netip.Addr{hop, other}
	in := inputOf(stateOf(t, o))
	in.Numbers = in.Numbers.WithEgress(states)
	c := New()
	c.Compile(in)
	step := func(numbers *Numbers, want map[string]int) {
		t.Helper()
		in.Numbers = numbers
		c.Compile(in)
		if diff := gocmp.Diff(want, hopsOf(c, "192.0.2.30")); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		fresh := New()
		fresh.Compile(in)
		if got, all := fmt.Sprint(flowsOf(c.desired, c)), fmt.Sprint(flowsOf(fresh.desired, fresh)); got != all {
			t.Error("the flows differ from those that are made from nothing")
		}
	}
	step(in.Numbers, map[string]int{"asked for": 64})
	known := in.Numbers.WithNeighbours(map[NeighbourKey]intent.MAC{
		{"office", hop}: hopMACs["192.0.2.10"], {"office", other}: hopMACs["192.0.2.11"],
	})
	step(known, map[string]int{"192.0.2.10": 32, "192.0.2.11": 32})
	step(known.WithNextHopsDown(map[NextHopKey]bool{{"office", o.EgressAddresses[0].Address, hop}: true}),
		map[string]int{"192.0.2.11": 1})
	step(known, map[string]int{"192.0.2.10": 32, "192.0.2.11": 32})
}

// NextHopTargets are those of addresses that this node is active for.
func TestNextHopTargets(t *testing.T) {
	o, states := egressCluster()
	o.EgressPaths[0].NextHops = []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8:7::10")}
	in := inputOf(stateOf(t, o))
	count := func(active string) int {
		for key := range states {
			states[key] = EgressState{Active: active}
		}
		in.Numbers = in.Numbers.WithEgress(states)
		return len(NextHopTargets(in))
	}
	if got := count("o1"); got != 2 {
		t.Errorf("%d targets of an active node, want one of each family", got)
	}
	if got := count("o2"); got != 0 {
		t.Errorf("%d targets of another node", got)
	}
}
