// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/policyapi"
)

func (w *World) drawPolicies(t *rapid.T) {
	for i := range rapid.IntRange(0, 4).Draw(t, "NetworkPolicies") {
		w.NetworkPolicies = append(w.NetworkPolicies, drawNetworkPolicy(t, fmt.Sprint("np", i)))
	}
	priorities := rapid.SliceOfNDistinct(rapid.Int32Range(0, 1000), 6, 6, rapid.ID[int32]).Draw(t, "priorities")
	for i := range rapid.IntRange(0, 6).Draw(t, "ClusterNetworkPolicies") {
		w.ClusterNetworkPolicies = append(w.ClusterNetworkPolicies,
			drawClusterPolicy(t, fmt.Sprint("cnp", i), priorities[i]))
	}
	for _, namespace := range namespaces {
		for _, name := range []string{"g1", "g2"} {
			w.SecurityGroups = append(w.SecurityGroups, &v1alpha1.SecurityGroup{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				Spec: v1alpha1.SecurityGroupSpec{Rules: rapid.SliceOfN(rapid.Custom(drawGroupRule), 0, 8).Draw(t,
					"group rules")},
			})
		}
	}
}

func drawSelector(t *rapid.T, key string, values ...string) metav1.LabelSelector {
	other := metav1.LabelSelectorRequirement{Key: "extra",
		Operator: pick(t, "operator", metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}
	listed := metav1.LabelSelectorRequirement{
		Key: key, Operator: pick(t, "operator of values", metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn),
		Values: rapid.SliceOfNDistinct(rapid.SampledFrom(values), 1, 2, rapid.ID[string]).Draw(t, "values"),
	}
	equal := map[string]string{key: pick(t, "value", values...)}
	return pick(t, "selector",
		metav1.LabelSelector{}, metav1.LabelSelector{},
		metav1.LabelSelector{MatchLabels: equal},
		metav1.LabelSelector{MatchLabels: map[string]string{"extra": ""}},
		metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{other}},
		metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{listed}},
		metav1.LabelSelector{MatchLabels: equal, MatchExpressions: []metav1.LabelSelectorRequirement{other, listed}},
	)
}

func drawPodSelector(t *rapid.T) metav1.LabelSelector { return drawSelector(t, "app", "web", "db") }

func drawNamespaceSelector(t *rapid.T) metav1.LabelSelector {
	if sometimes(t, "by name", 4) {
		return drawSelector(t, corev1.LabelMetadataName, namespaces...)
	}
	return drawSelector(t, "team", "x", "y")
}

func drawNetworkPolicy(t *rapid.T, name string) *networkingv1.NetworkPolicy {
	o := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: pick(t, "namespace", namespaces...),
		Name: name}}
	o.Spec.PodSelector = drawPodSelector(t)
	o.Spec.PolicyTypes = pick(t, "policyTypes", nil,
		[]networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		[]networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		[]networkingv1.PolicyType{networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress})
	for range rapid.IntRange(0, 2).Draw(t, "ingress rules") {
		o.Spec.Ingress = append(o.Spec.Ingress,
			networkingv1.NetworkPolicyIngressRule{From: drawNetworkPeers(t), Ports: drawNetworkPorts(t)})
	}
	for range rapid.IntRange(0, 2).Draw(t, "egress rules") {
		o.Spec.Egress = append(o.Spec.Egress,
			networkingv1.NetworkPolicyEgressRule{To: drawNetworkPeers(t), Ports: drawNetworkPorts(t)})
	}
	return o
}

func drawNetworkPeers(t *rapid.T) []networkingv1.NetworkPolicyPeer {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) networkingv1.NetworkPolicyPeer {
		pods, spaces := drawPodSelector(t), drawNamespaceSelector(t)
		return pick(t, "peer",
			networkingv1.NetworkPolicyPeer{PodSelector: &pods},
			networkingv1.NetworkPolicyPeer{NamespaceSelector: &spaces},
			networkingv1.NetworkPolicyPeer{PodSelector: &pods, NamespaceSelector: &spaces},
			networkingv1.NetworkPolicyPeer{IPBlock: drawBlock(t)},
		)
	}), 0, 2).Draw(t, "peers")
}

// blocks are prefixes of addresses that there are, and parts of them.
var blocks = map[string][]string{
	"0.0.0.0/0":          {"10.0.0.0/8", "10.244.1.0/24", "192.0.2.1/32", "203.0.113.0/24", "10.244.2.10/31"},
	"10.244.0.0/16":      {"10.244.1.0/24", "10.244.1.10/32", "10.244.2.12/30", "10.244.2.0/24", "10.244.2.64/26"},
	"10.244.1.7/24":      {"10.244.1.10/31", "10.244.1.0/28", "10.244.1.8/29"},
	"10.9.0.0/16":        {"10.9.0.128/25", "10.9.0.18/32", "10.9.0.19/32"},
	"203.0.113.0/24":     {"203.0.113.96/28", "203.0.113.9/32"},
	"192.0.2.2/32":       nil,
	"::/0":               {"fd00::/16", "2001:db8::/32", "fd00:244:1::/64"},
	"fd00:244::/32":      {"fd00:244:1::/64", "fd00:244:2::10/124", "fd00:244:2::12/128"},
	"fd00:9::/64":        {"fd00:9::18/128", "fd00:9::100/120"},
	"2001:db8:113::/48":  {"2001:db8:113::9/128"},
	"2001:db8:2::1/128":  nil,
	"10.244.1.11/32":     nil,
	"fd00:244:1::11/128": nil,
}

func drawCIDR(t *rapid.T) string {
	return pick(t, "cidr", "0.0.0.0/0", "10.244.0.0/16", "10.244.1.7/24", "10.9.0.0/16", "203.0.113.0/24",
		"192.0.2.2/32", "::/0", "fd00:244::/32",
		"fd00:9::/64", "2001:db8:113::/48", "2001:db8:2::1/128", "10.244.1.11/32", "fd00:244:1::11/128")
}

func drawBlock(t *rapid.T) *networkingv1.IPBlock {
	b := &networkingv1.IPBlock{CIDR: drawCIDR(t)}
	if parts := blocks[b.CIDR]; len(parts) > 0 {
		b.Except = rapid.SliceOfN(rapid.SampledFrom(parts), 0, 3).Draw(t, "except")
	}
	return b
}

func drawNetworkPorts(t *rapid.T) []networkingv1.NetworkPolicyPort {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) networkingv1.NetworkPolicyPort {
		var p networkingv1.NetworkPolicyPort
		if protocol := pick(t, "protocol", "", corev1.ProtocolTCP, corev1.ProtocolUDP,
			corev1.ProtocolSCTP); protocol != "" {
			p.Protocol = &protocol
		}
		number, end := intstr.FromInt32(pick(t, "port", int32(80), 53, 8080)), int32(8080)
		name := intstr.FromString(pick(t, "name", "http", "dns"))
		switch pick(t, "kind of port", "all", "number", "number", "range", "name", "name") {
		case "number":
			p.Port = &number
		case "range":
			p.Port, p.EndPort = &number, &end
		case "name":
			p.Port = &name
		}
		return p
	}), 0, 2).Draw(t, "ports")
}

func drawClusterPolicy(t *rapid.T, name string, priority int32) *policyapi.ClusterNetworkPolicy {
	o := &policyapi.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyapi.ClusterNetworkPolicySpec{
			Tier: pick(t, "tier", policyapi.AdminTier, policyapi.BaselineTier), Priority: priority,
		}}
	if rapid.Bool().Draw(t, "subject by namespaces") {
		s := drawNamespaceSelector(t)
		o.Spec.Subject.Namespaces = &s
	} else {
		o.Spec.Subject.Pods = &policyapi.NamespacedPod{NamespaceSelector: drawNamespaceSelector(t),
			PodSelector: drawPodSelector(t)}
	}
	rules := func(label string, egress bool) (list []policyapi.Rule) {
		for range rapid.IntRange(0, 4).Draw(t, label) {
			list = append(list, drawClusterRule(t, egress))
		}
		return list
	}
	o.Spec.Ingress, o.Spec.Egress = rules("ingress rules", false), rules("egress rules", true)
	return o
}

// A named port and a peer without any exclude each other.
func drawClusterRule(t *rapid.T, egress bool) policyapi.Rule {
	r := policyapi.Rule{Action: pick(t, "action", policyapi.Accept, policyapi.Deny, policyapi.Pass)}
	others := egress && rapid.Bool().Draw(t, "nodes or networks")
	peers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) policyapi.Peer {
		namespaces, nodes := drawNamespaceSelector(t), drawSelector(t, "zone", "n1", "n2")
		list := []policyapi.Peer{
			{Namespaces: &namespaces},
			{Pods: &policyapi.NamespacedPod{NamespaceSelector: drawNamespaceSelector(t),
				PodSelector: drawPodSelector(t)}},
		}
		if others {
			list = append(list, policyapi.Peer{Nodes: &nodes},
				policyapi.Peer{Networks: rapid.SliceOfNDistinct(rapid.Custom(drawCIDR), 1, 3, rapid.ID[string]).Draw(t,
					"networks")})
		}
		return pick(t, "peer", list...)
	}), 1, 2).Draw(t, "peers")
	if egress {
		r.To = peers
	} else {
		r.From = peers
	}
	if rapid.Bool().Draw(t, "with protocols") {
		r.Protocols = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) policyapi.Protocol {
			return drawProtocol(t, !others)
		}), 1, 2).Draw(t, "protocols")
	}
	return r
}

func drawProtocol(t *rapid.T, named bool) policyapi.Protocol {
	port := &policyapi.Port{Number: pick(t, "port", int32(80), 53, 8080)}
	if sometimes(t, "range", 3) {
		port = &policyapi.Port{Range: &policyapi.PortRange{Start: pick(t, "start", int32(1), 53, 80),
			End: pick(t, "end", int32(81), 8080, 65535)}}
	}
	list := []policyapi.Protocol{
		{TCP: &policyapi.ProtocolPorts{DestinationPort: port}}, {UDP: &policyapi.ProtocolPorts{DestinationPort: port}},
		{SCTP: &policyapi.ProtocolPorts{DestinationPort: port}},
	}
	if named {
		list = append(list, policyapi.Protocol{DestinationNamedPort: pick(t, "name", "http", "dns")})
	}
	return pick(t, "protocol", list...)
}

func drawGroupRule(t *rapid.T) v1alpha1.SecurityGroupRule {
	r := v1alpha1.SecurityGroupRule{
		Direction: pick(t, "direction", v1alpha1.RuleIngress, v1alpha1.RuleEgress),
		EtherType: pick(t, "etherType", v1alpha1.EtherIPv4, v1alpha1.EtherIPv6),
	}
	number := func(i int32) *int32 { return &i }
	six := r.EtherType == v1alpha1.EtherIPv6
	switch protocol := pick(t, "protocol", "", "any", "tcp", "udp", "17", "132", "icmp", "gre"); protocol {
	case "tcp", "udp", "17", "132":
		r.Protocol = protocol
		if rapid.Bool().Draw(t, "ports") {
			r.PortRangeMin, r.PortRangeMax = number(pick(t, "first", int32(53), 80)),
				number(pick(t, "last", int32(80), 8080))
		}
	case "icmp":
		r.Protocol = "icmp"
		if six {
			r.Protocol = pick(t, "name of ICMPv6", "icmp", "icmpv6", "ipv6-icmp", "58")
		}
		if rapid.Bool().Draw(t, "type") {
			r.PortRangeMin = number(pick(t, "type", int32(8), 128))
		}
		if r.PortRangeMin != nil && rapid.Bool().Draw(t, "code") {
			r.PortRangeMax = number(pick(t, "code", int32(0), 1))
		}
	default:
		r.Protocol = protocol
	}
	switch pick(t, "remote", "", "", "prefix", "group", "group") {
	case "prefix":
		if r.RemoteIPPrefix = pick(t, "prefix", "10.244.0.0/16", "0.0.0.0/0", "10.9.0.0/24", "192.0.2.1/32"); six {
			r.RemoteIPPrefix = pick(t, "prefix", "fd00:244::/32", "::/0", "fd00:9::/64", "2001:db8:2::1/128")
		}
	case "group":
		r.RemoteGroup = pick(t, "group", "g1", "g2", "a/g1", "b/g2", "c/g1")
	}
	return r
}
