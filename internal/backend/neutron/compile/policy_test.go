// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policy/oracle"
	"coelan.io/coelan/internal/policy/oracle/world"
)

// filter is what Neutron makes of security groups.
type filter struct {
	groups  map[string][]resource.Ref              // of Ports
	rules   map[resource.Ref][]resource.Attributes // of groups
	members map[resource.Ref]map[string]bool       // addresses, of groups
}

func filterOf(s *resource.Set) filter {
	f := filter{map[string][]resource.Ref{}, map[resource.Ref][]resource.Attributes{}, map[resource.Ref]map[string]bool{}}
	for _, p := range s.All(resource.Port) {
		for _, g := range p.Mutable["security_groups"].([]any) {
			group := g.(resource.Ref)
			f.groups[p.Object] = append(f.groups[p.Object], group)
			if f.members[group] == nil {
				f.members[group] = map[string]bool{}
			}
			for _, ip := range p.Mutable["fixed_ips"].([]any) {
				f.members[group][ip.(resource.Attributes)["ip_address"].(string)] = true
			}
		}
	}
	for _, r := range s.All(resource.SecurityGroupRule) {
		group := r.Fixed["security_group_id"].(resource.Ref)
		f.rules[group] = append(f.rules[group], r.Fixed)
	}
	return f
}

// allows reports whether one of the rules of a Port's groups allows a connection.
func (f filter) allows(direction, object string, k oracle.Connection) bool {
	other, ethertype := k.Source.Address, "IPv6"
	if direction == "egress" {
		other = k.Destination.Address
	}
	if other.Is4() {
		ethertype = "IPv4"
	}
	return slices.ContainsFunc(f.groups[PortObject(object)], func(g resource.Ref) bool {
		return slices.ContainsFunc(f.rules[g], func(r resource.Attributes) bool {
			return r["direction"] == direction && r["ethertype"] == ethertype && f.fromPeer(r, other) && atPort(r, k)
		})
	})
}

func (f filter) fromPeer(rule resource.Attributes, other netip.Addr) bool {
	if text, ok := rule["remote_ip_prefix"].(string); ok && !netip.MustParsePrefix(text).Contains(other) {
		return false
	}
	group, ok := rule["remote_group_id"].(resource.Ref)
	return !ok || f.members[group][other.String()]
}

func atPort(rule resource.Attributes, k oracle.Connection) bool {
	protocol, ok := rule["protocol"].(string)
	if !ok {
		return true
	}
	if protocol != protocolName(k.Protocol) {
		return false
	}
	first, bounded := rule["port_range_min"].(int)
	last, ended := rule["port_range_max"].(int)
	if k.Protocol == oracle.ICMP || k.Protocol == oracle.ICMPv6 {
		return (!bounded || first == int(k.Type)) && (!ended || last == int(k.Code))
	}
	return !bounded || first <= int(k.Port) && int(k.Port) <= last
}

// portOfEnd is the Port of an end; false for what is none of policies' business.
func portOfEnd(e oracle.End, network string) (intent.Port, bool) {
	if !e.PoliciesApply() {
		return intent.Port{}, false
	}
	p := intent.Port{Network: network, Node: e.NodeName(), Addresses: []netip.Addr{e.Address}}
	switch {
	case e.Pod != nil:
		p.Namespace, p.Pod, p.Interface, p.UID = e.Pod.Namespace, e.Pod.Name, e.Interface, string(e.Pod.UID)
		p.Object = e.Pod.Name + "." + e.Interface
	case e.Port != nil:
		p.Namespace, p.Pod, p.Object = e.Port.Namespace, e.Port.Name, e.Port.Name
	}
	p.ID = p.Namespace + "/" + p.Object
	return p, true
}

// worldOf is the State of a World with the Ports of one space, in one Network.
func worldOf(w *world.World, c *world.Controller, space string) *intent.State {
	s := c.State(policy.AllNodes)
	o := intent.Objects{
		Local: s.Local(), Nodes: slices.Collect(s.Nodes().All()), Rules: slices.Collect(s.Rules().All()),
		Subjects: slices.Collect(s.Subjects().All()), Peers: slices.Collect(s.Peers().All()),
		Routers:  []intent.Router{{Name: "default", ID: 1, Shared: true}},
		Networks: []intent.Network{{Name: "default", Router: "default"}, {Name: space + "-net", Router: space, Subnets: intenttest.Subnets("10.0.0.0/8", "fd00::/16")}},
	}
	if space != "default" {
		o.Routers = append(o.Routers, intent.Router{Name: space, ID: 2})
	}
	at := map[string]int{}
	for _, e := range w.Ends[space] {
		p, ok := portOfEnd(e, space+"-net")
		if i, seen := at[p.ID]; ok && seen {
			o.Ports[i].Addresses = append(o.Ports[i].Addresses, e.Address)
		} else if ok {
			at[p.ID] = len(o.Ports)
			o.Ports = append(o.Ports, p)
		}
	}
	return intenttest.State(o)
}

// excused reports whether it is said of a policy of a Port that Neutron does not do all of it.
func excused(s *intent.State, set *resource.Set, p intent.Port) bool {
	subject, _ := s.Subjects().Get(p.SubjectKey())
	policies := slices.Concat(subject.IngressIsolation, subject.EgressIsolation, subject.SecurityGroups)
	for _, id := range subject.Rules {
		r, _ := s.Rules().Get(id)
		policies = append(policies, r.Policy)
	}
	return slices.ContainsFunc(set.Problems, func(problem resource.Problem) bool {
		return slices.ContainsFunc(policies, func(ref intent.PolicyRef) bool { return ref.String() == problem.Object })
	})
}

// onRouter reports whether an end has an address that is its node's elsewhere, and that of
// Neutron's router here: the gateway of a podCIDR.
func onRouter(s *intent.State, e oracle.End) bool {
	if e.Node == nil {
		return false
	}
	n, _ := s.Nodes().Get(e.Node.Name)
	return slices.ContainsFunc(n.Subnets, func(sn intent.Subnet) bool { return sn.Gateway == e.Address })
}

// For any cluster and policies, nothing passes that the kinds of policies do not promise, and what
// is closed beyond that is said of a policy of one of the ends.
//
// More cases: -rapid.checks=10000.
func TestGroupsAreThePolicies(t *testing.T) {
	decided := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w, controller := world.Draw(t), world.NewController()
		controller.Follow(t, w)
		packets := world.DrawPackets(t)
		for _, space := range []string{"default", rapid.SampledFrom([]string{"red", "blue"}).Draw(t, "space")} {
			state := worldOf(w, controller, space)
			set := Compile(state, Options{Cluster: "c"})
			f := filterOf(set)
			for _, problem := range dangling(set) {
				t.Error(problem)
			}
			w.Connections(space, packets, func(k oracle.Connection) {
				if k.Source.Same(k.Destination) || k.Source.Node != nil && k.Destination.PoliciesApply() && k.Source.Node.Name == k.Destination.NodeName() {
					return // they do not pass a switch, or come from the management address
				}
				if onRouter(state, k.Source) || onRouter(state, k.Destination) {
					return
				}
				want, got, excuse := w.Judge(k), true, false
				if p, ok := portOfEnd(k.Source, ""); ok {
					got, excuse = f.allows("egress", p.ObjectKey(), k), excused(state, set, p)
				}
				if p, ok := portOfEnd(k.Destination, ""); ok {
					got, excuse = got && f.allows("ingress", p.ObjectKey(), k), excuse || excused(state, set, p)
				}
				if got && !want.Allowed || !got && want.Allowed && !excuse {
					t.Fatalf("%s in space %s: want %+v, got %v\n%s", k, space, want, got, dump(set))
				}
				decided[fmt.Sprint(want.Direction, " ", want.Tier, " ", want.Allowed, " ", got)]++
			})
		}
	})
	t.Log(decided)
	const outcomes = 12
	if len(decided) < outcomes {
		t.Errorf("too few ends: %v", decided)
	}
}

// many has policies that each let the pods of one label into those of another, and these pods.
func many(policies, pods int) *intent.State {
	o := intent.Objects{
		Local:   intent.Local{PolicyMode: intent.EnforcedPolicies},
		Routers: []intent.Router{{Name: "default", ID: 1}}, Networks: []intent.Network{{Name: "default", Router: "default"}},
	}
	for n := range 4 {
		node := intenttest.Node(fmt.Sprint("n", n), n)
		node.Subnets = []intent.Subnet{{Network: "default", Prefix: prefix(fmt.Sprintf("10.%d.0.0/16", n)), Gateway: addr(fmt.Sprintf("10.%d.0.1", n))}}
		o.Nodes = append(o.Nodes, node)
	}
	number := 0
	for i := range policies {
		ref := intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "shop", Name: fmt.Sprint("p", i)}
		rule := intent.Rule{
			ID: fmt.Sprintf("NetworkPolicy/shop/p%d/ingress/1", i), Policy: ref, Number: 1, Direction: intent.Ingress, Tier: intent.NetworkPolicyTier,
			Action: intent.Allow, Groups: []string{fmt.Sprint("g", i)}, Ports: []intent.PortRange{{Protocol: 6, First: 80, Last: 80}},
		}
		o.Rules = append(o.Rules, rule)
		for j := range pods {
			number++
			node := number % 4
			p := intenttest.Port("shop", fmt.Sprintf("web-%d-%d", i, j), "default", fmt.Sprint("n", node),
				fmt.Sprintf("10.%d.%d.%d", node, 1+number/800, number/4%200))
			p.Interface = "eth0"
			o.Ports = append(o.Ports, p)
			o.Subjects = append(o.Subjects, intent.Subject{Key: p.SubjectKey(), Rules: []string{rule.ID}, IngressIsolation: []intent.PolicyRef{ref}})
			o.Peers = append(o.Peers, intent.Peer{Space: "default", Address: p.Addresses[0], Groups: []string{fmt.Sprint("g", (i+1)%policies)}})
		}
	}
	return intenttest.State(o)
}

// Rules and groups are those of policies, however many pods there are.
func TestRulesDoNotGrowWithPods(t *testing.T) {
	const policies, pods = 500, 50
	count := func(s *resource.Set) [2]int {
		return [2]int{len(s.All(resource.SecurityGroup)), len(s.All(resource.SecurityGroupRule))}
	}
	// That of a policy and that of its peers; and those of 4 nodes, for all in and out, and exempt.
	one := Compile(many(policies, 4), Options{})
	if got, want := count(one), [2]int{2*policies + 4 + 3, policies + 4 + 4 + 3}; got != want {
		t.Errorf("%v groups and rules, want %v", got, want)
	}
	began := time.Now()
	all := Compile(many(policies, pods), Options{})
	t.Logf("%d Ports compiled in %v", len(all.All(resource.Port)), time.Since(began))
	if got := len(all.All(resource.Port)); got != policies*pods+4 {
		t.Errorf("%d Ports", got)
	}
	if count(all) != count(one) {
		t.Errorf("%v groups and rules with %d pods each, %v with 4", count(all), pods, count(one))
	}
}

// A group of Neutron has all addresses of its Ports. A Port of which a rule has one address as a
// peer, and not the other, is no member: the rule names the address.
func TestPeerWithSeveralAddresses(t *testing.T) {
	ref := intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "shop", Name: "in"}
	rule := intent.Rule{
		ID: "NetworkPolicy/shop/in/ingress/1", Policy: ref, Number: 1, Direction: intent.Ingress, Tier: intent.NetworkPolicyTier,
		Action: intent.Allow, Groups: []string{"g"}, Ports: []intent.PortRange{{Protocol: 6, First: 80, Last: 80}},
	}
	for _, second := range []bool{false, true} {
		web := intenttest.Port("shop", "web", "red", "n1", "10.9.0.2")
		client := intenttest.Port("shop", "client", "red", "n1", "10.9.0.3", "10.9.0.4")
		o := intent.Objects{
			Local:   intent.Local{PolicyMode: intent.EnforcedPolicies},
			Routers: []intent.Router{{Name: "red", ID: 2}}, Nodes: []intent.Node{intenttest.Node("n1", 1)},
			Networks: []intent.Network{{Name: "red", Router: "red", Subnets: intenttest.Subnets("10.9.0.0/16")}},
			Rules:    []intent.Rule{rule}, Ports: []intent.Port{web, client},
			Subjects: []intent.Subject{{Key: web.SubjectKey(), Rules: []string{rule.ID}, IngressIsolation: []intent.PolicyRef{ref}}},
			Peers:    []intent.Peer{{Space: "red", Address: addr("10.9.0.3"), Groups: []string{"g"}}},
		}
		if second {
			o.Peers = append(o.Peers, intent.Peer{Space: "red", Address: addr("10.9.0.4"), Groups: []string{"g"}})
		}
		f := filterOf(Compile(intenttest.State(o), Options{}))
		for a, want := range map[string]bool{"10.9.0.3": true, "10.9.0.4": second} {
			k := oracle.Connection{
				Source: oracle.End{Address: addr(a)}, Destination: oracle.End{Address: web.Addresses[0]}, Protocol: oracle.TCP, Port: 80,
			}
			if got := f.allows("ingress", web.ObjectKey(), k); got != want {
				t.Errorf("with the second address in the group %v: from %s %v, want %v", second, a, got, want)
			}
		}
	}
}

// What comes from a node's address is let in by a rule only where nothing tells the node's own
// processes from clients that it forwards.
func TestNodesOwnAddress(t *testing.T) {
	for _, supplemented := range []bool{false, true} {
		in := 0
		for _, r := range Compile(many(1, 4), Options{Supplemented: supplemented}).All(resource.SecurityGroupRule) {
			if r.Fixed["direction"] == "ingress" && r.Fixed["remote_ip_prefix"] == "10.1.255.254/32" {
				in++
			}
		}
		if want := map[bool]int{false: 1, true: 0}[supplemented]; in != want {
			t.Errorf("with a Supplement %v: %d rules let in the node's address, want %d", supplemented, in, want)
		}
	}
}
