// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"maps"
	"slices"

	"coelan.io/coelan/internal/intent"
)

// affected are the keys of the Subjects whose Ports may be denied something that they were not before.
func affected(before, after *intent.State) []string {
	d := intent.Diff(before, after)
	keys := map[string]bool{}
	for _, key := range d.Subjects {
		keys[key] = true
	}
	rules := map[string]bool{}
	for _, id := range d.Rules {
		rules[id] = true
	}
	for _, key := range d.Peers {
		old, _ := before.Peers().Get(key)
		now, _ := after.Peers().Get(key)
		for _, g := range old.Groups {
			if !slices.Contains(now.Groups, g) {
				addRules(rules, after, g, func(intent.Rule) bool { return true })
			}
		}
		for _, g := range now.Groups {
			if !slices.Contains(old.Groups, g) {
				addRules(rules, after, g, func(r intent.Rule) bool { return r.Action != intent.Allow })
			}
		}
	}
	for id := range rules {
		for s := range after.SubjectsOf(id) {
			keys[s.Key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

func addRules(to map[string]bool, s *intent.State, group string, matter func(intent.Rule) bool) {
	for r := range s.RulesOf(group) {
		if matter(r) {
			to[r.ID] = true
		}
	}
}
