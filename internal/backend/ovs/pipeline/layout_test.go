// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// layouts has, for each number that ConntrackLayout has had, what each bit of ct_mark and each zone
// means.
var layouts = map[int]map[string]uint32{
	1: {
		"the gateway port sent the first packet":        1 << 0,
		"it is a Service's":                             1 << 1,
		"the Service is public":                         3 << 1,
		"its replies are dropped":                       1 << 3,
		"a process of the node began it":                1 << 4,
		"policies were enforced":                        1 << 5,
		"port of the first packet":                      0xffff << 16,
		"zone of shared Routers and Services":           1,
		"zone of physical networks":                     0xfffe,
		"zone of what leaves by the port it came in by": 0xffff,
	},
}

// Another release judges connections that this one has committed, and the other way round.
func TestConntrackLayout(t *testing.T) {
	bits := func(f openflow.FieldValue) uint32 {
		_, mask := f.Num()
		return uint32(mask)
	}
	inPort, _ := ctBegunBy(0xffff).Num()
	now := map[string]uint32{
		"the gateway port sent the first packet":        bits(ctFromGateway),
		"it is a Service's":                             bits(ctService),
		"the Service is public":                         bits(ctPublic),
		"its replies are dropped":                       bits(ctDenied),
		"a process of the node began it":                bits(ctHost),
		"policies were enforced":                        MarkJudged,
		"port of the first packet":                      uint32(inPort) &^ MarkJudged,
		"zone of shared Routers and Services":           uint32(zone(intent.Router{Name: "shared", ID: 7, Shared: true})),
		"zone of physical networks":                     uint32(datapath.PhysicalZone),
		"zone of what leaves by the port it came in by": uint32(sourceZone),
	}
	if last := slices.Max(slices.Collect(maps.Keys(layouts))); last != ConntrackLayout {
		t.Fatalf("ConntrackLayout is %d, and the newest one that this test knows is %d: add what it means to layouts", ConntrackLayout, last)
	}
	if diff := cmp.Diff(layouts[ConntrackLayout], now); diff != "" {
		t.Errorf("what conntrack's entries mean (-layout %d +now):\n%s"+
			"Connections that another release has committed are in conntrack when an agent is upgraded or goes back.\n"+
			"If they would be judged wrongly, raise ConntrackLayout and add the new layout to this test: agents then forget all\n"+
			"connections once, which ends those that are translated, and has the others judged anew.\n"+
			"If a bit is new, was always 0 before, and 0 leads to what was done before, add it to layout %d.", ConntrackLayout, diff, ConntrackLayout)
	}
}

// numbers are those of the first release's features in cookies.
var numbers = map[string]uint8{
	"policy-rule":    23,
	"classify":       1,
	"tunnel":         2,
	"spoofguard":     3,
	"neighbour":      4,
	"l2":             5,
	"l3":             6,
	"ttl":            7,
	"service-return": 8,
	"output":         9,
	"static-route":   10,
	"private":        11,
	"node-address":   12,
	"physical":       13,
	"host-access":    14,
	"service":        15,
	"affinity":       16,
	"service-commit": 17,
	"hairpin":        18,
	"policy":         19,
	"policy-subject": 21,
	"policy-peer":    22,
	"policy-audit":   24,
}

// A flow with a changed cookie is another flow to the switch: an upgrade writes it anew, and what
// it has counted is lost.
func TestCookieLayout(t *testing.T) {
	if c := cookie(23, "port/shop/web", "denied"); c != 0xc0e017800a5fe9d3 {
		t.Errorf("the cookie of a flow is %#x now: all flows of all nodes change in an upgrade.\n"+
			"If that is meant, write it here.", c)
	}
	used := map[uint8]string{}
	for _, f := range features {
		if n, known := numbers[f.name]; known && n != f.number {
			t.Errorf("feature %s has the number %d in cookies, and had %d: give it back, or all its flows change in an upgrade", f.name, f.number, n)
		}
		if other, taken := used[f.number]; taken {
			t.Errorf("features %s and %s have the same number in cookies", f.name, other)
		}
		used[f.number] = f.name
	}
}

func TestZones(t *testing.T) {
	s := stateOf(t, intent.Objects{Routers: []intent.Router{{Name: "red", ID: 70}, {Name: "blue", ID: 9}, {Name: "shared", ID: 8, Shared: true}}})
	if diff := cmp.Diff([]uint16{1, 9, 70, 0xfffe, 0xffff}, Zones(s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
