// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
)

var lastNumber = regexp.MustCompile(`(\d+)(/|$)`)

// ofPort is the OpenFlow port of a Port in tests: it follows from the last number
// of the container's ID.
func ofPort(id string) uint32 {
	m := lastNumber.FindStringSubmatch(id)
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseUint(m[1], 10, 16)
	return datapath.FirstPodPort + uint32(n)
}

// physicalNetwork is the name, in tests, of the physical network that an uplink leads to.
func physicalNetwork(uplink uint32) string { return fmt.Sprint("physical-", uplink) }

// uplinkOf is the OpenFlow port that leads to the physical network of n; 0 if n is an overlay.
func uplinkOf(n intent.Network) uint32 {
	m := lastNumber.FindStringSubmatch(n.Physical)
	if m == nil {
		return 0
	}
	uplink, _ := strconv.ParseUint(m[1], 10, 16)
	return uint32(uplink)
}

// inputOf has the State's own Ports, and the uplinks of its Networks, numbered. The nodes are
// active that last reported that they are.
func inputOf(s *intent.State) Input {
	ports, uplinks := map[string]uint32{}, map[string]uint32{}
	for p := range s.Ports().All() {
		if p.Node == s.Local().Node {
			ports[p.ID] = ofPort(p.ID)
		}
	}
	for n := range s.Networks().All() {
		if n.Physical != "" {
			uplinks[n.Physical] = uplinkOf(n)
		}
	}
	states := map[ExternalKey]EgressState{}
	for e := range s.EgressAddresses().All() {
		states[ExternalKey{e.Network, e.Address}] = EgressState{Active: e.Active}
	}
	return Input{State: s, Numbers: NewNumbers(ports, uplinks).WithEgress(states)}
}

// Numbers that come, change and go one by one give the same flows as compiling anew, in clusters
// where services, routes and policies depend on other Ports' numbers.
func TestIncrementalNumbersEqualFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := inputOf(drawView(t))
		var own []string
		for p := range in.State.Ports().All() {
			if in.Numbers.Port(p.ID) != 0 {
				own = append(own, p.ID)
			}
		}
		states := maps.Clone(in.Numbers.egress)
		incremental := New()
		incremental.Compile(in)
		for i := range rapid.IntRange(1, 6).Draw(t, "changes") {
			switch kind := rapid.IntRange(0, 5).Draw(t, "change"); {
			case kind == 0:
				in.Numbers = NewNumbers(in.Numbers.ports, map[string]uint32{physicalNetwork(vlanUplink): vlanUplink + uint32(i%2)}).WithEgress(states)
			case kind > 3 && len(states) > 0:
				keys := slices.SortedFunc(maps.Keys(states), func(a, b ExternalKey) int { return cmp.Compare(a.text(), b.text()) })
				states[rapid.SampledFrom(keys).Draw(t, "egress address")] = EgressState{
					Active: rapid.SampledFrom([]string{"n0", "n0", "n1", "n2", "gone", ""}).Draw(t, "active"), Silent: rapid.Bool().Draw(t, "silent"),
				}
				in.Numbers = in.Numbers.WithEgress(states)
			case len(own) == 0:
			case kind == 1:
				in.Numbers = in.Numbers.WithoutPort(rapid.SampledFrom(own).Draw(t, "port"))
			default:
				in.Numbers = in.Numbers.WithPort(rapid.SampledFrom(own).Draw(t, "port"), uint32(1000+i))
			}
			full := New()
			want, got := full.Compile(in), incremental.Compile(in)
			if !sameRules(rulesOf(want, full), rulesOf(got, incremental)) {
				t.Fatalf("with %+v (-full +incremental):\n%s", in.Numbers, gocmp.Diff(texts(full, want), texts(incremental, got)))
			}
			if diff := gocmp.Diff(full.Problems(), incremental.Problems()); diff != "" {
				t.Fatalf("problems with %+v (-full +incremental):\n%s", in.Numbers, diff)
			}
		}
	})
}

func TestNumbersDoNotChange(t *testing.T) {
	var none *Numbers
	a := none.WithPort("a", 16)
	b := a.WithPort("b", 17)
	c := b.WithoutPort("a")
	for _, tc := range []struct {
		numbers *Numbers
		a, b    uint32
	}{{none, 0, 0}, {a, 16, 0}, {b, 16, 17}, {c, 0, 17}} {
		if tc.numbers.Port("a") != tc.a || tc.numbers.Port("b") != tc.b {
			t.Errorf("%+v: want %d and %d", tc.numbers, tc.a, tc.b)
		}
	}
	if b.WithPort("b", 17) != b || c.WithoutPort("a") != c {
		t.Error("a change that changes nothing makes other Numbers")
	}
	if id, ok := b.PortAt(17); id != "b" || !ok {
		t.Errorf("PortAt(17) = %q, %v", id, ok)
	}
	if id, ok := c.PortAt(16); ok {
		t.Errorf("PortAt(16) = %q, which has gone", id)
	}
}

// A Port or a physical network without a known number has no flows, and a problem says why.
func TestWithoutNumbers(t *testing.T) {
	o := intent.Objects{
		Local:    localForm(0),
		Networks: []intent.Network{{Name: "wire", ID: 12, Physical: "office"}},
		Ports: []intent.Port{
			portForm(1, 1, "default"), {ID: "o2/eth0", Namespace: "default", Pod: "vm", Network: "wire", Node: "o1"},
		},
	}
	c := New()
	in := inputOf(stateOf(t, o))
	in.Numbers = in.Numbers.WithoutPort("o1/eth0")
	flows := flowsOf(c.Compile(in), c)
	if n := len(flows["port/default/web-1/eth0#o1/eth0"]); n != 0 {
		t.Errorf("%d flows for a Port without a number", n)
	}
	if n := len(flows["port/default/vm#o2/eth0"]); n == 0 {
		t.Error("no flows for a Port with a number")
	}
	want := []Problem{
		{"network/wire", `no OpenFlow port leads to physical network "office"`},
		{"port/default/web-1/eth0", "no OpenFlow port is known for it"},
	}
	if diff := gocmp.Diff(want, c.Problems()); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// Another rate of questions changes the meters of all Ports, without intent being another one.
func TestNeighbourRateChanges(t *testing.T) {
	in := inputOf(stateOf(t, intent.Objects{
		Local: intent.Local{Node: "worker1", MTU: 1450},
		Ports: []intent.Port{{ID: "c1/eth0", Namespace: "default", Pod: "web", Interface: "eth0", Network: "default", Node: "worker1", MAC: intent.MAC{2, 0, 0, 0, 0, 1}}},
	}))
	c := New()
	for _, rate := range []uint32{500, 0, 100} {
		in.NeighbourRate = rate
		var rates []uint32
		for _, m := range c.Compile(in).Get("port/default/web/eth0#c1/eth0").Meters {
			for _, band := range m.Bands {
				rates = append(rates, band.Rate)
			}
		}
		want := []uint32{rate}
		if rate == 0 {
			want = nil
		}
		if diff := gocmp.Diff(want, rates); diff != "" {
			t.Errorf("rate %d (-want +got):\n%s", rate, diff)
		}
	}
}
