// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"maps"
	"slices"

	"coelan.io/coelan/internal/intent"
)

// affected are the keys of the Subjects of Ports that may be denied something that they were not
// before, and of those that may be allowed something of what was stopped, by the keys of stopped.
func affected(before, after *intent.State, stopped map[string]bool) []string {
	d := intent.Diff(before, after)
	keys := map[string]bool{}
	for _, key := range d.Subjects {
		keys[key] = true
	}
	lost, gained := map[string]bool{}, map[string]bool{} // groups, by any Peer
	for _, key := range d.Peers {
		old, _ := before.Peers().Get(key)
		now, _ := after.Peers().Get(key)
		for _, g := range old.Groups {
			if !slices.Contains(now.Groups, g) {
				lost[g] = true
			}
		}
		for _, g := range now.Groups {
			if !slices.Contains(old.Groups, g) {
				gained[g] = true
			}
		}
	}
	rules, allowing := map[string]bool{}, map[string]bool{}
	for _, id := range d.Rules {
		rules[id] = true
	}
	for g := range lost {
		for r := range after.RulesOf(g) {
			rules[r.ID] = true
		}
	}
	for g := range gained {
		for r := range after.RulesOf(g) {
			if r.Action != intent.Allow {
				rules[r.ID] = true
			} else if len(stopped) > 0 {
				allowing[r.ID] = true
			}
		}
	}
	for id := range rules {
		for s := range after.SubjectsOf(id) {
			keys[s.Key] = true
		}
	}
	for key := range stopped {
		if s, ok := after.Subjects().Get(key); ok && slices.ContainsFunc(s.Rules, func(id string) bool {
			return allowing[id]
		}) {
			keys[key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}
