// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/translate"
)

// NetworkPolicyRef names a NetworkPolicy.
func NetworkPolicyRef(namespace, name string) intent.PolicyRef {
	return intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: namespace, Name: name}
}

// NetworkPolicy translates one. What cannot be read allows nothing: a peer or a port is left out of
// its rule, which then has fewer. If it is not known for which pods the policy is, it isolates all
// that it could be for, and allows nothing.
func NetworkPolicy(o *networkingv1.NetworkPolicy) (policy.Policy, []translate.Problem) {
	t := &policyReader{object: "networkpolicy " + o.Namespace + "/" + o.Name, room: maxBlocks}
	p := policy.Policy{Ref: NetworkPolicyRef(o.Namespace, o.Name), Tier: intent.NetworkPolicyTier}
	pods, closed := t.subject("spec.podSelector", &o.Spec.PodSelector)
	p.Subjects = []policy.Selector{{Namespace: o.Namespace, Pods: pods}}
	p.Ingress, p.Egress = t.policyTypes(o)
	if p.Ingress {
		for i, r := range o.Spec.Ingress {
			p.Rules = append(p.Rules, t.networkRule(o.Namespace, intent.Ingress, i, r.From, r.Ports))
		}
	}
	if p.Egress {
		for i, r := range o.Spec.Egress {
			p.Rules = append(p.Rules, t.networkRule(o.Namespace, intent.Egress, i, r.To, r.Ports))
		}
	}
	if closed != "" {
		for i := range p.Rules {
			p.Rules[i].Closed = closed
		}
	}
	return p, t.problems
}

// policyReader reads one policy.
type policyReader struct {
	object   string
	problems []translate.Problem
	room     int // for prefixes
}

func (t *policyReader) report(reason translate.Reason, field, value, text string) {
	t.problems = append(t.problems,
		translate.Problem{Object: t.object, Field: field, Value: value, Reason: reason, Text: text})
}

// policyTypes says in which directions a policy isolates: both, if it names an unknown one.
func (t *policyReader) policyTypes(o *networkingv1.NetworkPolicy) (ingress, egress bool) {
	if len(o.Spec.PolicyTypes) == 0 {
		return true, len(o.Spec.Egress) > 0
	}
	for i, typ := range o.Spec.PolicyTypes {
		switch typ {
		case networkingv1.PolicyTypeIngress:
			ingress = true
		case networkingv1.PolicyTypeEgress:
			egress = true
		default:
			t.report(translate.Malformed, fmt.Sprintf("spec.policyTypes[%d]", i), string(typ),
				"is not Ingress or Egress, so the policy isolates its pods in both directions; correct it")
			ingress, egress = true, true
		}
	}
	return ingress, egress
}

// readSelector is what a selector of labels selects. Of several faults it always reports the same
// one, because another text would count as a new problem.
func readSelector(s *metav1.LabelSelector) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err == nil {
		return selector, nil
	}
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		if _, err := labels.NewRequirement(key, selection.Equals, []string{s.MatchLabels[key]}); err != nil {
			return nil, err
		}
	}
	return nil, err
}

// subject reads the selector of the pods that a policy is for. One that cannot be read selects at
// least the pods that it could mean, and closed says why.
func (t *policyReader) subject(field string, s *metav1.LabelSelector) (_ labels.Selector, closed string) {
	selector, err := readSelector(s)
	if err == nil {
		return selector, ""
	}
	closed = field + ": " + err.Error()
	t.report(translate.Malformed, field, "",
		err.Error()+"; the policy is for all pods that the rest of the selector selects, and allows nothing; correct the selector")
	rest := labels.NewSelector()
	for key, value := range s.MatchLabels {
		one, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: map[string]string{key: value}})
		rest = alsoSelecting(rest, one, err)
	}
	for _, e := range s.MatchExpressions {
		one, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{e},
		})
		rest = alsoSelecting(rest, one, err)
	}
	return rest, closed
}

func alsoSelecting(s, more labels.Selector, err error) labels.Selector {
	if err != nil {
		return s
	}
	requirements, _ := more.Requirements()
	return s.Add(requirements...)
}

func (t *policyReader) networkRule(namespace string, d intent.Direction, i int, peers []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort,
) policy.Rule {
	field, end := fmt.Sprintf("spec.ingress[%d]", i), "from"
	if d == intent.Egress {
		field, end = fmt.Sprintf("spec.egress[%d]", i), "to"
	}
	r := policy.Rule{Direction: d, Number: i + 1, Action: intent.Allow, AnyPeer: len(peers) == 0,
		AnyPort: len(ports) == 0}
	for j, peer := range peers {
		t.networkPeer(fmt.Sprintf("%s.%s[%d]", field, end, j), namespace, peer, &r)
	}
	r.Blocks = ipam.Disjoint(r.Blocks)
	for j, port := range ports {
		if p, ok := t.networkPort(fmt.Sprintf("%s.ports[%d]", field, j), port); ok {
			r.Ports = append(r.Ports, p)
		}
	}
	r.Ports = sortPorts(r.Ports)
	return r
}

// networkPeer adds a peer to a rule, unless it cannot be read.
func (t *policyReader) networkPeer(field, namespace string, peer networkingv1.NetworkPolicyPeer, r *policy.Rule) {
	const none = "; the rule allows nothing for it"
	switch {
	case peer.IPBlock != nil && (peer.PodSelector != nil || peer.NamespaceSelector != nil):
		t.report(translate.Malformed, field, "",
			"ipBlock and selectors exclude each other"+none+"; make two peers of it")
	case peer.IPBlock != nil:
		blocks, ok := t.ipBlock(field+".ipBlock", peer.IPBlock)
		if ok {
			r.Blocks = append(r.Blocks, blocks...)
		}
	case peer.PodSelector == nil && peer.NamespaceSelector == nil:
		t.report(translate.Missing, field, "", "there is no selector and no ipBlock"+none+"; name one")
	default:
		s := policy.Selector{Namespace: namespace, Pods: labels.Everything()}
		var err error
		if peer.NamespaceSelector != nil {
			s.Namespace = ""
			if s.Namespaces, err = readSelector(peer.NamespaceSelector); err != nil {
				t.report(translate.Malformed, field+".namespaceSelector", "", err.Error()+none+"; correct it")
				return
			}
		}
		if peer.PodSelector != nil {
			if s.Pods, err = readSelector(peer.PodSelector); err != nil {
				t.report(translate.Malformed, field+".podSelector", "", err.Error()+none+"; correct it")
				return
			}
		}
		r.Peers = append(r.Peers, s)
	}
}

// ipBlock is what is left of a block; false, and a problem, if that cannot be said.
func (t *policyReader) ipBlock(field string, b *networkingv1.IPBlock) ([]netip.Prefix, bool) {
	const none = "; the rule allows nothing for this block"
	prefix, ok := parseBlock(b.CIDR)
	if !ok {
		t.report(translate.Malformed, field+".cidr", b.CIDR,
			"is not a CIDR"+none+"; write it as 10.0.0.0/8 or fd00::/8")
		return nil, false
	}
	var excepted []netip.Prefix
	for i, text := range b.Except {
		at := fmt.Sprintf("%s.except[%d]", field, i)
		w, ok := parseBlock(text)
		switch {
		case !ok:
			t.report(translate.Malformed, at, text, "is not a CIDR"+none+"; write it as 10.0.0.0/8 or fd00::/8")
			return nil, false
		case !w.Overlaps(prefix) || w.Bits() < prefix.Bits():
			t.report(translate.Malformed, at, text,
				"is not a part of "+prefix.String()+none+"; except what is in the block")
			return nil, false
		}
		excepted = append(excepted, w)
	}
	blocks, ok := without(prefix, excepted, t.room)
	if !ok {
		t.report(translate.TooMany, field, b.CIDR,
			fmt.Sprintf("and what it excepts make more than the %d prefixes that a policy may have%s; except fewer",
				maxBlocks, none))
		return nil, false
	}
	t.room -= len(blocks)
	return blocks, true
}

func (t *policyReader) networkPort(field string, p networkingv1.NetworkPolicyPort) (policy.Port, bool) {
	const none = "; the rule allows nothing for it"
	protocol := uint8(intent.TCP)
	if p.Protocol != nil {
		number, ok := translate.ProtocolOf(*p.Protocol)
		if !ok {
			t.report(translate.Malformed, field+".protocol", string(*p.Protocol),
				"is not TCP, UDP or SCTP"+none+"; correct it")
			return policy.Port{}, false
		}
		protocol = uint8(number)
	}
	switch {
	case p.Port == nil && p.EndPort != nil:
		t.report(translate.Malformed, field+".endPort", fmt.Sprint(*p.EndPort),
			"is the end of nothing"+none+"; set port as well")
	case p.Port == nil:
		return policy.Port{PortRange: allPorts(protocol)}, true
	case p.Port.Type == intstr.String:
		if errs := validation.IsValidPortName(p.Port.StrVal); len(errs) > 0 {
			t.report(translate.Malformed, field+".port", p.Port.StrVal, "is not the name of a port"+none+"; correct it")
		} else if p.EndPort != nil {
			t.report(translate.Malformed, field+".endPort", fmt.Sprint(*p.EndPort),
				"is after a port with a name"+none+"; write the port as a number")
		} else {
			return policy.Port{PortRange: intent.PortRange{Protocol: protocol}, Name: p.Port.StrVal}, true
		}
	case !translate.IsPort(p.Port.IntVal):
		t.report(translate.Malformed, field+".port", fmt.Sprint(p.Port.IntVal),
			"is not a port"+none+"; it is 1 to 65535")
	case p.EndPort == nil:
		port := uint16(p.Port.IntVal) //nolint:gosec // 1 to 65535
		return policy.Port{PortRange: intent.PortRange{Protocol: protocol, First: port, Last: port}}, true
	case !translate.IsPort(*p.EndPort) || *p.EndPort < p.Port.IntVal:
		t.report(translate.Malformed, field+".endPort", fmt.Sprint(*p.EndPort),
			fmt.Sprintf("is not a port from %d on%s; it is the last of the range", p.Port.IntVal, none))
	default:
		return policy.Port{PortRange: intent.PortRange{
			Protocol: protocol, First: uint16(p.Port.IntVal), Last: uint16(*p.EndPort), //nolint:gosec // 1 to 65535
		}}, true
	}
	return policy.Port{}, false
}
