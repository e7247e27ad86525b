// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// policyPeerFeature classifies the other end of a connection for rules. Addresses that have the
// same groups are of one class: an address has one flow in each direction that asks for it, and a
// class, a block or a port one in each table and priority of rules that it fits. So flows are as
// many as peers and rules, and not as their product.
var policyPeerFeature = &feature{
	number: 22,
	name:   "policy-peer",
	tables: []Table{egressPeer, ingressPeer},
	needed: (*rules).policed,
	peer: func(r *rules, p intent.Peer) {
		space := intent.DefaultRouter
		if p.Space != intent.DefaultRouterName {
			r.dependOn(unitKey{kindRouter, p.Space})
			rt, ok := r.state.Routers().Get(p.Space)
			if !ok || !rt.Private() {
				return // no packet has the address there
			}
			space = zone(rt)
		}
		class := classOf(p.Groups)
		r.dependOn(unitKey{kindUse, classText(class)})
		use := r.useOf(class, p.Groups)
		if use.has(intent.Egress) {
			r.on(egressPeer, 100, inSpace(space), openflow.IPDst(p.Address)).set(regClass.Value(class)).end()
		}
		if use.has(intent.Ingress) {
			r.on(ingressPeer, 100, inSpace(space), openflow.IPSrc(p.Address)).set(regClass.Value(class)).end()
		}
	},
}

// inSpace matches packets with addresses of a router's or the cluster's address space.
func inSpace(z intent.RouterID) openflow.FieldValue { return regSpace.Value(uint64(z)) }

func classText(class uint64) string { return strconv.FormatUint(class, 16) }

// directions are some of Ingress and Egress.
type directions uint8

const bothDirections = directions(1<<intent.Ingress | 1<<intent.Egress)

func (d directions) has(o intent.Direction) bool { return d&(1<<o) != 0 }

// useOf says in which directions rules ask for a class.
func (r *rules) useOf(class uint64, groups []string) directions {
	if use, ok := r.uses[class]; ok {
		return use
	}
	var use directions
	for _, g := range groups {
		if use |= useOfGroup(r.state, g); use == bothDirections {
			break
		}
	}
	r.uses[class] = use
	return use
}

func useOfGroup(s *snapshot, group string) (use directions) {
	for rule := range s.RulesOf(group) {
		if use |= 1 << rule.Direction; use == bothDirections {
			break
		}
	}
	return use
}

// compileClass emits the flows of the class of that text; false if no address has it.
func (r *rules) compileClass(text string) bool {
	class, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return false
	}
	for p := range r.state.peersByClass.By(text) {
		rules := map[string]intent.Rule{}
		for _, g := range p.Groups {
			r.dependencies = append(r.dependencies, unitKey{kindGroup, g})
			for rule := range r.state.RulesOf(g) {
				rules[rule.ID] = rule
			}
		}
		r.fit(sortedRules(rules), (*judged).peer, func(intent.Direction) [][]openflow.FieldValue {
			return [][]openflow.FieldValue{{regClass.Value(class)}}
		})
		return true
	}
	return false
}

func sortedRules(rules map[string]intent.Rule) []intent.Rule {
	list := make([]intent.Rule, 0, len(rules))
	for _, id := range slices.Sorted(maps.Keys(rules)) {
		list = append(list, rules[id])
	}
	return list
}

// compilePrefix emits the flows of the block of that text; false if no rule has it.
func (r *rules) compilePrefix(text string) bool {
	block, err := netip.ParsePrefix(text)
	if err != nil {
		return false
	}
	rules := slices.Collect(r.state.RulesWith(block))
	r.fit(rules, (*judged).peer, func(d intent.Direction) [][]openflow.FieldValue {
		switch {
		case block.Bits() == 0:
			return [][]openflow.FieldValue{{familyOf(block.Addr())}}
		case d == intent.Egress:
			return [][]openflow.FieldValue{{openflow.IPDst(block)}}
		}
		return [][]openflow.FieldValue{{openflow.IPSrc(block)}}
	})
	return len(rules) > 0
}

// compilePortMatch emits the flows of the port match of that text; false if no rule has it.
func (r *rules) compilePortMatch(text string) bool {
	m, err := parsePortMatch(text)
	if err != nil {
		return false
	}
	rules := slices.Collect(r.state.rulesByMatch.By(m.String()))
	r.fit(rules, (*judged).port, func(intent.Direction) [][]openflow.FieldValue { return portFields(m) })
	return len(rules) > 0
}

// portFields are the matches that m stands for, one for each family.
func portFields(m portMatch) (all [][]openflow.FieldValue) {
	v4, v6 := openflow.EthType(openflow.EthTypeIPv4), openflow.EthType(openflow.EthTypeIPv6)
	proto := openflow.IPProto(m.Protocol)
	switch m.Kind {
	case icmpType:
		fields := []openflow.FieldValue{openflow.ICMPv4Type(uint8(m.Value))}
		if m.Mask != intent.AnyICMPCode {
			fields = append(fields, openflow.ICMPv4Code(uint8(m.Mask)))
		}
		if m.Protocol == openflow.IPProtoICMPv6 {
			fields[0] = openflow.ICMPv6Type(uint8(m.Value))
			if m.Mask != intent.AnyICMPCode {
				fields[1] = openflow.ICMPv6Code(uint8(m.Mask))
			}
		}
		return append(all, fields)
	case maskedPort:
		port := openflow.L4DstMask(m.Protocol, m.Value, m.Mask)
		return append(all, []openflow.FieldValue{v4, proto, port}, []openflow.FieldValue{v6, proto, port})
	}
	if m.Protocol != openflow.IPProtoICMPv6 {
		all = append(all, []openflow.FieldValue{v4, proto})
	}
	if m.Protocol != openflow.IPProtoICMP {
		all = append(all, []openflow.FieldValue{v6, proto})
	}
	return all
}

// fit emits the flows of packets that satisfy a clause of each of the rules.
func (r *rules) fit(rules []intent.Rule, clause func(*judged) uint8,
	match func(intent.Direction) [][]openflow.FieldValue,
) {
	var list []*judged
	for _, rule := range rules {
		if j, problem := judge(r.state, rule); problem == "" && !fitsNothing(rule) {
			list = append(list, &j)
		}
	}
	for stage, list := range byStage(list) {
		actions := make([]openflow.Action, len(list))
		for i, j := range list {
			actions[i] = openflow.Conjunction(j.id, clause(j), j.clauses)
		}
		for _, fields := range match(list[0].rule.Direction) {
			r.satisfies(stage, actions, fields...)
		}
	}
}

// stage is a table and a priority of rules.
type stage struct {
	table    Table
	priority uint16
}

// byStage yields the rules of each table and priority, in a fixed order.
func byStage(list []*judged) iter.Seq2[stage, []*judged] {
	return func(yield func(stage, []*judged) bool) {
		stages := map[stage][]*judged{}
		for _, j := range list {
			s := stage{j.table, j.priority}
			stages[s] = append(stages[s], j)
		}
		sorted := slices.SortedFunc(maps.Keys(stages), func(a, b stage) int {
			return cmp.Or(cmp.Compare(a.table.ID, b.table.ID), cmp.Compare(b.priority, a.priority))
		})
		for _, s := range sorted {
			if !yield(s, stages[s]) {
				return
			}
		}
	}
}

// maxConjunctions is how many actions of 16 bytes one message has room for.
const maxConjunctions = 4000

// satisfies adds the flow of packets that satisfy clauses. What does not fit into one goes into
// others, which match bits that are always 0 besides: for Open vSwitch these are other flows, and
// all of them count.
func (r *rules) satisfies(s stage, clauses []openflow.Action, fields ...openflow.FieldValue) {
	for i := 0; len(clauses) > 0; i++ {
		n := min(len(clauses), maxConjunctions)
		when := fields
		if i > 0 {
			when = append(fields[:len(fields):len(fields)], regSubject.Masked(0, uint64(i)<<firstSpare))
		}
		if i >= 1<<spareBits {
			r.problem("more rules have it than flows have room for")
			return
		}
		r.on(s.table, s.priority, when...).do(clauses[:n]...).end()
		clauses = clauses[n:]
	}
}
