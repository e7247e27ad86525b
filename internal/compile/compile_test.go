// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/bridge"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// texts lists a Desired's flows by owner as text, with cookies.
func texts(c *Compiler, d *bridge.Desired) map[string][]string {
	all := map[string][]string{}
	for owner, flows := range flowsOf(d, c) {
		for _, f := range flows {
			all[owner] = append(all[owner], f.String())
		}
	}
	return all
}

// step is one change of a State.
type step struct {
	text  string
	apply func(*intent.Tx)
}

// genSteps draws changes to a handful of objects of each kind: set in one of
// several forms, or deleted.
func genSteps(t *rapid.T) []step {
	var steps []step
	for range rapid.IntRange(1, 25).Draw(t, "steps") {
		n := rapid.IntRange(1, 4).Draw(t, "object")
		form := rapid.IntRange(0, 2).Draw(t, "form")
		kind := rapid.SampledFrom([]string{"port", "port", "port", "node", "node", "network", "router", "local"}).Draw(t, "kind")
		steps = append(steps, step{fmt.Sprint(kind, n, form), func(tx *intent.Tx) { change(tx, kind, n, form) }})
	}
	return steps
}

func change(tx *intent.Tx, kind string, n, form int) {
	name := fmt.Sprint("o", n)
	network := []string{"default", "blue"}[n%2]
	switch {
	case kind == "local":
		tx.SetLocal(localForm(form))
	case kind == "router" && form == 0:
		tx.DeleteRouter([]string{"default", "red"}[n%2])
	case kind == "router":
		tx.SetRouter(intent.Router{Name: []string{"default", "red"}[n%2], ID: intent.RouterID(n%2*10 + form)})
	case kind == "network" && form == 0:
		tx.DeleteNetwork(network)
	case kind == "network":
		tx.SetNetwork(intent.Network{Name: network, ID: intent.NetworkID(n%2*10 + form), VNI: uint32(n%2*10 + form), Router: []string{"default", "red"}[n%2]})
	case kind == "node" && form == 0:
		tx.DeleteNode(name)
	case kind == "node":
		tx.SetNode(nodeForm(n, form, network))
	case form == 0:
		tx.DeletePort(name + "/eth0")
	default:
		tx.SetPort(portForm(n, form, network))
	}
}

func localForm(form int) intent.Local {
	return []intent.Local{
		{Node: "o1", Encapsulation: intent.VXLAN, TunnelIP: netip.MustParseAddr("192.168.33.1")},
		{Node: "o2", Encapsulation: intent.NoEncap},
		{Node: "o1", Encapsulation: intent.Geneve, TunnelIP: netip.MustParseAddr("fd33::1")},
	}[form]
}

func nodeForm(n, form int, network string) intent.Node {
	v4 := intent.Subnet{Network: network, Prefix: netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", n)), Gateway: netip.MustParseAddr(fmt.Sprintf("10.244.%d.1", n))}
	v6 := intent.Subnet{Network: network, Prefix: netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/64", n)), Gateway: netip.MustParseAddr(fmt.Sprintf("fd00:%d::1", n))}
	node := intent.Node{Name: fmt.Sprint("o", n), Addresses: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.168.33.%d", n))}, Subnets: []intent.Subnet{v4}}
	if form == 2 {
		node.Subnets = append(node.Subnets, v6)
		node.Addresses = append(node.Addresses, netip.MustParseAddr(fmt.Sprintf("fd33::%d", n)))
	}
	return node
}

func portForm(n, form int, network string) intent.Port {
	p := intent.Port{
		ID: fmt.Sprintf("o%d/eth0", n), Namespace: "default", Pod: fmt.Sprint("web-", n%3), Interface: "eth0",
		Network: network, Node: []string{"o1", "o1", "o2"}[form], OFPort: intent.FirstPodPort + uint32(n),
		Addresses: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.244.1.%d", n+1)), netip.MustParseAddr(fmt.Sprintf("fd00:1::%d", n+1))},
	}
	p.MAC = intent.PodMAC(p.Addresses[0])
	return p
}

// Compiling change after change gives the same as compiling the last State, and
// so does any other order of changes that lead to the same State.
func TestIncrementalEqualsFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := intent.NewStore()
		incremental := New()
		var names []string
		for _, s := range genSteps(t) {
			names = append(names, s.text)
			state, err := store.Update(func(tx *intent.Tx) error { s.apply(tx); return nil })
			if err != nil {
				t.Fatal(err)
			}
			full := New()
			want := texts(full, full.Compile(state))
			got := texts(incremental, incremental.Compile(state))
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
		steps := genSteps(t)
		last := stateAfter(t, steps)
		// Build the same objects anew, in another order.
		objects := objectsOf(last)
		perm := rapid.Permutation(objects).Draw(t, "order")
		other := stateAfter(t, perm)
		a, b := New(), New()
		if diff := cmp.Diff(texts(a, a.Compile(last)), texts(b, b.Compile(other))); diff != "" {
			t.Fatalf("another order (-want +got):\n%s", diff)
		}
	})
}

func stateAfter(t *rapid.T, steps []step) *intent.State {
	store := intent.NewStore()
	for _, s := range steps {
		if _, err := store.Update(func(tx *intent.Tx) error { s.apply(tx); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return store.State()
}

// objectsOf is a step for each object of a State.
func objectsOf(s *intent.State) []step {
	steps := []step{{"local", func(tx *intent.Tx) { tx.SetLocal(s.Local()) }}}
	for o := range s.Routers().All() {
		steps = append(steps, step{o.Name, func(tx *intent.Tx) { tx.SetRouter(o) }})
	}
	for o := range s.Networks().All() {
		steps = append(steps, step{o.Name, func(tx *intent.Tx) { tx.SetNetwork(o) }})
	}
	for o := range s.Nodes().All() {
		steps = append(steps, step{o.Name, func(tx *intent.Tx) { tx.SetNode(o) }})
	}
	for o := range s.Ports().All() {
		steps = append(steps, step{o.ID, func(tx *intent.Tx) { tx.SetPort(o) }})
	}
	return steps
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
		desired := c.Compile(stateAfter(t, genSteps(t)))
		for owner, flows := range flowsOf(desired, c) {
			for _, f := range flows {
				if err := f.Validate(); err != nil {
					t.Errorf("%s: %v", owner, err)
				}
				if other, taken := owners[f.Key()]; taken {
					t.Errorf("%s and %s both want %s", other, owner, f.String())
				}
				owners[f.Key()] = owner
				if f.Goto != 0 && (f.Goto <= f.Table || TableName(f.Goto) == "") {
					t.Errorf("%s: goes to table %d: %s", owner, f.Goto, f.String())
				}
				m, ok := c.Explain(f.Cookie)
				if name, _, _ := strings.Cut(owner, "#"); !ok || m.Owner != name {
					t.Errorf("%s: cookie means %+v: %s", owner, m, f.String())
				}
				if drops := len(f.Actions) == 0 && f.Goto == 0; drops != m.Drops() {
					t.Errorf("%s: drops is %v, but the cookie means %+v: %s", owner, drops, m, f.String())
				}
				if f.Cookie&CookieMask != CookieBase {
					t.Errorf("%s: cookie %#x does not begin with c0e0", owner, f.Cookie)
				}
			}
		}
	})
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
	store := intent.NewStore()
	set := func(change func(*intent.Tx)) map[string]*bridge.Rules {
		state, err := store.Update(func(tx *intent.Tx) error { change(tx); return nil })
		if err != nil {
			t.Fatal(err)
		}
		d := c.Compile(state)
		rules := map[string]*bridge.Rules{}
		for _, u := range c.units {
			if r := d.Get(u.owner); r != nil {
				rules[u.owner] = r
			}
		}
		return rules
	}
	before := set(func(tx *intent.Tx) {
		tx.SetLocal(localForm(0))
		change(tx, "network", 2, 1)
		change(tx, "router", 2, 1)
		change(tx, "node", 2, 1)
		change(tx, "port", 2, 1)
		change(tx, "port", 4, 1)
	})
	after := set(func(tx *intent.Tx) {
		tx.SetPort(intent.Port{ID: "o2/eth0", Network: "default", Node: "o1", OFPort: 99})
	})
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
