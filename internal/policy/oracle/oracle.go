// SPDX-License-Identifier: Apache-2.0

// Package oracle computes what policies decide on a connection, from the API objects. It is for
// tests: a second implementation that shares no code with the enforced one. It follows the
// specifications of the kinds as directly as possible, without regard to speed:
// k8s.io/api/networking/v1 for NetworkPolicies, sigs.k8s.io/network-policy-api v1alpha2 for
// ClusterNetworkPolicies, and docs/use/policy.md and docs/use/security-groups.md for SecurityGroups
// and for how all go together. It is given the two ends, and does not find them by their addresses.
// Objects must be ones that the API server accepts.
package oracle

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/policyapi"
)

// Cluster is what there is.
type Cluster struct {
	Namespaces             []*corev1.Namespace
	Nodes                  []*corev1.Node
	Pods                   []*corev1.Pod
	Ports                  []*v1alpha1.Port
	NetworkPolicies        []*networkingv1.NetworkPolicy
	ClusterNetworkPolicies []*policyapi.ClusterNetworkPolicy
	SecurityGroups         []*v1alpha1.SecurityGroup
}

// End is one of a connection's two: a pod's interface, a user's Port, a node, or a host outside if
// it is none of these.
type End struct {
	Pod       *corev1.Pod
	Interface string // of the pod

	Port *v1alpha1.Port

	Node *corev1.Node
	// Masked says that the node sends with its own address what came to a Service from outside.
	Masked bool

	Address netip.Addr
}

// PoliciesApply reports whether policies are for the end: whether it is a pod's or a Port.
func (e End) PoliciesApply() bool { return e.Pod != nil || e.Port != nil }

// primary says whether the labels of a pod, or of a Port, speak of the end.
func (e End) primary() bool { return e.Port != nil || e.Pod != nil && e.Interface == "eth0" }

// Same says whether both are of the same pod, or the same Port.
func (e End) Same(o End) bool {
	return e.Pod != nil && e.Pod == o.Pod || e.Port != nil && e.Port == o.Port
}

func (e End) namespace() string {
	if e.Pod != nil {
		return e.Pod.Namespace
	}
	return e.Port.Namespace
}

func (e End) labels() map[string]string {
	if e.Pod != nil {
		return e.Pod.Labels
	}
	return e.Port.Labels
}

// NodeName is that of the node on which a pod or a Port is.
func (e End) NodeName() string {
	if e.Pod != nil {
		return e.Pod.Spec.NodeName
	}
	return e.Port.Status.Node
}

// groups are the SecurityGroups that the end names, namespace/name.
func (e End) groups() []string {
	var names []string
	switch {
	case e.Port != nil:
		names = e.Port.Spec.SecurityGroups
	case e.Pod != nil:
		names = strings.Split(e.Pod.Annotations[v1alpha1.AnnotationSecurityGroups], ",")
	}
	var groups []string
	for _, name := range names {
		if name = strings.TrimSpace(name); name != "" {
			groups = append(groups, e.namespace()+"/"+name)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// Connection is the first packet of one.
type Connection struct {
	Source, Destination End
	Protocol            uint8
	Port                uint16 // of the receiver, if the protocol has ports
	Type, Code          uint8  // if it is ICMP
}

// The protocols that policies know more of than their numbers.
const (
	ICMP   = 1
	TCP    = 6
	UDP    = 17
	ICMPv6 = 58
	SCTP   = 132
)

// Verdict on a connection.
type Verdict struct {
	Allowed bool
	// Direction and Tier in which it ended; the tier is empty if no policy decided, or
	// the Port is closed.
	Direction, Tier string
	// By are the rules that decided, any of them: "NetworkPolicy shop/web, rule 2". If none did,
	// the policies of which none allows the connection, all of them: "NetworkPolicy shop/web".
	By []string
}

// The directions and tiers of Verdicts.
const (
	Ingress        = "ingress"
	Egress         = "egress"
	SecurityGroups = "SecurityGroups"
	Admin          = "Admin"
	Namespaced     = "NetworkPolicies"
	Baseline       = "Baseline"
)

// Judge says whether the connection comes to be: its sender may open it, and its
// receiver may get it.
func (c *Cluster) Judge(k Connection) Verdict {
	v := Verdict{Allowed: true}
	if k.Source.PoliciesApply() {
		v = c.Egress(k)
	}
	if v.Allowed && k.Destination.PoliciesApply() {
		v = c.Ingress(k)
	}
	return v
}

// Egress says whether the sender, a pod or a Port, may open the connection.
func (c *Cluster) Egress(k Connection) Verdict {
	v := c.tiers(Egress, k.Source, k.Destination, k)
	v.Direction = Egress
	return v
}

// Ingress says whether the receiver, a pod or a Port, may get the connection.
func (c *Cluster) Ingress(k Connection) Verdict {
	v := c.tiers(Ingress, k.Destination, k.Source, k)
	v.Direction = Ingress
	return v
}

func (c *Cluster) tiers(direction string, subject, peer End, k Connection) Verdict {
	ownNode := peer.Node != nil && peer.Node.Name == subject.NodeName()
	switch {
	case subject.Same(peer): // it may always reach itself
		return Verdict{Allowed: true}
	case direction == Ingress && ownNode && !peer.Masked: // its node may always reach it
		return Verdict{Allowed: true}
	}
	if v, done := c.securityGroups(direction, subject, peer, k); done {
		return v
	}
	if !subject.primary() { // the other kinds are not about it
		return Verdict{Allowed: true}
	}
	if v, done := c.clusterPolicies(policyapi.AdminTier, direction, subject, peer, k); done {
		return v
	}
	if v, done := c.networkPolicies(direction, subject, peer, k, ownNode); done {
		return v
	}
	if v, done := c.clusterPolicies(policyapi.BaselineTier, direction, subject, peer, k); done {
		return v
	}
	return Verdict{Allowed: true}
}

// selects is a label selector's semantics.
func selects(s *metav1.LabelSelector, labels map[string]string) bool {
	for key, value := range s.MatchLabels {
		if got, has := labels[key]; !has || got != value {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		value, has := labels[e.Key]
		listed := has && slices.Contains(e.Values, value)
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			if !listed {
				return false
			}
		case metav1.LabelSelectorOpNotIn:
			if listed {
				return false
			}
		case metav1.LabelSelectorOpExists:
			if !has {
				return false
			}
		case metav1.LabelSelectorOpDoesNotExist:
			if has {
				return false
			}
		}
	}
	return true
}

// inNamespaces says whether the end is a pod's first interface, or a Port, of a
// namespace with such labels.
func (c *Cluster) inNamespaces(s *metav1.LabelSelector, e End) bool {
	return e.primary() && slices.ContainsFunc(c.Namespaces, func(n *corev1.Namespace) bool {
		return n.Name == e.namespace() && selects(s, n.Labels)
	})
}

// hasNamedPort says whether the connection goes to a container port of that name, at
// the pod's first interface.
func hasNamedPort(name string, k Connection) bool {
	return k.Destination.Pod != nil && k.Destination.primary() &&
		slices.ContainsFunc(k.Destination.Pod.Spec.Containers, func(o corev1.Container) bool {
			return slices.ContainsFunc(o.Ports, func(p corev1.ContainerPort) bool {
				return p.Name == name && protocolIs(p.Protocol, k) && uint16(p.ContainerPort) == k.Port //nolint:gosec // a port
			})
		})
}

// protocolIs says whether the connection is of the protocol; TCP if none is given.
func protocolIs(p corev1.Protocol, k Connection) bool {
	switch p {
	case corev1.ProtocolUDP:
		return k.Protocol == UDP
	case corev1.ProtocolSCTP:
		return k.Protocol == SCTP
	}
	return k.Protocol == TCP
}

func contains(cidr string, a netip.Addr) bool { return netip.MustParsePrefix(cidr).Contains(a) }

// rule names one.
func rule(kind, policy string, index int) string {
	return fmt.Sprintf("%s %s, rule %d", kind, policy, index+1)
}

func (k Connection) String() string {
	return fmt.Sprintf("%s to %s, protocol %d, port %d, type %d, code %d", k.Source, k.Destination, k.Protocol, k.Port,
		k.Type, k.Code)
}

func (e End) String() string {
	switch {
	case e.Pod != nil:
		return fmt.Sprintf("pod %s/%s %s at %s", e.Pod.Namespace, e.Pod.Name, e.Interface, e.Address)
	case e.Port != nil:
		return fmt.Sprintf("port %s/%s at %s", e.Port.Namespace, e.Port.Name, e.Address)
	case e.Node != nil:
		return fmt.Sprintf("node %s (masked: %v) at %s", e.Node.Name, e.Masked, e.Address)
	}
	return "outside " + e.Address.String()
}
