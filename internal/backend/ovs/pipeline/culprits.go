// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"coelan.io/coelan/internal/intent"
)

// Culprits are the objects that an owner of rules in bridge.Desired is compiled from: without one
// of them the rules would be others, or would not be there. Of flows that many policies share these
// are all of them. There is none for what belongs to no object, such as the flows that every node
// has.
func Culprits(s *intent.State, owner string) []intent.Ref {
	kind, key, _ := strings.Cut(owner, "/")
	switch kind {
	case "port":
		if _, id, ok := strings.Cut(key, "#"); ok {
			return []intent.Ref{{Kind: intent.KindPort, Key: id}}
		}
	case "block":
		network, prefix, _ := strings.Cut(key, "/")
		return []intent.Ref{{Kind: intent.KindBlock, Key: network + " " + prefix}}
	case "neighbour":
		network, _, _ := strings.Cut(key, " ")
		return []intent.Ref{{Kind: intent.KindNetwork, Key: network}}
	case "peer":
		if space, address, ok := strings.Cut(key, "/"); ok {
			if p, ok := s.Peers().Get(space + " " + address); ok {
				return policiesOf(rulesOfPeer(s, p))
			}
		}
	case "peers":
		if class, err := strconv.ParseUint(key, 16, 64); err == nil {
			for p := range s.Peers().All() {
				if classOf(p.Groups) == class {
					return policiesOf(rulesOfPeer(s, p)) // all of a class have the same groups
				}
			}
		}
	case "rule":
		if rule, ok := s.Rules().Get(key); ok {
			return []intent.Ref{rule.Policy.Ref()}
		}
	case "policy-block":
		if block, err := netip.ParsePrefix(key); err == nil {
			return policiesOf(s.RulesWith(block))
		}
	case "policy-port":
		if m, err := parsePortMatch(key); err == nil {
			return policiesOf(rulesAt(s, m))
		}
	}
	if k, ok := plainOwners[kind]; ok {
		return []intent.Ref{{Kind: k, Key: key}}
	}
	return nil
}

// plainOwners are the owners that are a kind and an object's key.
var plainOwners = map[string]intent.Kind{
	"router": intent.KindRouter, "network": intent.KindNetwork, "node": intent.KindNode,
	"service": intent.KindService, "service-range": intent.KindServiceRange, "floating-ip": intent.KindFloatingIP,
	"gateway": intent.KindGatewayAddress, "egress-address": intent.KindEgressAddress,
}

func rulesOfPeer(s *intent.State, p intent.Peer) iter.Seq[intent.Rule] {
	return func(yield func(intent.Rule) bool) {
		for _, g := range p.Groups {
			for rule := range s.RulesOf(g) {
				if !yield(rule) {
					return
				}
			}
		}
	}
}

func rulesAt(s *intent.State, m portMatch) iter.Seq[intent.Rule] {
	return func(yield func(intent.Rule) bool) {
		for rule := range s.Rules().All() {
			if slices.Contains(portMatches(rule), m) && !yield(rule) {
				return
			}
		}
	}
}

func policiesOf(rules iter.Seq[intent.Rule]) (list []intent.Ref) {
	seen := map[intent.PolicyRef]bool{}
	for rule := range rules {
		if !seen[rule.Policy] {
			seen[rule.Policy] = true
			list = append(list, rule.Policy.Ref())
		}
	}
	return list
}
