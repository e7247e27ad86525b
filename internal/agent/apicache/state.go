// SPDX-License-Identifier: Apache-2.0

package apicache

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/sortedmap"
)

// Objects are those of a kind, by key. Two are compared at the cost of their differences.
type Objects[T any] = sortedmap.Map[T]

// State is what is known at one time. It never changes, and its objects must not be changed.
type State struct {
	Pods       Objects[corev1.Pod] // of this node, by the UID that the container runtime knows
	Nodes      Objects[corev1.Node]
	Namespaces Objects[corev1.Namespace]
	Networks   Objects[v1alpha1.Network]
	Routers    Objects[v1alpha1.Router]
	Blocks     Objects[v1alpha1.AddressBlock]
	// By namespace/name; not those of pods with addresses from blocks.
	Ports       Objects[v1alpha1.Port]
	Pools       Objects[v1alpha1.LoadBalancerPool]
	Definitions Objects[kube.Definition]     // by namespace/name
	FloatingIPs Objects[v1alpha1.FloatingIP] // by namespace/name
	Egresses    Objects[v1alpha1.Egress]
	listed      map[string]bool // by kind
	// By kind; another one when the objects of the kind may be others.
	versions map[string]uint64
}

// The kinds beside those of package kube.
const (
	Pods       = "pods"
	Namespaces = "namespaces"
	// Nodes is in the singular: agents remembered nodes by that name before
	// they remembered anything else.
	Nodes = "node"
)

// Listed says that the API was heard about a kind since the agent has started: what is not there
// does not exist, or is new.
func (s State) Listed(kind string) bool { return s.listed[kind] }

// AnyListed reports whether any kind was listed from the API since the agent started.
func (s State) AnyListed() bool { return len(s.listed) > 0 }

// Pod is the pod of that name that the container runtime knows by that UID; nil if there is none. A
// UID alone is not enough: see wellknown.PodUID.
func (s State) Pod(namespace, name, uid string) *corev1.Pod {
	if pod := s.Pods.Get(uid); pod != nil && pod.Namespace == namespace && pod.Name == name {
		return pod
	}
	return nil
}

// Same reports whether the objects of a kind, and whether the API has told of them, are
// the same in both.
func (s State) Same(other State, kind string) bool { return s.versions[kind] == other.versions[kind] }

// SameListed reports whether the API has told of the same kinds in both.
func (s State) SameListed(other State) bool { return maps.Equal(s.listed, other.listed) }

// NodeList is Nodes as a list, sorted by name.
func (s State) NodeList() []*corev1.Node { return slices.Collect(s.Nodes.Values()) }

// NetworkList is Networks as a list, sorted by name.
func (s State) NetworkList() []*v1alpha1.Network { return slices.Collect(s.Networks.Values()) }

// RouterList is Routers as a list, sorted by name.
func (s State) RouterList() []*v1alpha1.Router { return slices.Collect(s.Routers.Values()) }

// BlockList is Blocks as a list, sorted by name.
func (s State) BlockList() []*v1alpha1.AddressBlock { return slices.Collect(s.Blocks.Values()) }

// PortList is Ports as a list, sorted by namespace and name.
func (s State) PortList() []*v1alpha1.Port { return slices.Collect(s.Ports.Values()) }

// PoolList is Pools as a list, sorted by name.
func (s State) PoolList() []*v1alpha1.LoadBalancerPool { return slices.Collect(s.Pools.Values()) }
