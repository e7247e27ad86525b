// SPDX-License-Identifier: Apache-2.0

// Package policytest makes large clusters for tests and measurements of policies.
package policytest

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/translate/policies"
)

// Crowd is a cluster of many namespaces with a few pods each, as Antrea measures itself
// by: each namespace has four pods in two applications and three NetworkPolicies, of which
// one denies everything and the others let each application talk to itself. The pods are
// spread over the nodes.
type Crowd struct {
	Nodes      []*corev1.Node
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
	Policies   []*networkingv1.NetworkPolicy
}

const applications, replicas = 2, 2

// NewCrowd returns the one of so many namespaces and nodes.
func NewCrowd(namespaces, nodes int) Crowd {
	var c Crowd
	// Each node has an equal part of 10.0.0.0/8.
	shift := 24 - bits.Len(uint(nodes-1)) //nolint:gosec // more than none
	for i := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName(i),
			Labels: map[string]string{"kubernetes.io/hostname": NodeName(i)}}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address(172<<24|16<<16, i)}}
		n.Spec.PodCIDRs = []string{address(10<<24, i<<shift) + "/" + strconv.Itoa(32-shift)}
		c.Nodes = append(c.Nodes, n)
	}
	for i := range namespaces {
		c.add("ns-"+strconv.Itoa(i), nodes, shift)
	}
	return c
}

// NodeName is the name of the node of that number, from 0.
func NodeName(i int) string { return "node-" + strconv.Itoa(i) }

func address(base uint32, i int) string {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, base+uint32(i)))).String()
}

// add adds a namespace of that name with what is in it.
func (c *Crowd) add(name string, nodes, shift int) {
	const anyNumber = 7919 // that has no divisor in common with the nodes'
	c.Namespaces = append(c.Namespaces, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{"kubernetes.io/metadata.name": name, "app": name}},
	})
	c.Policies = append(c.Policies, networkPolicy(name, "default-deny-all", nil, nil))
	for app := range applications {
		number := strconv.Itoa(app + 1)
		for range replicas {
			i := len(c.Pods)
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: name, Name: "pod-" + strconv.Itoa(i),
				UID:    types.UID("00000000-0000-0000-0000-" + strconv.Itoa(100_000_000_000+i)),
				Labels: map[string]string{"app-" + number: "scale-" + number, "pod-template-hash": number + name},
			}}
			node := i * anyNumber % nodes
			p.Spec.NodeName = NodeName(node)
			p.Status.Phase, p.Status.PodIP = corev1.PodRunning, address(10<<24, node<<shift+i/nodes+2)
			p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
			c.Pods = append(c.Pods, p)
		}
		same := map[string]string{"app-" + number: "scale-" + number}
		c.Policies = append(c.Policies,
			networkPolicy(name, "np-"+number, same, []networkingv1.NetworkPolicyIngressRule{{
				From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: same}}},
			}}))
	}
}

func networkPolicy(namespace, name string, pods map[string]string,
	rules []networkingv1.NetworkPolicyIngressRule,
) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: pods}, Ingress: rules,
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		},
	}
}

// Controller computes what nodes have to know from objects of the API.
type Controller struct {
	*policy.Engine
	endpoints *policies.Endpoints
}

// NewController returns one that knows nothing.
func NewController() *Controller {
	return &Controller{policy.NewEngine(), policies.NewEndpoints()}
}

// Load gives it all objects.
func (c *Controller) Load(crowd Crowd) {
	for _, n := range crowd.Nodes {
		c.SetNode(policies.Node(n, nil))
		c.endpoints.SetNode(n)
	}
	for _, n := range crowd.Namespaces {
		c.SetNamespace(policies.Namespace(n))
	}
	for _, p := range crowd.Pods {
		c.endpoints.SetPod(p)
	}
	c.apply()
	for _, p := range crowd.Policies {
		translated, _ := policies.NetworkPolicy(p)
		c.SetPolicy(translated)
	}
}

// SetPod gives it a pod.
func (c *Controller) SetPod(p *corev1.Pod) {
	c.endpoints.SetPod(p)
	c.apply()
}

func (c *Controller) apply() {
	set, gone := c.endpoints.Changes()
	for _, key := range gone {
		c.DeleteEndpoint(key)
	}
	for _, p := range set {
		c.SetEndpoint(p)
	}
}

// Relabelled is the pod with the labels of the other application of its namespace.
func Relabelled(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	l := maps.Clone(p.Labels)
	for app := range applications {
		number, other := strconv.Itoa(app+1), strconv.Itoa(applications-app)
		if _, ok := p.Labels["app-"+number]; ok {
			delete(l, "app-"+number)
			l["app-"+other] = "scale-" + other
		}
	}
	p.Labels = l
	return p
}
