// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// policies is what policies of several namespaces want, and what there is of it.
type policies struct {
	want *Set
	have *Inventory
	// size is how many calls make the new groups and rules of a namespace.
	size map[string]int
}

func newPolicies() *policies {
	return &policies{want: NewSet(), have: NewInventory(), size: map[string]int{}}
}

// group is a group of a policy of a namespace, with new rules that have another group as their
// peer, if there is one.
func (p *policies) group(namespace, name string, there bool, rules int, peer Ref) Ref {
	object := "NetworkPolicy " + namespace + "/" + name
	ref := Ref{Kind: SecurityGroup, Key: "Policy/" + object}
	p.want.Add(Resource{Ref: ref, Object: object})
	if there {
		p.have.Put(ref, Actual{ID: "id-" + ref.Key})
	} else {
		p.size[namespace]++
	}
	for i := range rules {
		fixed := Attributes{"security_group_id": ref, "remote_group_id": nil}
		if peer != (Ref{}) {
			fixed["remote_group_id"] = peer
		}
		p.want.Add(Resource{
			Ref: Ref{Kind: SecurityGroupRule, Key: fmt.Sprintf("%s %04d", ref.Key, i)}, Object: object, Fixed: fixed,
		})
	}
	p.size[namespace] += (rules + RulesOfCall - 1) / RulesOfCall
	return ref
}

// port is one that is to be in groups, with a floating IP.
func (p *policies) port(name string, there bool, groups ...any) Ref {
	ref := Ref{Kind: Port, Key: "Port/" + name}
	p.want.Add(Resource{Ref: ref, Object: "Port " + name, Mutable: Attributes{"security_groups": groups}})
	if there {
		p.have.Put(ref, Actual{ID: "id-" + ref.Key, Attributes: Attributes{"security_groups": []any{}}})
	}
	p.want.Add(Resource{Ref: Ref{Kind: FloatingIP, Key: "FloatingIP/" + name}, Mutable: Attributes{portID: ref}})
	return ref
}

// check makes the calls of the plan, and fails where one comes too early. It returns how many calls
// of Neutron make groups and rules before the last one of each namespace.
func (p *policies) check(t interface {
	Errorf(format string, args ...any)
},
) map[string]int {
	there, last, made := map[Ref]bool{}, map[string]int{}, 0
	for ref := range p.have.resources {
		there[ref] = true
	}
	rules := map[Ref][]Ref{}
	for _, r := range p.want.All(SecurityGroupRule) {
		group := r.Fixed["security_group_id"].(Ref)
		rules[group] = append(rules[group], r.Ref)
	}
	needs := func(c Call, value any) {
		if ref, is := value.(Ref); is && !there[ref] {
			t.Errorf("%s comes before %s", c.Ref, ref)
		}
	}
	var before Ref // the group of the rules of the last call, and how many there are
	together := 0
	for _, c := range Plan(p.want, p.have) {
		group, _ := c.Attributes["security_group_id"].(Ref)
		switch c.Ref.Kind {
		case SecurityGroupRule:
			needs(c, group)
			needs(c, c.Attributes["remote_group_id"])
			if together++; group != before || together > RulesOfCall {
				made, together = made+1, 1
			}
		case SecurityGroup:
			made++
		case Port:
			for _, joined := range list(c.Attributes["security_groups"]) {
				needs(c, joined)
				for _, rule := range rules[joined.(Ref)] {
					needs(c, rule)
				}
			}
		case FloatingIP:
			needs(c, c.Attributes[portID])
		}
		if c.Ref.Kind == SecurityGroup || c.Ref.Kind == SecurityGroupRule {
			last[namespaceOf(c.Object)] = made
		}
		before, there[c.Ref] = group, true
	}
	for ref := range p.want.resources {
		if !there[ref] {
			t.Errorf("%s is not made", ref)
		}
	}
	return last
}

// Whatever policies there are: each group comes before its rules, and before those that have it as
// their peer; a port joins groups with all of their rules; and how long a namespace waits follows
// from how much is to be made for itself.
func TestTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPolicies()
		shared := []Ref{{}}
		for i := range rapid.IntRange(0, 2).Draw(t, "shared groups") {
			ref := Ref{Kind: SecurityGroup, Key: fmt.Sprint("peers-", i)}
			p.want.Add(Resource{Ref: ref, Object: "Network default"})
			shared = append(shared, ref)
		}
		for n := range rapid.IntRange(1, 5).Draw(t, "namespaces") {
			namespace := fmt.Sprint("n", n)
			groups := []any{}
			for g := range rapid.IntRange(0, 12).Draw(t, "groups") {
				rules := rapid.SampledFrom([]int{0, 1, 99, 100, 101, 250}).Draw(t, "rules")
				groups = append(groups, p.group(namespace, fmt.Sprint("g", g), rapid.Bool().Draw(t, "there"), rules,
					rapid.SampledFrom(shared).Draw(t, "peer")))
			}
			for i := range rapid.IntRange(0, 3).Draw(t, "ports") {
				in := rapid.SliceOfNDistinct(rapid.IntRange(0, max(len(groups)-1, 0)), 0, min(3, len(groups)), rapid.ID).Draw(t, "in")
				joined := []any{}
				for _, g := range in {
					joined = append(joined, groups[g])
				}
				p.port(fmt.Sprint(namespace, "/p", i), rapid.Bool().Draw(t, "port is there"), joined...)
			}
		}
		last := p.check(t)
		for namespace, own := range p.size {
			most := len(shared) - 1 // those are needed first by any of them
			for _, other := range p.size {
				most += min(own, other)
			}
			if last[namespace] > most {
				t.Errorf("namespace %s is done after %d calls, and has %d of its own: want %d at most", namespace, last[namespace], own, most)
			}
		}
	})
}

// Neither a namespace's group, nor its pod, nor one without policies waits for the rules of another
// one. What the other one's port is let does not change before all of them are there.
func TestManyNewRules(t *testing.T) {
	p := newPolicies()
	var busy []any
	for i := range 40 {
		busy = append(busy, p.group("busy", fmt.Sprintf("g%02d", i), false, 5*RulesOfCall, Ref{}))
	}
	changed := p.port("busy/web", true, busy...)
	quiet := p.port("quiet/web", false, p.group("quiet", "g", false, 1, Ref{}))
	without := p.port("other/web", false)
	p.check(t)
	calls := Plan(p.want, p.have)
	at := func(r Ref) int {
		return slices.IndexFunc(calls, func(c Call) bool { return c.Ref == r })
	}
	const most = turnsBeforePorts*RulesOfCall + 10
	if at(quiet) > most || at(without) > most {
		t.Errorf("ports come after %d and %d calls, want %d at most", at(quiet), at(without), most)
	}
	if at(changed) < 40*5*RulesOfCall {
		t.Errorf("the port with many new rules comes after %d calls", at(changed))
	}
	old := Ref{Kind: SecurityGroupRule, Key: "old"}
	p.have.Put(busy[39].(Ref), Actual{ID: "id-busy"})
	p.have.Put(old, Actual{ID: "old", Attributes: Attributes{"security_group_id": "id-busy"}})
	calls = Plan(p.want, p.have)
	lastNew := 0
	for i, c := range calls {
		if c.Ref.Kind == SecurityGroupRule && c.Operation == Create {
			lastNew = i
		}
	}
	if at(old) < lastNew {
		t.Error("an old rule of a group goes before its new ones are there")
	}
}
