// SPDX-License-Identifier: Apache-2.0

// Package octavia describes load balancers of Octavia: those that Services of the class
// coelan.io/octavia want, those that there are, and the call that brings the latter nearer to the
// former. It does no I/O.
//
// A load balancer, its listeners and its pools are found again by a tag, which the call that makes
// them sets. Nothing without that tag is changed or removed, but for members of the cluster's own
// pools.
package octavia

import (
	"cmp"
	"net/netip"

	"coelan.io/coelan/internal/backend/ovn/names"
)

// ProviderOVN is the provider that makes load balancers rows of OVN.
const ProviderOVN = "ovn"

// Balancer is a load balancer that is wanted.
type Balancer struct {
	Key      string // of its Service: namespace/name
	Provider string
	Subnet   string // id of the subnet of Neutron that its address is of
	// Address is the one that it is made with, and Floating that of its floating IP; not valid:
	// any.
	Address, Floating netip.Addr
	// External is the id of the network of its floating IP; empty: it has none.
	External  string
	Listeners []Listener
	Problems  []Problem
}

// Listener is a port of a Balancer with the pool behind it.
type Listener struct {
	Protocol string // TCP, UDP or SCTP
	Port     uint16
	// Algorithm is how connections are spread; with Sticky a client's go to one member.
	Algorithm string
	Sticky    bool
	// Sources are the only prefixes that are served; none: all.
	Sources []string
	Members []Member // in order
}

// Member is an endpoint.
type Member struct {
	Address netip.Addr
	Port    uint16
	Subnet  string // id of the subnet that the address is of
}

func compareMembers(a, b Member) int {
	return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Subnet, b.Subnet))
}

// Problem is what is not done for a Service, or not as asked for.
type Problem struct{ Reason, Message string }

// tagPrefix begins the tags of what is a cluster's.
const tagPrefix = "coelan.io/owner="

// serviceKind begins the key of an owner.
const serviceKind = "Service/"

// Tag is the tag of the load balancer of a Service, and of its listeners and pools.
func Tag(c names.Cluster, service string) string { return tagPrefix + c.Owner(serviceKind+service) }

// ServiceOf is the Service, as namespace/name, that tags name; false: they are not of the cluster.
func ServiceOf(c names.Cluster, tags []string) (service string, ours bool) {
	prefix := Tag(c, "")
	for _, t := range tags {
		if len(t) > len(prefix) && t[:len(prefix)] == prefix {
			return t[len(prefix):], true
		}
	}
	return "", false
}
