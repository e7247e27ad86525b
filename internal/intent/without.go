// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Ref names an object of a State, or a policy, of which a State has rules.
type Ref struct {
	Kind Kind
	// Key is the object's in its table; of a policy namespace/name, or name.
	Key string
}

// Kind is the kind of object that a Ref names. That of a policy is its PolicyKind.
type Kind string

// The kinds.
const (
	KindPort         Kind = "Port"
	KindService      Kind = "Service"
	KindNetwork      Kind = "Network"
	KindRouter       Kind = "Router"
	KindNode         Kind = "Node"
	KindBlock        Kind = "AddressBlock"
	KindServiceRange Kind = "ServiceCIDR"
	KindFloatingIP   Kind = "FloatingIP"
	// KindGatewayAddress is an AddressBlock for a Router's gateway.
	KindGatewayAddress Kind = "Gateway address"
	// KindEgressAddress is an AddressBlock for addresses that fail over.
	KindEgressAddress Kind = "Egress address"
	KindEgress        Kind = "Egress"
)

// Ref names the policy.
func (p PolicyRef) Ref() Ref {
	kind, key, _ := strings.Cut(p.String(), " ")
	return Ref{Kind(kind), key}
}

// Policy is the policy that the Ref names; false if it names another object.
func (r Ref) Policy() (p PolicyRef, ok bool) {
	switch p.Kind = PolicyKind(r.Kind); p.Kind {
	case NetworkPolicy, ClusterNetworkPolicy, SecurityGroup:
		if namespace, name, namespaced := strings.Cut(r.Key, "/"); namespaced {
			p.Namespace, p.Name = namespace, name
		} else {
			p.Name = r.Key
		}
		return p, true
	}
	return PolicyRef{}, false
}

// String is how people name the object: "Service default/web".
func (r Ref) String() string { return string(r.Kind) + " " + r.Key }

// Compare orders by kind and key.
func (r Ref) Compare(o Ref) int {
	return cmp.Or(cmp.Compare(r.Kind, o.Kind), cmp.Compare(r.Key, o.Key))
}

// RulesOfPolicy yields the rules of a policy, by ID.
func (s *State) RulesOfPolicy(p PolicyRef) func(yield func(Rule) bool) {
	return s.rules.by(rulesByPolicy, p.String())
}

// Vital says that nothing of this node works without the object.
func (s *State) Vital(r Ref) bool {
	switch r.Kind {
	case KindNode:
		return r.Key == s.local.Node
	case KindNetwork:
		return r.Key == DefaultNetworkName
	case KindRouter:
		return r.Key == DefaultRouterName
	}
	return false
}

// Describe writes out all of an object, with what its flows depend on most, so that two States in
// which it is the same have the same text; empty: the State does not have it.
func (s *State) Describe(r Ref) string {
	if p, ok := r.Policy(); ok {
		var b strings.Builder
		for rule := range s.RulesOfPolicy(p) {
			fmt.Fprintf(&b, "%+v\n", rule)
		}
		return b.String()
	}
	switch r.Kind {
	case KindPort:
		p, ok := s.ports.Get(r.Key)
		subject, _ := s.subjects.Get(p.SubjectKey())
		return text(p, ok) + text(subject, ok) + s.describeNetwork(p.Network)
	case KindNetwork:
		return s.describeNetwork(r.Key)
	}
	if k := kindNamed(r.Kind); k != nil {
		return k.describe(&s.tables, r.Key)
	}
	return ""
}

// kindNamed is the kind that Refs have by that name; nil if there is none.
func kindNamed(name Kind) kind {
	i := slices.IndexFunc(kinds, func(k kind) bool { return name != "" && k.ref() == name })
	if i < 0 {
		return nil
	}
	return kinds[i]
}

func (s *State) describeNetwork(name string) string {
	n, ok := s.networks.Get(name)
	if !ok {
		return ""
	}
	return text(n, ok) + text(s.routers.Get(n.Router))
}

func text[T any](o T, ok bool) string {
	if !ok {
		return ""
	}
	return fmt.Sprintf("%+v\n", o)
}

// Without is the State without some objects. The Ports that a left-out policy is for are closed,
// for the reason given: what the policy would have denied must not pass. Revision and Replaced are
// those of s.
func (s *State) Without(refs map[Ref]string) *State {
	if len(refs) == 0 {
		return s
	}
	tx := &Tx{tables: s.tables}
	for _, r := range slices.SortedFunc(maps.Keys(refs), Ref.Compare) {
		tx.leaveOut(s, r, refs[r])
	}
	return &State{revision: s.revision, replaced: s.replaced, tables: tx.tables}
}

func (tx *Tx) leaveOut(s *State, r Ref, why string) {
	if p, ok := r.Policy(); ok {
		for rule := range s.RulesOfPolicy(p) {
			for subject := range s.SubjectsOf(rule.ID) {
				tx.closeSubject(subject.Key, why)
			}
			tx.DeleteRule(rule.ID)
		}
		return
	}
	if k := kindNamed(r.Kind); k != nil {
		k.remove(&tx.tables, r.Key)
	}
}

// closeSubject closes a subject, unless it is.
func (tx *Tx) closeSubject(key, why string) {
	if subject, ok := tx.subjects.Get(key); ok && subject.Closed == "" {
		subject.Closed, subject.Rules = why, nil
		tx.SetSubject(subject)
	}
}
