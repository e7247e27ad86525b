// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	network = Ref{Kind: Network, Key: "net"}
	subnet  = Ref{Kind: Subnet, Key: "sub"}
	pool    = Ref{Kind: SubnetPool, Key: "pool"}
	router  = Ref{Kind: Router, Key: "r"}
	routes  = Ref{Kind: Routes, Key: "r"}
	link    = Ref{Kind: Interface, Key: "sub"}
	port    = Ref{Kind: Port, Key: "p"}
	group   = Ref{Kind: SecurityGroup, Key: "web"}
	rule    = Ref{Kind: SecurityGroupRule, Key: "web tcp 80"}
	oldRule = Ref{Kind: SecurityGroupRule, Key: "web tcp 81"}
)

// wanted is a network with a subnet on a router that has a route, and a port.
func wanted(change ...func(map[Ref]Resource)) *Set {
	all := map[Ref]Resource{
		network: {Mutable: Attributes{"name": "n"}},
		subnet:  {Fixed: Attributes{"network_id": network, "cidr": "10.0.0.0/24"}, Mutable: Attributes{"dns_nameservers": []any{"a", "b"}}},
		router:  {Mutable: Attributes{"name": "r"}},
		link:    {Fixed: Attributes{"router_id": router, "subnet_id": subnet}},
		routes:  {Mutable: Attributes{"routes": []any{Attributes{"destination": "10.1.0.0/16", "nexthop": "10.0.0.2"}}}},
		port: {
			Fixed: Attributes{"network_id": network, "mac_address": "m"},
			Mutable: Attributes{"security_groups": []any{"g", "h"},
				"fixed_ips": []any{Attributes{"subnet_id": subnet, "ip_address": "10.0.0.2"}}},
			Initial: Attributes{"first": true},
		},
	}
	for _, c := range change {
		c(all)
	}
	s := NewSet()
	for r, resource := range all {
		resource.Ref = r
		s.Add(resource)
	}
	return s
}

// guarded has the port in a security group with rules.
func guarded(rules ...Ref) func(map[Ref]Resource) {
	return func(all map[Ref]Resource) {
		all[group] = Resource{Mutable: Attributes{"name": "web"}}
		for _, r := range rules {
			all[r] = Resource{Fixed: Attributes{"security_group_id": group}}
		}
		all[port].Mutable["security_groups"] = []any{group}
	}
}

// isGuarded is what guarded has made.
func isGuarded(rules ...Ref) func(*Inventory) {
	return func(i *Inventory) {
		i.Put(group, Actual{ID: "id-web", Attributes: Attributes{"name": "web"}})
		for _, r := range rules {
			i.Put(r, Actual{ID: "id-" + r.Key, Attributes: Attributes{"security_group_id": "id-web"}})
		}
		with(port, "security_groups", []any{"id-web"})(i)
	}
}

// compatible has the subnet and the port in ::/96, of which addresses have two texts.
func compatible(cidr, address string) func(map[Ref]Resource) {
	return func(all map[Ref]Resource) {
		all[subnet].Fixed["cidr"] = cidr
		all[port].Mutable["fixed_ips"] = []any{Attributes{"subnet_id": subnet, "ip_address": address}}
		all[routes].Mutable["routes"] = compatibleRoutes(address)
	}
}

func compatibleRoutes(hop string) []any {
	return []any{map[string]any{"destination": "::10.1.0.0/112", "nexthop": hop}}
}

// renamed has the port be another object's.
func renamed(all map[Ref]Resource) {
	all[Ref{Kind: Port, Key: "of 10.0.0.2"}] = all[port]
	delete(all, port)
}

// floating is the floating IP of that port.
func floating(all map[Ref]Resource) {
	all[Ref{Kind: FloatingIP, Key: "f"}] = Resource{Mutable: Attributes{"port_id": Ref{Kind: Port, Key: "of 10.0.0.2"}}}
}

// floatingTo is a floating IP that is to lead to a port; nil: to none.
func floatingTo(port any) func(map[Ref]Resource) {
	return func(all map[Ref]Resource) {
		all[Ref{Kind: FloatingIP, Key: "f"}] = Resource{Mutable: Attributes{"port_id": port}}
	}
}

// leadingTo is one that leads to a port.
func leadingTo(port string) func(*Inventory) {
	return func(i *Inventory) {
		i.Put(Ref{Kind: FloatingIP, Key: "f"}, Actual{ID: "id-f", Attributes: Attributes{"port_id": port}})
	}
}

// exposed has a floating IP lead to the port, whatever is wanted.
func exposed(i *Inventory) { i.Expose("id-p") }

// spare has the port be for a pod that may come. It keeps the groups that it has.
func spare(optional bool) func(map[Ref]Resource) {
	return func(all map[Ref]Resource) {
		p := all[port]
		p.Spare, p.Optional, p.Kept = true, optional, Attributes{"security_groups": p.Mutable["security_groups"]}
		p.Mutable = Attributes{"fixed_ips": p.Mutable["fixed_ips"]}
		all[port] = p
	}
}

// kept are the groups that a spare port is made with.
func kept(groups ...any) func(map[Ref]Resource) {
	return func(all map[Ref]Resource) { all[port].Kept["security_groups"] = groups }
}

// holder has the port be for an object, which was told of it or not.
func holder(told bool, s *Set) *Set {
	for r, p := range s.resources {
		if r.Kind == Port {
			p.Holder = "uid"
			s.resources[r] = p
		}
	}
	s.Held = func(Resource, Actual) bool { return told }
	return s
}

func without(refs ...Ref) func(map[Ref]Resource) {
	return func(all map[Ref]Resource) {
		for _, r := range refs {
			delete(all, r)
		}
	}
}

// there is what wanted has made.
func there(change ...func(*Inventory)) *Inventory {
	i := NewInventory()
	for r, attributes := range map[Ref]Attributes{
		network: {"name": "n", "mtu": 1500.0},
		subnet:  {"network_id": "id-net", "cidr": "10.0.0.0/24", "dns_nameservers": []any{"a", "b"}},
		router:  {"name": "r"},
		link:    {"router_id": "id-r", "subnet_id": "id-sub"},
		routes:  {"routes": []any{map[string]any{"nexthop": "10.0.0.2", "destination": "10.1.0.0/16"}}},
		port: {"network_id": "id-net", "mac_address": "m", "security_groups": []any{"h", "g"},
			"fixed_ips": []any{map[string]any{"ip_address": "10.0.0.2", "subnet_id": "id-sub"}}},
	} {
		i.Put(r, Actual{ID: "id-" + r.Key, Attributes: attributes})
	}
	for _, c := range change {
		c(i)
	}
	return i
}

func with(r Ref, name string, value any) func(*Inventory) {
	return func(i *Inventory) {
		a, _ := i.Get(r)
		a.Attributes[name] = value
	}
}

// pooled has the subnet be of a pool.
func pooled(all map[Ref]Resource) {
	all[pool] = Resource{Fixed: Attributes{"prefixes": []any{"10.0.0.0/16"}}, Mutable: Attributes{"default_prefixlen": 24}}
	s := all[subnet]
	s.Initial = Attributes{"subnetpool_id": pool}
	all[subnet] = s
}

// isPooled is what pooled has made.
func isPooled(i *Inventory) {
	i.Put(pool, Actual{ID: "id-pool", Attributes: Attributes{"prefixes": []any{"10.0.0.0/16"}, "default_prefixlen": 24}})
	with(subnet, "subnetpool_id", "id-pool")(i)
}

func TestPlan(t *testing.T) {
	for _, tc := range []struct {
		name string
		want *Set
		have *Inventory
		plan []string
	}{
		{"all is there", wanted(), there(), nil},
		{"addresses as Neutron writes them", wanted(compatible("::a00:0/112", "::a00:2")),
			there(with(subnet, "cidr", "::10.0.0.0/112"), with(routes, "routes", compatibleRoutes("::10.0.0.2")),
				with(port, "fixed_ips", []any{map[string]any{"ip_address": "::10.0.0.2", "subnet_id": "id-sub"}})), nil},
		{"other addresses", wanted(compatible("::a00:0/112", "::a00:3")),
			there(with(subnet, "cidr", "::10.0.0.0/112"), with(routes, "routes", compatibleRoutes("::10.0.0.2")),
				with(port, "fixed_ips", []any{map[string]any{"ip_address": "::10.0.0.2", "subnet_id": "id-sub"}})), []string{
				"update routes of router r routes", "update port p fixed_ips", "update routes of router r routes",
			}},
		{"nothing is there", wanted(), NewInventory(), []string{
			"create network net", "create subnet sub", "create router r", "create router interface sub", "create port p",
			"update routes of router r routes",
		}},
		{"nothing is wanted", NewSet(), there(), []string{
			"update routes of router r routes", "delete port p", "delete router interface sub", "delete router r",
			"delete subnet sub", "delete network net",
		}},
		{"another name", wanted(), there(with(network, "name", "by hand")), []string{"update network net name"}},
		{"another order of name servers", wanted(), there(with(subnet, "dns_nameservers", []any{"b", "a"})),
			[]string{"update subnet sub dns_nameservers"}},
		{"a port of another MAC", wanted(), there(with(port, "mac_address", "other")), []string{"delete port p", "create port p"}},
		{"a port without its address", wanted(), there(with(port, "fixed_ips", []any{})), []string{"update port p fixed_ips"}},
		{"a subnet of another prefix", wanted(), there(with(subnet, "cidr", "10.9.0.0/24")), []string{
			"delete router interface sub", "delete subnet sub", "create subnet sub", "create router interface sub", "update port p fixed_ips",
		}},
		{"no network any more", wanted(without(subnet, link, port, routes)), there(), []string{
			"update routes of router r routes", "delete port p", "delete router interface sub", "delete subnet sub",
		}},
		{"a route that another has added", wanted(), there(with(routes, "routes", []any{
			map[string]any{"nexthop": "10.0.0.2", "destination": "10.1.0.0/16"},
			map[string]any{"nexthop": "10.0.0.9", "destination": "0.0.0.0/0"}})),
			[]string{"update routes of router r routes", "update routes of router r routes"}},
		{"a second network", wanted(), there(func(i *Inventory) {
			i.Put(network, Actual{ID: "id-later", Attributes: Attributes{"created_at": "2026"}})
		}), []string{"delete network net"}},
		{"a policy", wanted(guarded(rule)), there(),
			[]string{"create security group web", "create security group rule web tcp 80", "update port p security_groups"}},
		{"a policy no longer", wanted(), there(isGuarded(rule)), []string{"update port p security_groups", "delete security group web"}},
		{"a policy with another rule", wanted(guarded(Ref{Kind: SecurityGroupRule, Key: "web tcp 81"})), there(isGuarded(rule)),
			[]string{"create security group rule web tcp 81", "delete security group rule web tcp 80"}},
		{"a rule by hand", wanted(guarded(rule)), there(isGuarded(rule, ForeignRule("x"))),
			[]string{"delete security group rule Foreign/x"}},
		{"a group that was made anew", wanted(guarded(rule)), there(isGuarded(rule), with(rule, "security_group_id", "other")),
			[]string{"delete security group rule web tcp 80", "create security group rule web tcp 80"}},
		{"a policy and its peers go", wanted(), there(isGuarded(rule), func(i *Inventory) {
			i.Put(Ref{Kind: SecurityGroup, Key: "peers"}, Actual{ID: "id-peers", Attributes: Attributes{}})
		}), []string{"update port p security_groups", "delete security group web", "delete security group peers"}},
		{"a spare port, last of all", wanted(guarded(rule), spare(false)), NewInventory(), []string{
			"create security group web", "create security group rule web tcp 80", "create network net", "create subnet sub",
			"create router r", "create router interface sub", "update routes of router r routes", "create port p",
		}},
		{"a port that is spare now", wanted(spare(false)), there(), nil},
		{"a spare port that is not needed", wanted(spare(true)), there(), nil},
		{"a spare port that is not needed, and not there", wanted(spare(true)), there(func(i *Inventory) { i.Remove(port, "id-p") }), nil},
		{"a spare port of another MAC that is not needed", wanted(spare(true)), there(with(port, "mac_address", "other")), []string{"delete port p"}},
		{"a spare port with the groups of the pod before", wanted(guarded(rule), spare(true), kept("groups")), there(isGuarded(rule)), nil},
		{"a spare port that is not needed, with a group that goes", wanted(spare(true), kept("h")), there(isGuarded(rule)),
			[]string{"delete port p", "delete security group web"}},
		{"a spare port with a group that goes", wanted(spare(false), kept("h")), there(isGuarded(rule)),
			[]string{"delete port p", "delete security group web", "create port p"}},
		{"a spare port without any group", wanted(spare(false)), there(with(port, "security_groups", []any{})),
			[]string{"delete port p", "create port p"}},
		{"a port that is spare now and had another name", wanted(spare(false), renamed), there(), []string{"update port of 10.0.0.2"}},
		{"a port that is spare now and had another name, with a group that goes", wanted(spare(false), kept("h"), renamed),
			there(isGuarded(rule)), []string{"delete port p", "delete security group web", "create port of 10.0.0.2"}},
		{"a port for another object", wanted(renamed), there(), []string{"update port of 10.0.0.2"}},
		{"a port for another object, with another MAC", wanted(renamed), there(with(port, "mac_address", "other")),
			[]string{"delete port p", "create port of 10.0.0.2"}},
		{"a port for another object, on another network", wanted(renamed), there(with(port, "network_id", "other")),
			[]string{"delete port p", "create port of 10.0.0.2"}},
		{"a port for another object, in another project", wanted(renamed, func(all map[Ref]Resource) {
			of := Ref{Kind: Port, Key: "of 10.0.0.2"}
			all[of.In("q")] = all[of]
			delete(all, of)
		}), there(), []string{"delete port p", "create port of 10.0.0.2 of project q"}},
		{"ports for both objects", wanted(func(all map[Ref]Resource) { all[Ref{Kind: Port, Key: "of 10.0.0.2"}] = all[port] }), there(),
			[]string{"create port of 10.0.0.2"}},
		{"a port for another object, and a floating IP", wanted(renamed, floating), there(func(i *Inventory) {
			i.Put(Ref{Kind: FloatingIP, Key: "f"}, Actual{ID: "id-f", Attributes: Attributes{"port_id": "id-p"}})
		}), []string{"update port of 10.0.0.2"}},
		{"a floating IP of the object before", holder(false, wanted()), there(leadingTo("id-p")), []string{"delete floating IP f"}},
		{"a floating IP of the object before that is to lead nowhere", holder(false, wanted(floatingTo(nil))), there(leadingTo("id-p")),
			[]string{"detach floating IP f"}},
		{"a floating IP of the object before that follows it", holder(false, wanted(floatingTo(Ref{Kind: Port, Key: "other"}))),
			there(leadingTo("id-p")), []string{"detach floating IP f", "update floating IP f port_id"}},
		{"a floating IP of one that is to get the port", holder(false, wanted(floatingTo(port))), there(leadingTo("id-p")), nil},
		{"a floating IP that was of one that has the port", holder(true, wanted(floatingTo(nil))), there(leadingTo("id-p")),
			[]string{"update floating IP f port_id"}},
		{"a floating IP that is there twice", holder(false, wanted(floatingTo(port))),
			there(leadingTo("id-p"), func(i *Inventory) {
				i.Put(Ref{Kind: FloatingIP, Key: "f"}, Actual{ID: "later", Attributes: Attributes{"port_id": "id-p", "created_at": "2026"}})
			}), []string{"delete floating IP f"}},
		{"one that is to get a port which a floating IP cannot leave", holder(false, wanted(floatingTo(nil))),
			there(leadingTo("id-p"), exposed), []string{"delete port p", "create port p", "update floating IP f port_id"}},
		{"one that is to get a port of another name which a floating IP cannot leave", holder(false, wanted(renamed)),
			there(exposed), []string{"delete port p", "create port of 10.0.0.2"}},
		{"one that has a port which a floating IP cannot leave", holder(true, wanted()), there(exposed), nil},
		{"a policy for one that has the port", holder(true, wanted(guarded(rule))), there(),
			[]string{"create security group web", "create security group rule web tcp 80", "update port p security_groups"}},
		{"a policy for one that is to get the port", holder(false, wanted(guarded(rule))), there(), []string{
			"delete port p", "create security group web", "create security group rule web tcp 80", "create port p",
		}},
		{"one that is to get the port as it is", holder(false, wanted()), there(), nil},
		{"one that is to get the port as it is, with a policy that allows less now", holder(false, wanted(guarded(rule))),
			there(isGuarded(rule, oldRule)), []string{"delete port p", "delete security group rule web tcp 81", "create port p"}},
		{"one that has the port, with a policy that allows less now", holder(true, wanted(guarded(rule))),
			there(isGuarded(rule, oldRule)), []string{"delete security group rule web tcp 81"}},
		{"one that is to get the port that another object had", holder(false, wanted(renamed)), there(),
			[]string{"update port of 10.0.0.2"}},
		{"one that is to get the port that another object had with a policy", holder(false, wanted(renamed)), there(isGuarded(rule)),
			[]string{"delete port p", "create port of 10.0.0.2", "delete security group web"}},
		{"a subnet of a pool", wanted(pooled), NewInventory(), []string{
			"create network net", "create subnet pool pool", "create subnet sub", "create router r", "create router interface sub",
			"create port p", "update routes of router r routes",
		}},
		{"a pool of another length", wanted(pooled), there(isPooled, with(pool, "default_prefixlen", 26)),
			[]string{"update subnet pool pool default_prefixlen"}},
		{"a pool for a subnet that is there", wanted(pooled), there(), []string{"create subnet pool pool"}},
		{"a pool no longer, with a subnet that stays", wanted(), there(isPooled), nil},
		{"a pool no longer, with a subnet that is made anew", wanted(), there(isPooled, with(subnet, "cidr", "10.9.0.0/24")), []string{
			"delete router interface sub", "delete subnet sub", "delete subnet pool pool", "create subnet sub",
			"create router interface sub", "update port p fixed_ips",
		}},
		{"a pool no longer, and its subnet goes", wanted(without(network, subnet, link, port, routes)), there(isPooled), []string{
			"update routes of router r routes", "delete port p", "delete router interface sub", "delete subnet sub",
			"delete subnet pool pool", "delete network net",
		}},
		{"a port and its policy go", wanted(without(port)), there(isGuarded(rule)),
			[]string{"delete port p", "delete security group web"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, c := range Plan(tc.want, tc.have) {
				text := fmt.Sprint([]string{"create", "update", "delete", "join", "leave", "detach"}[c.Operation], " ", c.Ref)
				if c.Operation == Update {
					for name := range c.Attributes {
						text += " " + name
					}
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tc.plan, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// Of two with one Ref, the one that was made first stays, in whichever order they are found.
func TestOldestStays(t *testing.T) {
	first, second := Actual{ID: "b", Attributes: Attributes{"created_at": "2025"}}, Actual{ID: "a", Attributes: Attributes{"created_at": "2026"}}
	for _, order := range [][]Actual{{first, second}, {second, first}} {
		i := NewInventory()
		for _, a := range order {
			i.Put(network, a)
		}
		if a, _ := i.Get(network); a.ID != "b" {
			t.Errorf("%v: %s stays", order, a.ID)
		}
		i.Remove(network, "a")
		s := NewSet()
		s.Add(Resource{Ref: network})
		if plan := Plan(s, i); len(plan) > 0 {
			t.Errorf("plan %v after the second is gone", plan)
		}
	}
}

// Neither a change of a port nor the rules of another group wait for many rules that are to go.
func TestManyRulesGo(t *testing.T) {
	busy, quiet := Ref{Kind: SecurityGroup, Key: "busy"}, Ref{Kind: SecurityGroup, Key: "quiet"}
	have, want := NewInventory(), NewSet()
	for _, g := range []Ref{busy, quiet} {
		have.Put(g, Actual{ID: "id-" + g.Key, Attributes: Attributes{"name": g.Key}})
		want.Add(Resource{Ref: g, Mutable: Attributes{"name": g.Key}})
	}
	last := Ref{Kind: SecurityGroupRule, Key: "z"}
	have.Put(last, Actual{ID: "z", Attributes: Attributes{"security_group_id": "id-quiet"}})
	for i := range 50 {
		r := Ref{Kind: SecurityGroupRule, Key: fmt.Sprint("a", i)}
		have.Put(r, Actual{ID: r.Key, Attributes: Attributes{"security_group_id": "id-busy"}})
	}
	have.Put(port, Actual{ID: "p", Attributes: Attributes{"security_groups": []any{}}})
	want.Add(Resource{Ref: port, Mutable: Attributes{"security_groups": []any{quiet}}})
	for i := range 50 { // ready ports with a group that is wanted no longer
		r := Ref{Kind: Port, Key: fmt.Sprint("a", i)}
		have.Put(r, Actual{ID: r.Key, Attributes: Attributes{"security_groups": []any{"id-gone"}}})
		want.Add(Resource{Ref: r, Spare: true, Kept: Attributes{"security_groups": []any{quiet}}})
	}
	calls := Plan(want, have)
	at := func(r Ref) int { return slices.IndexFunc(calls, func(c Call) bool { return c.Ref == r }) }
	if len(calls) != 152 || at(last) != 1 || at(port) != rulesBeforePorts {
		t.Errorf("of %d calls the other group's is %d, and the port's %d", len(calls), at(last), at(port))
	}
}

// A key fits into a description, and long ones stay different.
func TestKey(t *testing.T) {
	long := strings.Repeat("x", 400)
	a, b := Key("Port/shop/"+long+"a"), Key("Port/shop/"+long+"b")
	if len(a) != maxKey || a == b || a != Key("Port/shop/"+long+"a") {
		t.Errorf("%d bytes, %q, %q", len(a), a, b)
	}
	if got := Key("Network/red", "10.0.0.0/8"); got != "Network/red 10.0.0.0/8" {
		t.Error(got)
	}
}

// What Neutron answers may be of any type: the program goes on.
func TestPlanOfNonsense(t *testing.T) {
	nonsense := []any{map[string]any{"a": 1.0}}
	have := NewInventory()
	for k, attributes := range map[Kind]Attributes{
		Port: {
			"network_id": nonsense, "mac_address": nonsense, "security_groups": nonsense, "fixed_ips": nonsense,
			"device_id": nonsense, "created_at": nonsense,
		},
		SecurityGroupRule: {"security_group_id": nonsense, "remote_group_id": nonsense},
		SecurityGroup:     {"name": nonsense},
		Routes:            {"routes": nonsense},
	} {
		have.Put(Ref{Kind: k, Key: "Port/shop/web"}, Actual{ID: "one", Attributes: attributes})
		have.Put(Ref{Kind: k, Key: "Port/shop/web"}, Actual{ID: "two", Attributes: attributes})
		have.Put(Ref{Kind: k, Key: "Port/shop/other"}, Actual{ID: "three", Attributes: attributes})
	}
	want := NewSet()
	group := want.Add(Resource{Ref: Ref{Kind: SecurityGroup, Key: "Cluster/open"}})
	want.Add(Resource{
		Ref: Ref{Kind: Port, Key: "Port/shop/web"}, Holder: "uid", Fixed: Attributes{"mac_address": "0a:58:0a:00:00:01"},
		Kept: Attributes{"security_groups": []any{group}},
	})
	want.Held = func(Resource, Actual) bool { return false }
	if calls := Plan(want, have); len(calls) == 0 {
		t.Error("nothing is to be done")
	}
}

// A node is known, and has a port, before it says that it is a machine of OpenStack: the port is
// put on the trunk, and is not bound to the node any more. What Neutron binds it to then stays.
func TestPlanOfBoundPort(t *testing.T) {
	ref := Ref{Kind: Port, Key: "Node/vm1"}
	want := NewSet()
	want.Add(Resource{Ref: ref, Trunk: "vm1", Mutable: Attributes{"device_id": ""}})
	for host, calls := range map[any]string{"vm1": "[{Update map[binding:host_id:]}]", "": "[]", "hypervisor": "[]", nil: "[]"} {
		have := NewInventory()
		have.SetTrunk("vm1", Trunk{ID: "trunk"})
		have.SetSubport("one", Subport{Trunk: "trunk", VLAN: 2})
		have.Put(ref, Actual{ID: "one", Attributes: Attributes{"device_id": "", "binding:host_id": host}})
		type change struct {
			Operation  string
			Attributes Attributes
		}
		got := []change{}
		for _, c := range Plan(want, have) {
			operation := fmt.Sprint(c.Operation)
			if c.Operation == Update {
				operation = "Update"
			}
			got = append(got, change{operation, c.Attributes})
		}
		if text := fmt.Sprint(got); text != calls {
			t.Errorf("bound to %v: calls %s, want %s", host, text, calls)
		}
	}
}
