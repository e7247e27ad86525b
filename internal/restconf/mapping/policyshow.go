// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// showPolicy is the entry of a policy.
func showPolicy(p *networkingv1.NetworkPolicy) policyNode {
	n := policyNode{UUID: policyUUID(p), Name: p.Name, Namespace: p.Namespace}
	n.Spec.PodSelector = showSelector(&p.Spec.PodSelector)
	for i, rule := range p.Spec.Ingress {
		r := ingressNode{place: place{i}}
		r.Rule.Ports, r.Rule.From = showPolicyPorts(rule.Ports), showPeers(rule.From)
		n.Spec.Ingress = append(n.Spec.Ingress, r)
	}
	for i, rule := range p.Spec.Egress {
		r := egressNode{place: place{i}}
		r.Rule.Ports, r.Rule.To = showPolicyPorts(rule.Ports), showPeers(rule.To)
		n.Spec.Egress = append(n.Spec.Egress, r)
	}
	for _, t := range p.Spec.PolicyTypes {
		n.Spec.PolicyTypes = append(n.Spec.PolicyTypes, strings.ToLower(string(t)))
	}
	return n
}

func showPolicyPorts(ports []networkingv1.NetworkPolicyPort) []portNode {
	var list []portNode
	for i, p := range ports {
		n := portNode{place: place{i}}
		n.Port.Protocol, n.Port.EndPort = string(text(p.Protocol)), text(p.EndPort)
		if p.Port != nil {
			n.Port.Port = p.Port.String()
		}
		list = append(list, n)
	}
	return list
}

func showPeers(peers []networkingv1.NetworkPolicyPeer) []peerNode {
	var list []peerNode
	for i, p := range peers {
		n := peerNode{place: place{i}}
		if p.PodSelector != nil {
			n.Peer.Pods = new(showSelector(p.PodSelector))
		}
		if p.NamespaceSelector != nil {
			n.Peer.Namespaces = new(showSelector(p.NamespaceSelector))
		}
		if p.IPBlock != nil {
			n.Peer.Block = &blockNode{CIDR: p.IPBlock.CIDR, Except: p.IPBlock.Except}
		}
		list = append(list, n)
	}
	return list
}

func showSelector(s *metav1.LabelSelector) (n selectorNode) {
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		n.Labels = append(n.Labels, labelNode{Key: key, Value: s.MatchLabels[key]})
	}
	for i, e := range s.MatchExpressions {
		n.Expressions = append(n.Expressions, expressionNode{
			place: place{i}, Key: e.Key, Operator: string(e.Operator), Values: e.Values,
		})
	}
	return n
}
