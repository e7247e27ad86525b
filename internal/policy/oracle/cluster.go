// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"cmp"
	"slices"

	"coelan.io/coelan/internal/policyapi"
)

// clusterPolicies decides by the first rule that fits: policies by their priority, their rules as
// they are written. Pass skips the rest of the tier. Which of two policies of the same priority
// comes first is not defined, so there must be none.
func (c *Cluster) clusterPolicies(tier policyapi.Tier, direction string, subject, peer End,
	k Connection,
) (v Verdict, done bool) {
	policies := slices.SortedFunc(slices.Values(c.ClusterNetworkPolicies),
		func(a, b *policyapi.ClusterNetworkPolicy) int {
			return cmp.Compare(a.Spec.Priority, b.Spec.Priority)
		})
	for _, p := range policies {
		if p.Spec.Tier != tier || !c.clusterSubject(p.Spec.Subject, subject) {
			continue
		}
		rules := p.Spec.Ingress
		if direction == Egress {
			rules = p.Spec.Egress
		}
		for i, r := range rules {
			if !c.clusterPeer(slices.Concat(r.From, r.To), peer) || !clusterProtocol(r.Protocols, k) {
				continue
			}
			if r.Action == policyapi.Pass {
				return v, false
			}
			return Verdict{Allowed: r.Action == policyapi.Accept, Tier: string(tier),
				By: []string{rule("ClusterNetworkPolicy", p.Name, i)}}, true
		}
	}
	return v, false
}

func (c *Cluster) clusterSubject(s policyapi.Subject, e End) bool {
	if s.Namespaces != nil {
		return c.inNamespaces(s.Namespaces, e)
	}
	return c.clusterPods(*s.Pods, e)
}

func (c *Cluster) clusterPods(s policyapi.NamespacedPod, e End) bool {
	return c.inNamespaces(&s.NamespaceSelector, e) && selects(&s.PodSelector, e.labels())
}

func (c *Cluster) clusterPeer(peers []policyapi.Peer, e End) bool {
	return slices.ContainsFunc(peers, func(p policyapi.Peer) bool {
		switch {
		case p.Namespaces != nil:
			return c.inNamespaces(p.Namespaces, e)
		case p.Pods != nil:
			return c.clusterPods(*p.Pods, e)
		case p.Nodes != nil:
			return e.Node != nil && selects(p.Nodes, e.Node.Labels)
		}
		return slices.ContainsFunc(p.Networks, func(n string) bool { return contains(n, e.Address) })
	})
}

// clusterProtocol says whether the connection is of one of a rule's protocols; with none given it
// is, for every protocol.
func clusterProtocol(protocols []policyapi.Protocol, k Connection) bool {
	fits := func(number uint8, p *policyapi.ProtocolPorts) bool {
		switch {
		case k.Protocol != number:
			return false
		case p.DestinationPort == nil:
			return true
		case p.DestinationPort.Range != nil:
			return p.DestinationPort.Range.Start <= int32(k.Port) && int32(k.Port) <= p.DestinationPort.Range.End
		}
		return p.DestinationPort.Number == int32(k.Port)
	}
	return len(protocols) == 0 || slices.ContainsFunc(protocols, func(p policyapi.Protocol) bool {
		switch {
		case p.TCP != nil:
			return fits(TCP, p.TCP)
		case p.UDP != nil:
			return fits(UDP, p.UDP)
		case p.SCTP != nil:
			return fits(SCTP, p.SCTP)
		}
		return hasNamedPort(p.DestinationNamedPort, k)
	})
}
