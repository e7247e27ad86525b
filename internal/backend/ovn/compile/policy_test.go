// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policy/oracle"
	"coelan.io/coelan/internal/policy/oracle/world"
)

// matcher evaluates OVN's language of matches on one packet.
type matcher struct {
	tokens []string
	// fields are what the packet has, words those predicates that are true of it.
	fields map[string]string
	words  map[string]bool
	// sets are those of addresses, and names of groups that the port is in, with $ and @.
	sets map[string][]string
}

func tokens(match string) []string {
	apart := strings.NewReplacer("(", " ( ", ")", " ) ", "{", " { ", "}", " } ", ",", " ")
	return strings.Fields(apart.Replace(match))
}

func (m *matcher) next() string {
	if len(m.tokens) == 0 {
		return ""
	}
	return m.tokens[0]
}

func (m *matcher) take() string {
	t := m.next()
	m.tokens = m.tokens[1:]
	return t
}

func (m *matcher) or() bool {
	is := m.and()
	for m.next() == "||" {
		m.take()
		is = m.and() || is
	}
	return is
}

func (m *matcher) and() bool {
	is := m.term()
	for m.next() == "&&" {
		m.take()
		is = m.term() && is
	}
	return is
}

func (m *matcher) term() bool {
	t := m.take()
	if t == "(" {
		is := m.or()
		if m.take() != ")" {
			panic("no closing parenthesis")
		}
		return is
	}
	switch op := m.next(); op {
	case "==", ">=", "<=":
		m.take()
		return m.compare(t, op)
	}
	return m.words[t]
}

func (m *matcher) compare(field, op string) bool {
	var values []string
	if v := m.take(); v == "{" {
		for m.next() != "}" {
			values = append(values, m.take())
		}
		m.take()
	} else {
		values = []string{v}
	}
	have, ok := m.fields[field]
	return ok && slices.ContainsFunc(values, func(v string) bool {
		switch {
		case v[0] == '@':
			return slices.Contains(m.sets[v], have)
		case v[0] == '$':
			list, known := m.sets[v]
			if !known {
				panic("unknown set " + v)
			}
			return slices.Contains(list, have)
		case strings.Contains(v, "/"):
			return netip.MustParsePrefix(v).Contains(netip.MustParseAddr(have))
		case op == "==":
			return v == have
		}
		a, _ := strconv.Atoi(have)
		b, err := strconv.Atoi(v)
		if err != nil {
			panic(err)
		}
		return op == ">=" && a >= b || op == "<=" && a <= b
	})
}

// firewall is the ACLs of compiled rows.
type firewall struct {
	acls []*nb.ACL
	sets map[string][]string
}

func firewallOf(rows *nb.Rows) firewall {
	f := firewall{sets: map[string][]string{}}
	for ref := range rows.Refs() {
		data, _ := rows.Get(ref)
		var list []string
		switch row := data.(type) {
		case *nb.ACL:
			if strings.HasPrefix(ref.Key, "Policy/") { // those of switches are of no policy
				f.acls = append(f.acls, row)
			}
		case *nb.PortGroup:
			for column, value := range rows.Elements(ref) {
				if column == "ports" {
					list = append(list, value)
				}
			}
			f.sets["@"+row.Name] = list
		case *nb.AddressSet:
			for _, value := range rows.Elements(ref) {
				list = append(list, value)
			}
			f.sets["$"+row.Name] = list
		}
	}
	return f
}

// verdict is what the ACLs of a direction decide: those with the highest priority that fit.
func (f firewall) verdict(direction, port string, k oracle.Connection) (bool, string) {
	m := matcher{sets: f.sets, words: map[string]bool{"ip": true}, fields: map[string]string{"ip.proto": fmt.Sprint(k.Protocol)}}
	m.fields[map[string]string{"from-lport": "inport", "to-lport": "outport"}[direction]] = port
	family := "ip6"
	if k.Source.Address.Is4() {
		family = "ip4"
	}
	m.words[family] = true
	m.fields[family+".src"], m.fields[family+".dst"] = k.Source.Address.String(), k.Destination.Address.String()
	if name := map[uint8]string{6: "tcp", 17: "udp", 132: "sctp"}[k.Protocol]; name != "" {
		m.words[name], m.fields[name+".dst"], m.fields[name+".src"] = true, fmt.Sprint(k.Port), "40000"
	}
	if name := map[uint8]string{1: "icmp4", 58: "icmp6"}[k.Protocol]; name != "" {
		m.words[name], m.fields[name+".type"], m.fields[name+".code"] = true, fmt.Sprint(k.Type), fmt.Sprint(k.Code)
	}
	best, action, by := -1, "", ""
	for _, a := range f.acls {
		m.tokens = tokens(a.Match)
		if a.Direction != direction || a.Priority < best || !m.or() {
			continue
		}
		if len(m.tokens) > 0 {
			panic("rest of " + a.Match)
		}
		if a.Priority == best && a.Action != action {
			panic(fmt.Sprintf("%s and %s have priority %d and differ", by, *a.Name, best))
		}
		best, action, by = a.Priority, a.Action, *a.Name
	}
	return action != "drop", by
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
func worldOf(w *world.World, c *world.Controller, space string) intent.Objects {
	s := c.State(policy.AllNodes)
	o := intent.Objects{
		Local: s.Local(), Nodes: slices.Collect(s.Nodes().All()), Rules: slices.Collect(s.Rules().All()),
		Subjects: slices.Collect(s.Subjects().All()), Peers: slices.Collect(s.Peers().All()),
		Routers:  []intent.Router{{Name: "default", ID: 1, Shared: true}},
		Networks: []intent.Network{{Name: "default", Router: "default"}, {Name: space + "-net", Router: space, Subnets: intenttest.Subnets("10.0.0.0/8")}},
	}
	if space != "default" {
		o.Routers = append(o.Routers, intent.Router{Name: space, ID: 2})
	}
	seen := map[string]bool{}
	for _, e := range w.Ends[space] {
		if p, ok := portOfEnd(e, space+"-net"); ok && !seen[p.ID] {
			seen[p.ID] = true
			o.Ports = append(o.Ports, p)
		}
	}
	return o
}

// For any cluster and policies, from any state before, the ACLs decide about a connection as the
// kinds of policies promise.
//
// More cases: -rapid.checks=10000.
func TestACLsAreThePolicies(t *testing.T) {
	decided := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w, controller := world.Draw(t), world.NewController()
		stores, compilers := map[string]*intent.Store{}, map[string]*Compiler{}
		for range 2 {
			controller.Follow(t, w)
			packets := world.DrawPackets(t)
			for _, space := range []string{"default", rapid.SampledFrom([]string{"red", "blue"}).Draw(t, "space")} {
				if stores[space] == nil {
					stores[space], compilers[space] = intent.NewStore(), New(Options{Cluster: names.Cluster("c")})
				}
				state, _ := stores[space].Update(func(tx *intent.Tx) error { tx.Replace(worldOf(w, controller, space)); return nil })
				compilers[space].Update(state)
				anew := New(Options{Cluster: names.Cluster("c")})
				anew.Update(state)
				if diff := cmp.Diff(dump(anew.Rows()), dump(compilers[space].Rows())); diff != "" {
					t.Fatalf("rows (-anew +updated):\n%s", diff)
				}
				for _, problem := range dangling(anew.Rows()) {
					t.Error(problem)
				}
				f := firewallOf(compilers[space].Rows())
				w.Connections(space, packets, func(k oracle.Connection) {
					if k.Source.Same(k.Destination) || k.Source.Node != nil && k.Destination.PoliciesApply() && k.Source.Node.Name == k.Destination.NodeName() {
						return // they do not pass a switch, or come from the management address
					}
					want, got, by := w.Judge(k), true, ""
					if p, ok := portOfEnd(k.Source, ""); ok {
						got, by = f.verdict("from-lport", portRef(p.ObjectKey()).Key, k)
					}
					if p, ok := portOfEnd(k.Destination, ""); ok && got {
						got, by = f.verdict("to-lport", portRef(p.ObjectKey()).Key, k)
					}
					if got != want.Allowed {
						t.Fatalf("%s in space %s: want %+v, got %v by %s\n%s", k, space, want, got, by, dump(compilers[space].Rows()))
					}
					decided[fmt.Sprint(want.Direction, " ", want.Tier, " ", want.Allowed)]++
				})
			}
			w = w.DrawNext(t)
		}
	})
	t.Log(decided)
	if len(decided) < 12 {
		t.Errorf("too few ends: %v", decided)
	}
}
