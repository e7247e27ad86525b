// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/openflow"
)

// texts lists a Desired's groups, meters and flows by owner as text, with cookies.
func texts(c *Compiler, d *bridge.Desired) map[string][]string {
	all := map[string][]string{}
	for owner, r := range rulesOf(d, c) {
		for _, g := range r.Groups {
			all[owner] = append(all[owner], g.String())
		}
		for _, m := range r.Meters {
			all[owner] = append(all[owner], m.String())
		}
		for _, f := range r.Flows {
			all[owner] = append(all[owner], f.String())
		}
	}
	return all
}

// things are objects by kind and name, as what puts them into Objects.
type things map[string]func(*intent.Objects)

func (th things) update(t fataler, store *intent.Store) *intent.State {
	t.Helper()
	var o intent.Objects
	for _, add := range th {
		add(&o)
	}
	state, err := store.Update(func(tx *intent.Tx) error { tx.Replace(o); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// step is one change of things: the one of that name is added, replaced or, if
// there is nothing to add, removed.
type step struct {
	name string
	add  func(*intent.Objects)
}

func (s step) apply(th things) {
	delete(th, s.name)
	if s.add != nil {
		th[s.name] = s.add
	}
}

// genSteps draws changes to a handful of objects of each kind: set in one of
// several forms, or deleted.
func genSteps(t *rapid.T) []step {
	var steps []step
	for range rapid.IntRange(1, 25).Draw(t, "steps") {
		n := rapid.IntRange(1, 4).Draw(t, "object")
		form := rapid.IntRange(0, 2).Draw(t, "form")
		kind := rapid.SampledFrom([]string{"port", "port", "port", "node", "node", "network", "router", "local"}).Draw(t, "kind")
		steps = append(steps, change(kind, n, form))
	}
	return steps
}

func change(kind string, n, form int) step {
	network, router := []string{"default", "blue"}[n%2], []string{"default", "red"}[n%2]
	s := step{name: fmt.Sprint(kind, " ", n)}
	switch kind {
	case "local":
		return step{kind, func(o *intent.Objects) { o.Local = localForm(form) }}
	case "router":
		s = step{kind + " " + router, func(o *intent.Objects) {
			o.Routers = append(o.Routers, intent.Router{Name: router, ID: intent.RouterID(n%2*10 + form), VNI: uint32(n%2*20 + form)})
		}}
	case "network":
		s = step{kind + " " + network, func(o *intent.Objects) {
			o.Networks = append(o.Networks, intent.Network{
				Name: network, ID: intent.NetworkID(n%2*10 + form), VNI: uint32(n%2*10 + form), Router: router,
				DHCP: intent.DHCP{Enabled: n > 2, IPv6: intent.IPv6Configuration(form)},
			})
		}}
	case "node":
		s.add = func(o *intent.Objects) { o.Nodes = append(o.Nodes, nodeForm(n, form, network)) }
	case "port":
		s.add = func(o *intent.Objects) { o.Ports = append(o.Ports, portForm(n, form, network)) }
	}
	if form == 0 {
		s.add = nil
	}
	return s
}

func localForm(form int) intent.Local {
	return []intent.Local{
		{Node: "o1", Encapsulation: intent.VXLAN, TunnelIP: netip.MustParseAddr("192.168.33.1"), MTU: 1450},
		{Node: "o2", Encapsulation: intent.NoEncap, MTU: 1500},
		{Node: "o1", Encapsulation: intent.Geneve, TunnelIP: netip.MustParseAddr("fd33::1"), MTU: 1430},
	}[form]
}

func nodeForm(n, form int, network string) intent.Node {
	v4 := intent.Subnet{Network: network, Prefix: netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", n)), Gateway: netip.MustParseAddr(fmt.Sprintf("10.244.%d.1", n))}
	v6 := intent.Subnet{Network: network, Prefix: netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/64", n)), Gateway: netip.MustParseAddr(fmt.Sprintf("fd00:%d::1", n))}
	node := intent.Node{Name: fmt.Sprint("o", n), Addresses: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.168.33.%d", n))}, Subnets: []intent.Subnet{v4}}
	if form == 2 {
		node.MTU = 1300
		node.Subnets = append(node.Subnets, v6)
		node.Addresses = append(node.Addresses, netip.MustParseAddr(fmt.Sprintf("fd33::%d", n)))
	}
	return node
}

func portForm(n, form int, network string) intent.Port {
	p := intent.Port{
		ID: fmt.Sprintf("o%d/eth0", n), Namespace: "default", Pod: fmt.Sprint("web-", n%3), Interface: "eth0",
		Network: network, Node: []string{"o1", "o1", "o2"}[form],
		Addresses: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.244.1.%d", n+1)), netip.MustParseAddr(fmt.Sprintf("fd00:1::%d", n+1))},
	}
	p.MAC = reserved.PodMAC(p.Addresses[0])
	if form == 1 {
		p.MTU = 1300
		p.Trusted = n > 2
	}
	return p
}

// Compiling change after change gives the same as compiling the last State, and
// so does any other order of changes that lead to the same State.
func TestIncrementalEqualsFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store, all := intent.NewStore(), things{}
		incremental := New()
		var names []string
		for _, s := range genSteps(t) {
			names = append(names, s.name)
			s.apply(all)
			state := all.update(t, store)
			full := New()
			want := texts(full, full.Compile(inputOf(state)))
			got := texts(incremental, incremental.Compile(inputOf(state)))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("after %v (-full +incremental):\n%s", names, diff)
			}
			if diff := cmp.Diff(full.Problems(), incremental.Problems()); diff != "" {
				t.Fatalf("problems after %v (-full +incremental):\n%s", names, diff)
			}
			if diff := cmp.Diff(meanings(full), meanings(incremental)); diff != "" {
				t.Fatalf("meanings after %v (-full +incremental):\n%s", names, diff)
			}
		}
	})
}

func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last := stateAfter(t, genSteps(t))
		if rapid.Bool().Draw(t, "world") {
			last = drawView(t)
		}
		// Build the same objects anew, in another order.
		objects := objectsOf(last)
		perm := rapid.Permutation(objects).Draw(t, "order")
		other := stateAfter(t, perm)
		a, b := New(), New()
		if diff := cmp.Diff(texts(a, a.Compile(inputOf(last))), texts(b, b.Compile(inputOf(other)))); diff != "" {
			t.Fatalf("another order (-want +got):\n%s", diff)
		}
	})
}

// On the way from one cluster to another, object by object, compiling what
// changed gives the same as compiling everything, in States that make sense and
// in those that do not.
func TestIncrementalBetweenWorlds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawView(t), drawView(t)
		store, all := intent.NewStore(), things{}
		for _, s := range objectsOf(from) {
			s.apply(all)
		}
		incremental := New()
		done := []string{"first world"}
		for _, s := range append([]step{{}}, between(t, from, to)...) {
			done = append(done, fmt.Sprintf("%s (set: %v)", s.name, s.add != nil))
			s.apply(all)
			state := all.update(t, store)
			full := New()
			want, got := full.Compile(inputOf(state)), incremental.Compile(inputOf(state))
			if !sameRules(rulesOf(want, full), rulesOf(got, incremental)) {
				t.Fatalf("after %v (-full +incremental):\n%s", done, cmp.Diff(texts(full, want), texts(incremental, got)))
			}
			if diff := cmp.Diff(full.Problems(), incremental.Problems()); diff != "" {
				t.Fatalf("problems after %v (-full +incremental):\n%s", done, diff)
			}
		}
	})
}

// between lists changes on the way between two States, in any order, as many as a
// test has time for.
func between(t *rapid.T, from, to *intent.State) []step {
	steps := objectsOf(to)
	for _, s := range objectsOf(from)[1:] {
		steps = append(steps, step{name: s.name})
	}
	steps = rapid.Permutation(steps).Draw(t, "order")
	return steps[:min(len(steps), 15)]
}

// sameRules is faster than comparing texts.
func sameRules(a, b map[string]*bridge.Rules) bool {
	return maps.EqualFunc(a, b, func(a, b *bridge.Rules) bool {
		return slices.EqualFunc(a.Flows, b.Flows, func(a, b openflow.Flow) bool { return a.Equal(&b) }) &&
			slices.EqualFunc(a.Groups, b.Groups, func(a, b openflow.Group) bool { return a.Equal(&b) }) &&
			slices.EqualFunc(a.Meters, b.Meters, func(a, b openflow.Meter) bool { return a.Equal(&b) })
	})
}

func stateAfter(t *rapid.T, steps []step) *intent.State {
	all := things{}
	for _, s := range steps {
		s.apply(all)
	}
	return all.update(t, intent.NewStore())
}

// objectsOf is a step for each object of a State.
func objectsOf(s *intent.State) []step {
	steps := []step{{"local", func(o *intent.Objects) { o.Local = s.Local() }}}
	for r := range s.Routers().All() {
		steps = append(steps, step{"router " + r.Name, func(o *intent.Objects) { o.Routers = append(o.Routers, r) }})
	}
	for n := range s.Networks().All() {
		steps = append(steps, step{"network " + n.Name, func(o *intent.Objects) { o.Networks = append(o.Networks, n) }})
	}
	for n := range s.Nodes().All() {
		steps = append(steps, step{"node " + n.Name, func(o *intent.Objects) { o.Nodes = append(o.Nodes, n) }})
	}
	for p := range s.Ports().All() {
		steps = append(steps, step{"port " + p.ID, func(o *intent.Objects) { o.Ports = append(o.Ports, p) }})
	}
	for b := range s.Blocks().All() {
		steps = append(steps, step{"block " + b.Network + b.Prefix.String(), func(o *intent.Objects) { o.Blocks = append(o.Blocks, b) }})
	}
	for v := range s.NodeServices().All() {
		steps = append(steps, step{"service " + v.Name, func(o *intent.Objects) { o.NodeServices = append(o.NodeServices, v) }})
	}
	for p := range s.ServiceRanges().All() {
		steps = append(steps, step{"range " + p.Prefix.String(), func(o *intent.Objects) { o.ServiceRanges = append(o.ServiceRanges, p) }})
	}
	for f := range s.FloatingIPs().All() {
		steps = append(steps, step{"floating IP " + f.Name, func(o *intent.Objects) { o.FloatingIPs = append(o.FloatingIPs, f) }})
	}
	for c := range s.ChosenAddresses().All() {
		steps = append(steps, step{"chosen " + c.Address.String(), func(o *intent.Objects) { o.ChosenAddresses = append(o.ChosenAddresses, c) }})
	}
	for g := range s.GatewayAddresses().All() {
		name := "gateway " + g.Network + " " + g.Address.String()
		steps = append(steps, step{name, func(o *intent.Objects) { o.GatewayAddresses = append(o.GatewayAddresses, g) }})
	}
	for e := range s.EgressAddresses().All() {
		name := "egress address " + e.Network + " " + e.Address.String()
		steps = append(steps, step{name, func(o *intent.Objects) { o.EgressAddresses = append(o.EgressAddresses, e) }})
	}
	for p := range s.EgressPaths().All() {
		steps = append(steps, step{"egress path " + p.Name, func(o *intent.Objects) { o.EgressPaths = append(o.EgressPaths, p) }})
	}
	return append(steps, policySteps(s)...)
}

func meanings(c *Compiler) map[uint64]Meaning {
	all := map[uint64]Meaning{}
	for cookie, m := range c.meanings {
		all[cookie] = m.meaning
	}
	return all
}

// A switch takes every flow, no two owners want the same one, the packet only
// ever goes forward, to a table that exists, and each cookie tells its owner.
func TestFlowsAreSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := New()
		owners := map[openflow.FlowKey]string{}
		world := rapid.Bool().Draw(t, "world")
		state := stateAfter(t, genSteps(t))
		if world {
			state = drawView(t)
		}
		desired := c.Compile(inputOf(state))
		whole, _ := state.Routers().Get("default")
		inDefault := openflow.SetField(inRouter(whole)).String()
		for owner, flows := range flowsOf(desired, c) {
			for _, f := range flows {
				if err := f.Validate(); err != nil {
					t.Errorf("%s: %v", owner, err)
				}
				if other, taken := owners[f.Key()]; taken {
					t.Errorf("%s and %s both want %s", other, owner, f.String())
				}
				owners[f.Key()] = owner
				for _, a := range f.Actions {
					to, ok := a.(openflow.ResubmitAction)
					if !ok || to.Table > f.Table {
						continue
					}
					switch {
					case to.Table == service.ID: // once: it asks what it has not asked yet
						ok = strings.Contains(f.String(), openflow.SetField(asked).String())
					case to.Table == affinity.ID: // once: the endpoint is known now
						ok = f.Table == affinityLearn.ID
					case f.Table == gatewayRoute.ID:
						// What comes back has an address in the cluster.
						ok = to.Table == clusterSource.ID
					case to.Table == clusterSource.ID: // once: what it quotes is translated now
						ok = strings.Contains(f.String(), openflow.SetField(quoted).String())
					case f.Table == output.ID || f.Table == nextHop.ID:
						// Once: no port sends it now.
						ok = strings.Contains(f.String(), openflow.SetField(noInPort).String())
					default: // from any router to the default one, from which there is no way back
						ok = strings.Contains(f.String(), inDefault)
					}
					if !ok {
						t.Errorf("%s: may go back for ever: %s", owner, f.String())
					}
				}
				if f.Goto != 0 && (f.Goto <= f.Table || TableName(f.Goto) == "") {
					t.Errorf("%s: goes to table %d: %s", owner, f.Goto, f.String())
				}
				m, ok := c.Explain(f.Cookie)
				if name, _, _ := strings.Cut(owner, "#"); !ok || m.Owner != name {
					t.Errorf("%s: cookie means %+v: %s", owner, m, f.String())
				}
				if drops := len(f.Actions) == 0 && f.Goto == 0; drops != m.Drops() && f.Table != policyDenied.ID && f.Table != policyAudit.ID && f.Table != ingressPeer.ID && !denies(f) {
					t.Errorf("%s: drops is %v, but the cookie means %+v: %s", owner, drops, m, f.String())
				}
				if f.Cookie&CookieMask != CookieBase {
					t.Errorf("%s: cookie %#x does not begin with c0e0", owner, f.Cookie)
				}
			}
		}
		fake := bridge.NewFake(tableNumbers()...)
		b := bridge.New(bridge.Options{Connect: fake.Connect, Learned: Learned})
		if res, err := b.Sync(context.Background(), desired); err != nil || len(res.Conflicts) > 0 {
			t.Errorf("%v, %v", err, res.Conflicts)
		}
	})
}

// denies says whether a flow leads to where denied packets end.
func denies(f openflow.Flow) bool {
	if len(f.Actions) == 0 {
		return false
	}
	to, ok := f.Actions[len(f.Actions)-1].(openflow.ResubmitAction)
	return ok && to.Table == policyDenied.ID
}

func tableNumbers() (ids []uint8) {
	for _, table := range Tables() {
		ids = append(ids, table.ID)
	}
	return ids
}

// A port with a MAC that is reserved on every node gets nothing.
func TestReservedMACs(t *testing.T) {
	for _, mac := range []string{"0a:c0:e1:00:00:01", "0a:c0:e1:00:00:02", "ff:ff:ff:ff:ff:ff", "33:33:00:00:00:01"} {
		for _, node := range []string{"o1", "o2"} {
			p := portForm(1, 1, "default")
			p.Node = node
			if err := p.MAC.UnmarshalText([]byte(mac)); err != nil {
				t.Fatal(err)
			}
			c := New()
			d := c.Compile(inputOf(stateOf(t, intent.Objects{Local: localForm(0), Ports: []intent.Port{p}, Nodes: []intent.Node{nodeForm(2, 2, "default")}})))
			if r := d.Get("port/" + p.Name() + "#" + p.ID); !r.Empty() || len(c.Problems()) != 1 {
				t.Errorf("MAC %s on %s: flows %v, problems %v", mac, node, r, c.Problems())
			}
		}
	}
}

func TestTablesAscend(t *testing.T) {
	tables := Tables()
	if !slices.IsSortedFunc(tables, func(a, b Table) int { return int(a.ID) - int(b.ID) }) {
		t.Errorf("tables are not in the order of a packet's way: %v", tables)
	}
	numbers := map[uint8]string{}
	names := map[string]bool{}
	for _, f := range features {
		if other := numbers[f.number]; other != "" {
			t.Errorf("features %s and %s have the same number", other, f.name)
		}
		numbers[f.number] = f.name
	}
	for _, table := range tables {
		if names[table.Name] || table.Name != TableName(table.ID) {
			t.Errorf("table %d %s: another has its name or number", table.ID, table.Name)
		}
		names[table.Name] = true
	}
}

// One change of one object changes the rules of that object alone, so that the
// bridge need not look at the others.
func TestOnlyWhatChangedIsCompiled(t *testing.T) {
	c := New()
	store, all := intent.NewStore(), things{}
	set := func(steps ...step) map[string]*bridge.Rules {
		for _, s := range steps {
			s.apply(all)
		}
		d := c.Compile(inputOf(all.update(t, store)))
		rules := map[string]*bridge.Rules{}
		for _, u := range c.units {
			if r := d.Get(u.owner); r != nil {
				rules[u.owner] = r
			}
		}
		return rules
	}
	before := set(change("local", 0, 0), change("network", 2, 1), change("router", 2, 1), change("node", 2, 1), change("port", 2, 1), change("port", 4, 1))
	after := set(step{"port 2", func(o *intent.Objects) {
		o.Ports = append(o.Ports, intent.Port{ID: "o2/eth0", Network: "default", Node: "o1"})
	}})
	var changed []string
	for _, owner := range slices.Sorted(maps.Keys(after)) {
		if before[owner] != after[owner] {
			changed = append(changed, owner)
		}
	}
	if diff := cmp.Diff([]string{"port//#o2/eth0"}, changed); diff != "" {
		t.Errorf("compiled anew (-want +got):\n%s", diff)
	}
}

func TestCookieIsStable(t *testing.T) {
	// Flows on a running switch have this value: another one would replace them all.
	if got := fmt.Sprintf("%#x", cookie(3, "port/default/web-0/eth0", "")); got != "0xc0e003b290bbe01f" {
		t.Errorf("cookie = %s", got)
	}
}
