// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// RulesOfCall is how many rules of a security group one call makes.
const RulesOfCall = 100

// turnsBeforePorts is how many calls that make security groups and their rules come before ports:
// half of a round, so that ports that need none of the others do not wait for all of them.
const turnsBeforePorts = 25

// turn is one call of Neutron that makes a security group, or rules of one.
type turn struct {
	group Ref
	calls []Call // several rules are made as one
}

// turns are what is to be made of security groups and rules, of each namespace in turn, and of
// those with the least first: how long a namespace waits follows from how much it has itself. A
// group comes before its rules and before those that have it as their peer.
func (p *planner) turns(groups, rules []Call) []turn {
	made := map[Ref]Call{}
	for _, c := range groups {
		made[c.Ref] = c
	}
	order := slices.Collect(maps.Keys(made))
	ofGroup := map[Ref][]Call{}
	for _, c := range rules {
		group, _ := c.Attributes["security_group_id"].(Ref)
		if _, known := made[group]; !known && ofGroup[group] == nil {
			order = append(order, group)
		}
		ofGroup[group] = append(ofGroup[group], c)
	}
	sortByKey(order, func(r Ref) string { return r.Key + " " + r.Project })
	waiting := map[string][]turn{} // by namespace
	for _, group := range order {
		owner := namespaceOf(p.want.resources[group].Object)
		if c, makes := made[group]; makes {
			waiting[owner] = append(waiting[owner], turn{group, []Call{c}})
		}
		for some := range slices.Chunk(ofGroup[group], RulesOfCall) {
			waiting[owner] = append(waiting[owner], turn{group, some})
		}
	}
	owners := slices.SortedFunc(maps.Keys(waiting), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(waiting[a]), len(waiting[b])), cmp.Compare(a, b))
	})
	var list []turn
	add := func(t turn) {
		for _, c := range t.calls {
			peer, _ := c.Attributes["remote_group_id"].(Ref)
			for _, needed := range []Ref{t.group, peer} {
				if c, makes := made[needed]; makes {
					delete(made, needed)
					list = append(list, turn{needed, []Call{c}})
				}
			}
		}
		if t.calls[0].Ref.Kind == SecurityGroupRule {
			list = append(list, t)
		}
	}
	for i, left := 0, true; left; i++ {
		left = false
		for _, owner := range owners {
			if i < len(waiting[owner]) {
				add(waiting[owner][i])
				left = true
			}
		}
	}
	return list
}

// namespaceOf is the namespace of what people call an object, such as NetworkPolicy shop/web; empty
// for those of the cluster.
func namespaceOf(object string) string {
	_, name, _ := strings.Cut(object, " ")
	namespace, _, namespaced := strings.Cut(name, "/")
	if !namespaced {
		return ""
	}
	return namespace
}

// late are the turns that come after ports, and what comes with them: a port joins a group when all
// of its new rules are there, so that what two policies allow is not interrupted.
type late struct {
	turns []turn
	last  map[Ref]int    // the index of the last turn of a group
	ports map[int][]Call // by the index of the turn that they come after
	refs  map[Ref]bool   // of these ports
	other []Call         // what refers to these ports
}

func newLate(turns []turn) *late {
	l := &late{turns: turns, last: map[Ref]int{}, ports: map[int][]Call{}, refs: map[Ref]bool{}}
	for i, t := range turns {
		l.last[t.group] = i
	}
	return l
}

// takes reports whether a call comes late, and keeps it then: that of a port which is to join such
// a group, or of what refers to such a port.
func (l *late) takes(c Call) bool {
	if c.Ref.Kind != Port {
		to, refers := c.Attributes[portID].(Ref)
		if refers = refers && l.refs[to]; refers {
			l.other = append(l.other, c)
		}
		return refers
	}
	after := -1
	for _, group := range list(c.Attributes["security_groups"]) {
		if ref, is := group.(Ref); is {
			if i, waits := l.last[ref]; waits {
				after = max(after, i)
			}
		}
	}
	if after >= 0 {
		l.ports[after], l.refs[c.Ref] = append(l.ports[after], c), true
	}
	return after >= 0
}

// calls are all of these, in order, with the joins of such ports.
func (l *late) calls(joins []Call) (calls []Call) {
	for i, t := range l.turns {
		calls = append(append(calls, t.calls...), l.ports[i]...)
	}
	return slices.Concat(calls, l.other, joins)
}

// split parts calls by whether they come late.
func split(calls []Call, isLate func(Call) bool) (now, later []Call) {
	for _, c := range calls {
		if isLate(c) {
			later = append(later, c)
		} else {
			now = append(now, c)
		}
	}
	return now, later
}
