// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/intent"
)

// elementTexts are what the kernel is given, in words.
func elementTexts(es []nftables.SetElement) []string {
	var texts []string
	for _, e := range es {
		text := string(e.Key)
		switch {
		case e.KeyEnd != nil:
			text += "-" + string(e.KeyEnd)
		case e.Val != nil:
			text += ">" + string(e.Val)
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return texts
}

// Only what differs of a set is written, but for runs of addresses.
func TestSetDiff(t *testing.T) {
	type elems = map[string]string
	plain := set{name: "s", key: nftables.TypeInetService, kind: keys}
	mapping, run := plain, plain
	mapping.value, run.kind = nftables.TypeInetService, runs
	for name, tc := range map[string]struct {
		form        set
		have, want  elems
		gone, fresh []string
		lacks       bool
	}{
		"the same":     {plain, elems{"a": "", "b": ""}, elems{"a": "", "b": ""}, nil, nil, false},
		"one less":     {plain, elems{"a": "", "b": ""}, elems{"a": ""}, []string{"b"}, nil, false},
		"one more":     {plain, elems{"a": ""}, elems{"a": "", "b": ""}, nil, []string{"b"}, true},
		"from nothing": {mapping, nil, elems{"a": "x", "b": "y"}, nil, []string{"a>x", "b>y"}, true},
		"another value": {mapping, elems{"a": "x", "b": "y"}, elems{"a": "z", "b": "y"}, []string{"a>x"},
			[]string{"a>z"}, true},
		"another end":     {run, elems{"a": "c"}, elems{"a": "d"}, []string{"a-c"}, []string{"a-d"}, true},
		"a run elsewhere": {run, elems{"a": "c"}, elems{"b": "c"}, []string{"a-c"}, []string{"b-c"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			have, want := tc.form, tc.form
			have.elements, want.elements = tc.have, tc.want
			d := want.diff(have)
			if diff := cmp.Diff(tc.gone, elementTexts(d.gone)); diff != "" {
				t.Errorf("gone (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.fresh, elementTexts(d.fresh)); diff != "" {
				t.Errorf("fresh (-want +got):\n%s", diff)
			}
			if d.flush || d.empty() != (tc.gone == nil && tc.fresh == nil) {
				t.Errorf("diff %+v", d)
			}
			if want.lacks(have) != tc.lacks {
				t.Errorf("lacks an element: %v, want %v", !tc.lacks, tc.lacks)
			}
		})
	}
	before := addressSets("pods", []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")})[0]
	after := addressSets("pods", []netip.Prefix{
		netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("10.244.3.0/24"),
	})[0]
	if d := after.diff(before); !d.flush || len(d.gone) > 0 || !slices.Equal(rangesOf(d.fresh), after.ranges) {
		t.Errorf("runs of addresses: %+v", d)
	}
	if d := after.diff(after); !d.empty() {
		t.Errorf("equal runs of addresses: %+v", d)
	}
}

// What is written of a set is read back as the same set, and what differs leads there.
func TestSetsAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		form := set{key: nftables.TypeInetService, kind: rapid.SampledFrom([]setKind{keys, runs}).Draw(t, "kind")}
		value := rapid.Just("")
		if form.kind == runs || rapid.Bool().Draw(t, "map") {
			value = rapid.StringMatching("[a-c]{2}")
		}
		if form.kind == keys {
			form.value = nftables.SetDatatype{Bytes: 2}
		}
		contents := rapid.MapOf(rapid.StringMatching("[a-f]{2}"), value)
		have, want := form, form
		have.elements, want.elements = contents.Draw(t, "have"), contents.Draw(t, "want")
		if got := form.read(have.all()); !maps.Equal(got.elements, have.elements) {
			t.Fatalf("wrote %v, read %v", have.elements, got.elements)
		}
		d := want.diff(have)
		became := maps.Clone(have.elements)
		for _, e := range d.gone {
			delete(became, string(e.Key))
		}
		maps.Copy(became, form.read(d.fresh).elements)
		if !maps.Equal(became, want.elements) {
			t.Fatalf("%v became %v instead of %v", have.elements, became, want.elements)
		}
	})
}

// A table is written anew where the kernel would take longer to remove runs one by one.
func TestCostlyExchange(t *testing.T) {
	many := func(kind setKind, from, to int) nftable {
		s := set{name: "s", kind: kind, elements: map[string]string{}}
		for i := from; i < to; i++ {
			s.elements[fmt.Sprint(i)] = "end"
		}
		return nftable{sets: []set{{name: "first", kind: keys}, s}}
	}
	for name, tc := range map[string]struct {
		have, want nftable
		costly     bool
	}{
		"all runs go":     {many(runs, 0, 1000), many(runs, 1000, 2000), true},
		"runs only come":  {many(runs, 0, 1000), many(runs, 0, 2000), false},
		"a few runs go":   {many(runs, 0, 1000), many(runs, 9, 1000), false},
		"all keys go":     {many(keys, 0, 1000), many(keys, 1000, 2000), false},
		"there were none": {many(runs, 0, 0), many(runs, 0, 1000), false},
	} {
		if got := tc.want.costly(tc.have.sets); got != tc.costly {
			t.Errorf("%s: costly %v, want %v", name, got, tc.costly)
		}
	}
}

// kernelTable is a table as the kernel lists it, with the first of its chains.
type kernelTable struct {
	chain *nftables.Chain
	rules []*nftables.Rule
	sets  []*nftables.Set
}

func kernelTableOf(t nftable) *kernelTable {
	c := t.chains[0]
	hook, priority := *c.Hooknum, *c.Priority
	k := &kernelTable{chain: &nftables.Chain{Name: c.Name, Type: c.Type, Hooknum: &hook, Priority: &priority}}
	for _, r := range c.rules {
		k.rules = append(k.rules, &nftables.Rule{UserData: r.comment()})
	}
	for _, s := range t.sets {
		k.sets = append(k.sets, s.kernel(t.kernel()))
	}
	return k
}

// A table of the kernel is recognized by its chains, rules and sets; each difference counts.
func TestTablesAreRecognized(t *testing.T) {
	table := hostPortTable(bothFamilies(), nil)
	for name, tc := range map[string]struct {
		change            func(*kernelTable)
		hook, rules, sets bool
	}{
		"as written":             {func(k *kernelTable) { slices.Reverse(k.sets) }, true, true, true},
		"another chain":          {func(k *kernelTable) { k.chain.Name = "other" }, false, true, true},
		"another hook":           {func(k *kernelTable) { *k.chain.Hooknum = 77 }, false, true, true},
		"no hook":                {func(k *kernelTable) { k.chain.Hooknum = nil }, false, true, true},
		"another priority":       {func(k *kernelTable) { *k.chain.Priority++ }, false, true, true},
		"no priority":            {func(k *kernelTable) { k.chain.Priority = nil }, false, true, true},
		"another type":           {func(k *kernelTable) { k.chain.Type = nftables.ChainTypeFilter }, false, true, true},
		"one rule less":          {func(k *kernelTable) { k.rules = k.rules[1:] }, true, false, true},
		"one rule more":          {func(k *kernelTable) { k.rules = append(k.rules, k.rules[0]) }, true, false, true},
		"rules in another order": {func(k *kernelTable) { slices.Reverse(k.rules) }, true, false, true},
		"a rule of others":       {func(k *kernelTable) { k.rules[0].UserData = nil }, true, false, true},
		"one set less":           {func(k *kernelTable) { k.sets = k.sets[1:] }, true, true, false},
		"one set more":           {func(k *kernelTable) { k.sets = append(k.sets, k.sets[0]) }, true, true, false},
		"a set of another name":  {func(k *kernelTable) { k.sets[0].Name = "other" }, true, true, false},
		"a set instead of a map": {func(k *kernelTable) { k.sets[0].IsMap = false }, true, true, false},
		"a set of other keys":    {func(k *kernelTable) { k.sets[0].KeyType.Bytes++ }, true, true, false},
		"a map to other values":  {func(k *kernelTable) { k.sets[0].DataType.Bytes++ }, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := kernelTableOf(table)
			tc.change(k)
			c := table.chains[0]
			if hook, rules, sets := c.sameHook(k.chain), c.sameRules(k.rules), table.sameSets(k.sets); hook != tc.hook ||
				rules != tc.rules || sets != tc.sets {
				t.Errorf("the same hook: %v, rules: %v, sets: %v", hook, rules, sets)
			}
		})
	}
}

// The plan has the table and the routes of the families of the gateway. Which addresses are the
// host's matters to announced addresses and source ranges alone.
func TestServicePlan(t *testing.T) {
	d := bothFamilies()
	d.Services.Ranges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/24"), netip.MustParsePrefix("fd96::/112")}
	p := newServicePlan(d, serviceFamilies(d.Gateway), nil)
	var led []string
	for _, r := range p.routes {
		led = append(led, r.Destination.String())
	}
	for _, want := range []string{"10.96.0.0/24", "fd96::/112"} {
		if !slices.Contains(led, want) {
			t.Errorf("routes to %v lack %s", led, want)
		}
	}
	if p.table.name != servicesTable || len(p.table.chains) == 0 || len(p.table.sets) == 0 {
		t.Errorf("table %+v", p.table)
	}
	d.Services.Via = []netip.Addr{netip.MustParseAddr("fd00:10:244:1::1"), netip.MustParseAddr("10.244.1.1")}
	for _, r := range newServicePlan(d, serviceFamilies(d.Gateway), nil).routes {
		if !slices.Contains(d.Services.Via, r.Via) || r.Via.Is4() != r.Destination.Addr().Is4() {
			t.Errorf("the route to %s is by %s, not by %v", r.Destination, r.Via, d.Services.Via)
		}
	}
	d.Services.Native = false
	if p = newServicePlan(d, serviceFamilies(d.Gateway), nil); len(p.table.chains)+len(p.table.sets)+len(p.routes) > 0 {
		t.Errorf("Services are kube-proxy's: %+v", p)
	}
	limited := ServicePort{SourceRanges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}
	for name, tc := range map[string]struct {
		s    Services
		need bool
	}{
		"no Services":          {Services{Native: true}, false},
		"a ClusterIP":          {Services{Native: true, Ports: []ServicePort{{}}}, false},
		"source ranges":        {Services{Native: true, Ports: []ServicePort{{}, limited}}, true},
		"an announced address": {Services{Native: true, Announced: []netip.Addr{netip.MustParseAddr("203.0.113.9")}}, true},
		"of kube-proxy's":      {Services{Ports: []ServicePort{limited}}, false},
	} {
		if got := tc.s.needOwnAddresses(); got != tc.need {
			t.Errorf("%s: needs the host's addresses: %v", name, got)
		}
	}
	var list []netlink.Addr
	for _, a := range []string{"127.0.0.1/8", "192.0.2.1/24", "169.254.1.1/16", "fe80::1/64", "fd33::1/64", "::1/128"} {
		list = append(list, netlink.Addr{IPNet: ipNet(netip.MustParsePrefix(a))})
	}
	want := []string{"169.254.1.1", "192.0.2.1", "fd33::1"}
	var own []string
	for a := range hostAddresses(list) {
		own = append(own, a.String())
	}
	slices.Sort(own)
	if diff := cmp.Diff(want, own); diff != "" {
		t.Errorf("the host's addresses (-want +got):\n%s", diff)
	}
}

// A Desired that is equal costs nothing, and each difference counts, in Services too.
func TestDesiredIsCompared(t *testing.T) {
	desired := func() Desired {
		d := bothFamilies()
		d.Services.Ports = []ServicePort{{Protocol: intent.TCP, Port: 80, ClusterIP: netip.MustParseAddr("10.96.0.7")}}
		d.Routes = []Route{{Destination: netip.MustParsePrefix("10.244.2.0/24"), Via: netip.MustParseAddr("192.0.2.2")}}
		return d
	}
	if !desired().equal(desired()) {
		t.Error("equal ones differ")
	}
	address := netip.MustParseAddr("203.0.113.5")
	for name, change := range map[string]func(*Desired){
		"MTU":             func(d *Desired) { d.Gateway.MTU++ },
		"route":           func(d *Desired) { d.Routes[0].MTU = 1400 },
		"native":          func(d *Desired) { d.Services.Native = false },
		"announced":       func(d *Desired) { d.Services.Announced = []netip.Addr{address} },
		"no Service":      func(d *Desired) { d.Services.Ports = nil },
		"node port":       func(d *Desired) { d.Services.Ports[0].NodePort = 30080 },
		"external":        func(d *Desired) { d.Services.Ports[0].ExternalIPs = []netip.Addr{address} },
		"load balancer":   func(d *Desired) { d.Services.Ports[0].LoadBalancerIPs = []netip.Addr{address} },
		"without ends":    func(d *Desired) { d.Services.Ports[0].Unserved = true },
		"local endpoints": func(d *Desired) { d.Services.Ports[0].ExternalLocal = true },
		"source ranges": func(d *Desired) {
			d.Services.Ports[0].SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		},
	} {
		d := desired()
		if change(&d); d.equal(desired()) || desired().equal(d) {
			t.Errorf("%s is not compared", name)
		}
	}
}

// A client of UDP that came after a change is translated as it should be, and keeps that: otherwise
// an answer that is on its way would be lost.
func TestClientsWhoCameSinceAreKept(t *testing.T) {
	d := only4()
	family := serviceFamilies(d.Gateway)[0]
	node, external := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("203.0.113.5")
	sets := func(nodePort uint16, hosts ...intent.Endpoint) []set {
		p := ServicePort{Protocol: intent.UDP, Port: 53, NodePort: nodePort, Hosts: HostEndpoints{Outside: hosts}}
		if nodePort != 0 {
			p.ExternalIPs = []netip.Addr{external}
		}
		return servicesOf(Services{Native: true, Ports: []ServicePort{p}}, family, nil).sets(nil)
	}
	host := intent.Endpoint{Address: netip.MustParseAddr("192.0.2.1"), Port: 53}
	for name, tc := range map[string]struct {
		had, has  []set
		forgotten bool // one that is led to the bridge
	}{
		"came":               {had: sets(0), has: sets(30053)},
		"has another port":   {had: sets(30054), has: sets(30053)},
		"gone":               {had: sets(30053), has: sets(0), forgotten: true},
		"has a host's":       {had: sets(30053), has: sets(30053, host), forgotten: true},
		"came with a host's": {had: sets(0), has: sets(30053, host), forgotten: true},
	} {
		stale := family.stale(tc.had, tc.has)
		stale.own = map[netip.Addr]bool{node: true}
		for at, port := range map[netip.Addr]uint16{node: 30053, external: 53} {
			f := &netlink.ConntrackFlow{}
			f.Forward = netlink.IPTuple{Protocol: uint8(intent.UDP), DstIP: at.AsSlice(), DstPort: port}
			f.Reverse = netlink.IPTuple{Protocol: uint8(intent.UDP), SrcIP: family.hop.AsSlice(), SrcPort: 30053}
			if got := stale.MatchConntrackFlow(f); got != tc.forgotten {
				t.Errorf("%s, at %s: forgotten: %v", name, at, got)
			}
			f.Reverse.SrcIP, f.Reverse.SrcPort = at.AsSlice(), port
			if !stale.MatchConntrackFlow(f) {
				t.Errorf("%s, at %s: one that was not translated is kept", name, at)
			}
		}
	}
}

// Clients are forgotten of what differs between two states of the kernel's sets, UDP alone for
// Services; of host ports those of all protocols that are gone, and UDP of those that have come.
func TestWhatClientsAreForgotten(t *testing.T) {
	d := only4()
	d.Services = Services{Native: true, Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/24")}}
	family := serviceFamilies(d.Gateway)[0]
	sets := func(ports ...ServicePort) []set {
		s := d.Services
		s.Ports = ports
		return servicesOf(s, family, nil).sets(nil)
	}
	port := func(p intent.Protocol, node uint16, external string) ServicePort {
		return ServicePort{Protocol: p, Port: 53, NodePort: node, ClusterIP: netip.MustParseAddr("10.96.0.7"),
			ExternalIPs: []netip.Addr{netip.MustParseAddr(external)}}
	}
	before := sets(port(intent.UDP, 30053, "203.0.113.5"), port(intent.TCP, 30080, "203.0.113.5"))
	if s := family.stale(before, before); !s.none() {
		t.Errorf("nothing differs: %+v", s)
	}
	s := family.stale(before, sets(port(intent.UDP, 30054, "203.0.113.6")))
	wantPorts := map[string]bool{service(intent.UDP, 30053): true, service(intent.UDP, 30054): true}
	wantFrontends := map[string]bool{}
	for _, a := range []string{"203.0.113.5", "203.0.113.6"} {
		wantFrontends[frontend(netip.MustParseAddr(a), intent.UDP, 53)] = true
	}
	if !maps.Equal(s.ports, wantPorts) || !maps.Equal(s.frontends, wantFrontends) {
		t.Errorf("node ports %v, external addresses %v", s.ports, s.frontends)
	}
	host := func(p intent.Protocol, number uint16) HostPort {
		return HostPort{Protocol: p, Port: number, To: netip.MustParseAddrPort("10.244.1.10:80")}
	}
	got := changedHostPorts([]HostPort{host(intent.TCP, 1), host(intent.UDP, 2), host(intent.TCP, 3)},
		[]HostPort{host(intent.TCP, 3), host(intent.TCP, 4), host(intent.UDP, 5)})
	want := staleHostPorts{
		come: []HostPort{host(intent.UDP, 5)}, gone: []HostPort{host(intent.TCP, 1), host(intent.UDP, 2)},
	}
	if !slices.Equal(got.come, want.come) || !slices.Equal(got.gone, want.gone) {
		t.Errorf("host ports %+v, want %+v", got, want)
	}
}
