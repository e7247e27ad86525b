// SPDX-License-Identifier: Apache-2.0

// Package policy resolves the selectors of policies: which Ports a rule is for, and which addresses
// its peers have. It has the state of the whole cluster and computes the part that each node needs.
// It does no I/O and reads no clock.
package policy

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/internal/intent"
)

// Policy is a NetworkPolicy, a ClusterNetworkPolicy or a SecurityGroup, with validated values.
type Policy struct {
	Ref  intent.PolicyRef // the key
	Tier intent.Tier
	// Priority is 0 to 1000 in AdminTier and BaselineTier, else 0.
	Priority uint16
	// Subjects are the Ports that it is for: those of any of these. Those of a SecurityGroup are
	// the Ports that name it; this field is ignored then.
	Subjects []Selector
	// Ingress and Egress say in which directions a NetworkPolicy isolates its subjects.
	Ingress, Egress bool
	Rules           []Rule
}

// Rule is a rule before its selectors are resolved.
type Rule struct {
	Direction intent.Direction
	Number    int // in its direction's list, from 1
	Action    intent.Action

	AnyPeer bool
	Peers   []Selector // or in any of these
	Blocks  []netip.Prefix
	// AnyPort, or one of Ports. A rule with neither fits nothing.
	AnyPort bool
	Ports   []Port
	// Closed says that the rule cannot be understood in full, and why. It is then as closed as it
	// can be: an Allow or a Pass fits nothing, a Deny what its other fields say, which are as wide
	// as need be.
	Closed string
}

// Port is a range of ports, or a named one.
type Port struct {
	intent.PortRange
	// Name of the receiver's container port; then First and Last mean nothing, and the protocol
	// only if it is not 0.
	Name string
}

// Selector selects Ports or nodes. A labels.Selector that is nil selects nothing.
type Selector struct {
	// Nodes, if set, selects nodes by their labels, and the other fields mean nothing.
	Nodes labels.Selector
	// SecurityGroup, if set, selects the Ports that name it, and the other
	// fields mean nothing: namespace/name.
	SecurityGroup string
	// Namespace is the one that the Ports are in; empty: those that Namespaces selects.
	Namespace  string
	Namespaces labels.Selector
	Pods       labels.Selector // of the labels of pods, or of Ports that are not pods'
	// Family leaves out what has no address of one family, and the addresses of the other: as a
	// SecurityGroup's rule is of one family. It means nothing in a Policy's Subjects.
	Family Family
}

// Family of addresses.
type Family uint8

// The families. The zero value is AnyFamily.
const (
	AnyFamily Family = 0
	IPv4      Family = 4
	IPv6      Family = 6
)

// Has says whether an address is of the family.
func (f Family) Has(a netip.Addr) bool { return f == AnyFamily || (f == IPv4) == a.Is4() }

// Namespace is what policies see of one.
type Namespace struct {
	Name   string // the key
	Labels labels.Set
}

// Node is what policies see of one.
type Node struct {
	Name   string // the key
	Labels labels.Set
	// Its own and those of its gateway interface: the addresses that pods see its processes by.
	Addresses []netip.Addr
}

// Endpoint is a pod, or a Port that is not a pod's.
type Endpoint struct {
	// Key is that of its Subject: intent.PodSubject or intent.PortSubject.
	Key       string
	Namespace string
	Name      string
	Labels    labels.Set
	Node      string // on which its Subject is wanted; empty: on none yet
	// HostNetwork says that it uses its node's network: no selector of Ports selects it.
	HostNetwork bool
	Places      []Place
	NamedPorts  []NamedPort
	// SecurityGroups that it names, namespace/name, sorted. Those that there are
	// not close the Port.
	SecurityGroups []string
}

// Place is where a Port has an address, as in intent.Peer.
type Place struct {
	Space   string
	Address netip.Addr
	// Secondary says that it is of a further interface of a pod, of which labels say nothing: only
	// selectors of a SecurityGroup select it.
	Secondary bool
}

// NamedPort is a container port with a name.
type NamedPort struct {
	Name     string
	Protocol uint8
	Port     uint16
}
