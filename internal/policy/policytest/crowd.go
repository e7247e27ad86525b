// SPDX-License-Identifier: Apache-2.0

// Package policytest makes large clusters for tests and measurements of policies.
package policytest

import (
	"encoding/binary"
	"net/netip"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
)

// Crowd is a cluster of many namespaces with a few pods each, as Antrea measures itself by: each namespace has four pods in two
// applications and three NetworkPolicies, of which one denies everything and the others let each application talk to itself.
// The pods are spread over the nodes.
type Crowd struct {
	Nodes      []policy.Node
	Namespaces []policy.Namespace
	Endpoints  []policy.Endpoint
	Policies   []policy.Policy
}

const applications, replicas = 2, 2

// NewCrowd returns the one of so many namespaces and nodes.
func NewCrowd(namespaces, nodes int) Crowd {
	var c Crowd
	for i := range nodes {
		c.Nodes = append(c.Nodes, policy.Node{
			Name: NodeName(i), Labels: labels.Set{"kubernetes.io/hostname": NodeName(i)}, Addresses: []netip.Addr{address(172<<24|16<<16, i)},
		})
	}
	for i := range namespaces {
		c.add("ns-"+strconv.Itoa(i), nodes)
	}
	return c
}

// NodeName is the name of the node of that number, from 0.
func NodeName(i int) string { return "node-" + strconv.Itoa(i) }

func address(base uint32, i int) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, base+uint32(i))))
}

// add adds a namespace of that name with what is in it.
func (c *Crowd) add(name string, nodes int) {
	c.Namespaces = append(c.Namespaces, policy.Namespace{Name: name, Labels: labels.Set{"kubernetes.io/metadata.name": name, "app": name}})
	c.Policies = append(c.Policies, networkPolicy(name, "default-deny-all", labels.Everything()))
	for app := range applications {
		number := strconv.Itoa(app + 1)
		for range replicas {
			i := len(c.Endpoints)
			c.Endpoints = append(c.Endpoints, policy.Endpoint{
				Key: intent.PodSubject("00000000-0000-0000-0000-" + strconv.Itoa(100_000_000_000+i)), Namespace: name, Name: "pod" + strconv.Itoa(i),
				Labels: labels.Set{"app-" + number: "scale-" + number, "pod-template-hash": number + name},
				Node:   NodeName(i * 7919 % nodes),
				Places: []policy.Place{{Space: intent.DefaultRouterName, Address: address(10<<24, i)}},
			})
		}
		same := labels.SelectorFromSet(labels.Set{"app-" + number: "scale-" + number})
		c.Policies = append(c.Policies, networkPolicy(name, "np-"+number, same, policy.Rule{
			Direction: intent.Ingress, Number: 1, Action: intent.Allow, Peers: []policy.Selector{{Namespace: name, Pods: same}}, AnyPort: true,
		}))
	}
}

func networkPolicy(namespace, name string, pods labels.Selector, rules ...policy.Rule) policy.Policy {
	return policy.Policy{
		Ref:  intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: namespace, Name: name},
		Tier: intent.NetworkPolicyTier, Ingress: true, Egress: true, Rules: rules,
		Subjects: []policy.Selector{{Namespace: namespace, Pods: pods}},
	}
}

// Load gives everything to an Engine, as if it came from a controller's caches.
func (c Crowd) Load(e *policy.Engine) {
	for _, n := range c.Nodes {
		e.SetNode(n)
	}
	for _, n := range c.Namespaces {
		e.SetNamespace(n)
	}
	for _, p := range c.Endpoints {
		e.SetEndpoint(p)
	}
	for _, p := range c.Policies {
		e.SetPolicy(p)
	}
}
