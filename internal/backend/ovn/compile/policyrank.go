// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"maps"
	"slices"

	"coelan.io/coelan/internal/intent"
)

// Priorities of ACLs: this version of OVN asks all ACLs of a direction together, so the tiers are
// ranges, the first one that decides on top.
const (
	priorityExempt   = 32700 // what policies do not judge
	priorityNode     = 32600 // the Port's own node
	priorityClosed   = 32500
	priorityTogether = 32400 // and down, of groups of policies that depend on each other
	priorityGroups   = 32400 // SecurityGroups of Ports without other policies
	priorityNoGroup  = 32300
	priorityAdmin    = 31000 // and down to 19300
	priorityAllow    = 19000 // NetworkPolicies
	priorityIsolated = 18000
	priorityBaseline = 17000 // and down to 5300
)

// A policy's priority has room for 26 numbers of rules with 3 actions each, and there is room for
// 150 priorities that are in use. Those of policies beyond share the last one, in which what denies
// comes first.
const (
	actionsOfNumber = 3
	numbersOfRank   = 26
	maxRanks        = 150
)

// ranks are the priorities of policies that rules of a tier have, in order.
type ranks struct {
	uses   map[intent.Tier]map[uint16]int // how many rules have a priority
	sorted map[intent.Tier][]uint16
}

func newRanks() ranks {
	return ranks{map[intent.Tier]map[uint16]int{}, map[intent.Tier][]uint16{}}
}

// update follows rules, and reports whether ranks of others differ.
func (r ranks) update(from, to *intent.State, d intent.Delta) bool {
	for _, id := range slices.Compact(slices.Sorted(slices.Values(d.Rules))) {
		if from != nil {
			if old, ok := from.Rules().Get(id); ok {
				r.count(old, -1)
			}
		}
		if now, ok := to.Rules().Get(id); ok {
			r.count(now, 1)
		}
	}
	changed := false
	for tier, uses := range r.uses {
		maps.DeleteFunc(uses, func(_ uint16, n int) bool { return n <= 0 })
		now := slices.Sorted(maps.Keys(uses))
		changed = changed || !slices.Equal(now, r.sorted[tier])
		r.sorted[tier] = now
	}
	return changed
}

func (r ranks) count(rule intent.Rule, n int) {
	if rule.Tier != intent.AdminTier && rule.Tier != intent.BaselineTier {
		return
	}
	if r.uses[rule.Tier] == nil {
		r.uses[rule.Tier] = map[uint16]int{}
	}
	r.uses[rule.Tier][rule.Priority] += n
}

// priority is that of a rule's ACL, in a group of its policy alone; crowded says that the rule's
// policy shares it with others that should come before or after.
func (r ranks) priority(rule intent.Rule) (priority int, crowded bool) {
	top := priorityBaseline
	switch rule.Tier {
	case intent.SecurityGroupTier:
		return priorityGroups, false
	case intent.NetworkPolicyTier:
		return priorityAllow, false
	case intent.AdminTier:
		top = priorityAdmin
	}
	rank, _ := slices.BinarySearchFunc(r.sorted[rule.Tier], rule.Priority, cmp.Compare[uint16])
	number := min(rule.Number, numbersOfRank-1)
	if crowded = rank >= maxRanks-1 && len(r.sorted[rule.Tier]) > maxRanks; crowded {
		rank, number = maxRanks-1, numbersOfRank-1
	}
	return top - (rank*numbersOfRank+number)*actionsOfNumber - strictness(rule.Action), crowded
}
