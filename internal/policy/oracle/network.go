// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// networkPolicies decides for those that any NetworkPolicy isolates in the direction:
// what no rule of any of them allows is denied. To its own node a pod may always speak,
// as far as NetworkPolicies go.
func (c *Cluster) networkPolicies(direction string, subject, peer End, k Connection,
	ownNode bool,
) (v Verdict, done bool) {
	var isolating, allowing []string
	for _, p := range c.NetworkPolicies {
		if p.Namespace != subject.namespace() || !selects(&p.Spec.PodSelector, subject.labels()) ||
			!isolates(p, direction) {
			continue
		}
		name := p.Namespace + "/" + p.Name
		isolating = append(isolating, "NetworkPolicy "+name)
		if direction == Ingress {
			for i, r := range p.Spec.Ingress {
				if c.networkPeer(p, r.From, peer) && networkPort(r.Ports, k) {
					allowing = append(allowing, rule("NetworkPolicy", name, i))
				}
			}
			continue
		}
		for i, r := range p.Spec.Egress {
			if c.networkPeer(p, r.To, peer) && networkPort(r.Ports, k) {
				allowing = append(allowing, rule("NetworkPolicy", name, i))
			}
		}
	}
	switch {
	case len(isolating) == 0:
		return v, false
	case direction == Egress && ownNode:
		return Verdict{Allowed: true, Tier: Namespaced}, true
	case len(allowing) > 0:
		return Verdict{Allowed: true, Tier: Namespaced, By: allowing}, true
	}
	return Verdict{Tier: Namespaced, By: isolating}, true
}

// isolates: without policyTypes a policy is always about ingress, and about egress if it
// has rules of that.
func isolates(p *networkingv1.NetworkPolicy, direction string) bool {
	if len(p.Spec.PolicyTypes) == 0 {
		return direction == Ingress || len(p.Spec.Egress) > 0
	}
	if direction == Ingress {
		return slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
	}
	return slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
}

// networkPeer says whether the other end is one of a rule's; with none given it is.
func (c *Cluster) networkPeer(p *networkingv1.NetworkPolicy, peers []networkingv1.NetworkPolicyPeer, e End) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(o networkingv1.NetworkPolicyPeer) bool {
		switch {
		case o.IPBlock != nil:
			return contains(o.IPBlock.CIDR, e.Address) &&
				!slices.ContainsFunc(o.IPBlock.Except, func(x string) bool { return contains(x, e.Address) })
		case !e.primary():
			return false
		case o.NamespaceSelector == nil:
			return e.namespace() == p.Namespace && selects(o.PodSelector, e.labels())
		}
		return c.inNamespaces(o.NamespaceSelector, e) && (o.PodSelector == nil || selects(o.PodSelector, e.labels()))
	})
}

// networkPort says whether the connection is to one of a rule's ports; with none given it
// is, for every protocol.
func networkPort(ports []networkingv1.NetworkPolicyPort, k Connection) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		if p.Protocol == nil && k.Protocol != TCP || p.Protocol != nil && !protocolIs(*p.Protocol, k) {
			return false
		}
		switch {
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.String:
			return hasNamedPort(p.Port.StrVal, k)
		case p.EndPort != nil:
			return p.Port.IntVal <= int32(k.Port) && int32(k.Port) <= *p.EndPort
		}
		return p.Port.IntVal == int32(k.Port)
	})
}
