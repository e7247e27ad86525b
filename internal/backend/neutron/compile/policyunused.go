// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"slices"
	"strings"

	"coelan.io/coelan/internal/intent"
)

// unused makes the groups that are there and that no Port has now, as long as there is what they
// are made of: a node, or the rules of a policy. So a policy's only pod that is replaced finds the
// groups and the ready port that it had, and the policy's peers stay in their groups. Their rules
// are kept as they are to be: a Port may take a ready one at any time.
func (f *firewall) unused() {
	rules := map[string][]intent.Rule{} // by what their policy is called
	for _, ref := range f.Groups {
		if _, made := f.set.Get(ref); made {
			continue
		}
		object, name, _ := strings.Cut(ref.Key, "/")
		switch {
		case ref.Key == groupRef(itselfKey).Key:
			f.fromItself()
		case object == "Node":
			f.unusedOfNode(name)
		case object == "Policy":
			if len(rules) == 0 {
				for r := range f.state.Rules().All() {
					rules[r.Policy.String()] = append(rules[r.Policy.String()], r)
				}
			}
			f.unusedOfPolicy(name, rules)
		}
	}
}

// unusedOfNode makes a group of a node by its name, such as n1 egress.
func (f *firewall) unusedOfNode(name string) {
	node, direction, _ := strings.Cut(name, " ")
	switch direction {
	case directionName(intent.Egress):
		f.toNode(node)
	case directionName(intent.Ingress):
		if !f.Supplemented {
			f.fromNode(node)
		}
	}
}

// unusedOfPolicy makes a group of a policy by its name, as policyGroup makes it. What a name that
// was too long stands for is not found.
func (f *firewall) unusedOfPolicy(name string, rules map[string][]intent.Rule) {
	name, of, some := strings.Cut(name, " of ")
	object, where, elsewhere := strings.Cut(name, " ")
	if key, rest, more := strings.Cut(where, " "); more {
		object, where = object+" "+key, rest
	} else {
		object, where, elsewhere = object+" "+key, "", false
	}
	space, known := intent.DefaultRouterName, true
	if elsewhere {
		space, known = f.spaceNamed(where)
	}
	var these []intent.Rule
	names := strings.Fields(of)
	for _, r := range rules[object] {
		if some && slices.Contains(names, partName(r)) || !some && !forSome(r) {
			these = append(these, r)
		}
	}
	if known && len(these) > 0 && (!some || len(these) == len(names)) {
		f.policyGroup(space, these, !some)
	}
}

// spaceNamed is the space that inSpace calls so.
func (f *firewall) spaceNamed(text string) (space string, known bool) {
	if text == inSpace("")[0] {
		return "", true
	}
	name, in := strings.CutPrefix(text, "in ")
	r, there := f.state.Routers().Get(name)
	return name, in && there && r.Private()
}
