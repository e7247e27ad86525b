// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"

	"coelan.io/coelan/internal/intent"
)

// policyTables are those of one direction, in the order of a packet's way.
type policyTables struct {
	subject, peer, group, admin, adminLater, policy Table
	end                                             Table // where what the direction allows goes on
}

var (
	egressTables = policyTables{egressSubject, egressPeer, egressGroup, egressAdmin, egressAdminLater, egressPolicy,
		ingressSubject}
	ingressTables = policyTables{ingressSubject, ingressPeer, ingressGroup, ingressAdmin, ingressAdminLater,
		ingressPolicy, policyVerdict}
)

func tablesOf(d intent.Direction) policyTables {
	if d == intent.Egress {
		return egressTables
	}
	return ingressTables
}

// Priorities of flows in the tables of rules. AdminTier and BaselineTier have some for each rank of
// a rule, from firstRank down: the stricter of rules of the same rank wins.
const (
	notHere       uint16 = 65535 // the Port has no rules in this table
	policyAllows  uint16 = 65000
	ownNodePasses uint16 = 64000
	policyDenies  uint16 = 63000
	firstRank     uint16 = 60000
	groupAllows   uint16 = 200
	groupDenies   uint16 = 100
)

// What AdminTier and BaselineTier have room for.
const (
	maxPriority   = 1000
	maxNumber     = 25
	laterPriority = 500 // the first in adminLater
)

// maxPlaces is how many rules may share a Slot.
const maxPlaces = 16

// judged is a rule as the tables have it: a conjunction of clauses, of which the first is the
// subject, the second the peer if the rule has any, and the last the port if it has any.
type judged struct {
	rule     intent.Rule
	table    Table
	priority uint16
	next     Table // for what it does not deny
	id       uint32
	clauses  uint8 // 1: it fits whatever the subject sends or receives
}

// judge says how a rule is judged, or why it cannot be: then the Ports that it is for are closed.
func judge(s *snapshot, rule intent.Rule) (j judged, problem string) {
	j = judged{rule: rule, clauses: 1}
	if rule.Direction != intent.Ingress && rule.Direction != intent.Egress {
		return j, fmt.Sprintf("direction %d is not known", rule.Direction)
	}
	if rule.Action < intent.Allow || rule.Action > intent.Pass {
		return j, fmt.Sprintf("action %d is not known", rule.Action)
	}
	if problem = j.stage(tablesOf(rule.Direction)); problem != "" {
		return j, problem
	}
	if !rule.AnyPeer {
		j.clauses++
	}
	if len(rule.Ports) > 0 {
		j.clauses++
	}
	mates := make([]slotMate, 0, 4)
	for o := range s.rulesBySlot.By(slotText(ruleSlot(rule.ID))) {
		mates = append(mates, slotMate{o.Policy.Namespace, o.ID})
	}
	place := placeAmong(mates, slotMate{rule.Policy.Namespace, rule.ID})
	if place >= maxPlaces {
		return j, fmt.Sprintf("more than %d rules share its number", maxPlaces)
	}
	j.id = ruleSlot(rule.ID)<<4 | place
	return j, ""
}

// stage finds the table, the priority and where the packet goes next.
func (j *judged) stage(t policyTables) (problem string) {
	rule := &j.rule
	switch rule.Tier {
	case intent.SecurityGroupTier, intent.NetworkPolicyTier:
		if rule.Action != intent.Allow {
			return fmt.Sprintf("tier %d has no action %d", rule.Tier, rule.Action)
		}
		j.table, j.priority, j.next = t.policy, policyAllows, t.end
		if rule.Tier == intent.SecurityGroupTier {
			j.table, j.priority, j.next = t.group, groupAllows, t.admin
		}
	case intent.AdminTier, intent.BaselineTier:
		if rule.Priority > maxPriority || rule.Number < 1 || rule.Number > maxNumber {
			return fmt.Sprintf("priority %d or number %d is out of range", rule.Priority, rule.Number)
		}
		j.ranked(t)
	default:
		return fmt.Sprintf("tier %d is not known", rule.Tier)
	}
	return ""
}

// ranked is stage for tiers with priorities.
func (j *judged) ranked(t policyTables) {
	rule := &j.rule
	rank := rule.Priority*maxNumber + uint16(rule.Number) - 1
	if rule.Tier == intent.BaselineTier { // after which there is no other, so Pass is Allow
		j.table, j.priority, j.next = t.policy, firstRank-2*rank, t.end
		if rule.Action == intent.Deny {
			j.priority++
		}
		return
	}
	j.table, j.next = t.admin, t.end
	if rule.Priority >= laterPriority {
		j.table = t.adminLater
		rank -= laterPriority * maxNumber
	}
	j.priority = firstRank - 3*rank
	switch rule.Action {
	case intent.Deny:
		j.priority += 2
	case intent.Pass:
		j.priority++
		j.next = t.policy
	}
}

// peer and port are the numbers of the clauses.
func (j *judged) peer() uint8 { return 2 }
func (j *judged) port() uint8 { return j.clauses }

// verdict is what the rule decides.
func (j *judged) verdict(port string) Verdict {
	return Verdict{
		Action: j.rule.Action, Direction: j.rule.Direction, Tier: j.rule.Tier,
		Policies: []intent.PolicyRef{j.rule.Policy}, Rule: j.rule.Number, RuleID: j.rule.ID, Port: port,
	}
}

// fitsNothing says that the rule fits no peer at all.
func fitsNothing(rule intent.Rule) bool {
	return !rule.AnyPeer && len(rule.Groups) == 0 && len(rule.Blocks) == 0
}
