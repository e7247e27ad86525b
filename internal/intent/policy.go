// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"net/netip"
	"slices"
	"strings"
)

// PolicyMode says whether policies are enforced.
type PolicyMode string

// The modes. The zero value is UnenforcedPolicies.
const (
	EnforcedPolicies   PolicyMode = "enforced" // a Port without a Subject is closed
	UnenforcedPolicies PolicyMode = "off"      // everything passes
)

// PolicyRef names the object that a rule is of.
type PolicyRef struct {
	Kind      PolicyKind
	Namespace string // empty for objects of the cluster
	Name      string
}

// PolicyKind is the kind of such an object.
type PolicyKind string

// The kinds.
const (
	NetworkPolicy        PolicyKind = "NetworkPolicy"        // networking.k8s.io/v1
	ClusterNetworkPolicy PolicyKind = "ClusterNetworkPolicy" // policy.networking.k8s.io/v1alpha2
	SecurityGroup        PolicyKind = "SecurityGroup"        // coelan.io
)

// String is how people name the object: "NetworkPolicy default/web-deny".
func (p PolicyRef) String() string {
	if p.Namespace == "" {
		return string(p.Kind) + " " + p.Name
	}
	return string(p.Kind) + " " + p.Namespace + "/" + p.Name
}

// Compare orders by kind, namespace and name.
func (p PolicyRef) Compare(o PolicyRef) int {
	return compareStrings([...]string{string(p.Kind), p.Namespace, p.Name},
		[...]string{string(o.Kind), o.Namespace, o.Name})
}

func compareStrings(a, b [3]string) int { return slices.Compare(a[:], b[:]) }

// Direction of a connection's first packet, seen from the Port that a rule is for.
type Direction uint8

// The directions.
const (
	Ingress Direction = 1 // to the Port
	Egress  Direction = 2 // from the Port
)

// Tier is a stage of policy. A connection passes all of them, in this order, in the sender's
// direction Egress and then in the receiver's direction Ingress.
type Tier uint8

// The tiers.
const (
	// SecurityGroupTier denies what no rule of the Port's SecurityGroups allows; what
	// is allowed goes on.
	SecurityGroupTier Tier = 1
	// AdminTier decides by the first rule that fits: Allow ends the evaluation of the direction,
	// Pass leads to the tier after the next. What no rule fits goes on.
	AdminTier Tier = 2
	// NetworkPolicyTier denies what no rule of those that isolate the Port allows. An isolated
	// Port's connections end here.
	NetworkPolicyTier Tier = 3
	// BaselineTier is as AdminTier, for Ports that are not isolated in the direction. What no rule
	// fits is allowed.
	BaselineTier Tier = 4
)

// Action of a rule.
type Action uint8

// The actions. SecurityGroupTier and NetworkPolicyTier have Allow only.
const (
	Allow Action = 1
	Deny  Action = 2
	Pass  Action = 3
)

// Rule is one rule of a policy: which peers may or may not, at which ports. To which Ports it
// applies is told by Subjects.
type Rule struct {
	// ID is the key: kind/namespace/name/direction/number, and what tells the parts of a rule with
	// named ports apart.
	ID        string
	Policy    PolicyRef
	Number    int // of the rule in its direction's list, from 1
	Direction Direction
	Tier      Tier
	// Priority of the policy in AdminTier and BaselineTier, 0 to 1000; the lower wins, then the
	// lower Number (at most 25). If two policies have the same, Deny wins.
	Priority uint16
	Action   Action

	// AnyPeer says that the rule is for all peers; else a peer is in one of Groups or in one of
	// Blocks. A rule with none of the three matches nothing.
	AnyPeer bool
	Groups  []string       // sorted
	Blocks  []netip.Prefix // masked, sorted, disjoint; what is excepted has been cut out
	// Ports of the receiver; none: all protocols and ports.
	Ports []PortRange // sorted
}

// PortRange is a protocol's ports.
type PortRange struct {
	Protocol uint8 // TCP, UDP, SCTP, or another IP protocol number of a SecurityGroup's rule
	// 0 to 65535: all; for protocols without ports always. For ICMP type and code: see ICMP.
	First, Last uint16
	// ICMP says that First is the ICMP type, and Last the code or AnyICMPCode.
	ICMP bool
}

// AnyICMPCode is a PortRange's Last for all codes.
const AnyICMPCode = 0xffff

// Subject is how one Port of this node is governed. A Port that no Subject is known for is closed:
// nothing but its node and replies pass.
type Subject struct {
	// Key is PodSubject, StaticPodSubject or PortSubject.
	Key string
	// Rules that apply, by ID, sorted.
	Rules []string
	// IngressIsolation and EgressIsolation are the NetworkPolicies that isolate the Port in the
	// direction, sorted; with none it is not isolated.
	IngressIsolation, EgressIsolation []PolicyRef
	// SecurityGroups of the Port, sorted; with none SecurityGroupTier lets everything pass.
	SecurityGroups []PolicyRef
	// Closed says why the Port is to be closed although it is known; empty: it is not. Such as a
	// SecurityGroup that does not exist.
	Closed string
}

// PodSubject is the key of the Subject of a pod's Ports, by the UID that the API server gave it.
func PodSubject(uid string) string { return "pod/" + uid }

// StaticPodSubject is that of a pod that kubelet has read from a file. The API knows its UID by an
// annotation only, which any user may write on any pod: so the pod's name is part of the key.
func StaticPodSubject(namespace, name, uid string) string {
	return "static/" + namespace + "/" + name + "/" + uid
}

// IsStaticUID says whether kubelet gave a pod that UID, and not the API server: 32 hexadecimal
// digits without hyphens.
func IsStaticUID(uid string) bool {
	const digits = 32
	return len(uid) == digits && strings.Trim(uid, "0123456789abcdef") == ""
}

// PortSubject is the key of the Subject of a Port that is not a pod's.
func PortSubject(namespace, name string) string { return "port/" + namespace + "/" + name }

// SubjectKey is the key of the Port's Subject.
func (p Port) SubjectKey() string {
	switch {
	case p.Interface == "":
		return PortSubject(p.Namespace, p.Pod)
	case IsStaticUID(p.UID):
		return StaticPodSubject(p.Namespace, p.Pod, p.UID)
	}
	return PodSubject(p.UID)
}

// Peer is an address that a rule's Groups may have.
type Peer struct {
	// Space is the name of the private Router in which the address means something;
	// DefaultRouterName for addresses of the cluster: those of shared Routers' Ports, node
	// addresses of private ones', and nodes'.
	Space   string
	Address netip.Addr
	Groups  []string // sorted, not empty; those that some Rule of the State has
}

func (r Rule) key() string { return r.ID }

func (r Rule) equal(o Rule) bool {
	return r.ID == o.ID && r.Policy == o.Policy && r.Number == o.Number && r.Direction == o.Direction &&
		r.Tier == o.Tier &&
		r.Priority == o.Priority && r.Action == o.Action && r.AnyPeer == o.AnyPeer &&
		slices.Equal(r.Groups, o.Groups) && slices.Equal(r.Blocks, o.Blocks) && slices.Equal(r.Ports, o.Ports)
}

func (r Rule) clone() Rule {
	r.Groups, r.Blocks, r.Ports = slices.Clone(r.Groups), slices.Clone(r.Blocks), slices.Clone(r.Ports)
	return r
}

func (s Subject) key() string { return s.Key }

func (s Subject) equal(o Subject) bool {
	return s.Key == o.Key && s.Closed == o.Closed && slices.Equal(s.Rules, o.Rules) &&
		slices.Equal(s.IngressIsolation, o.IngressIsolation) && slices.Equal(s.EgressIsolation, o.EgressIsolation) &&
		slices.Equal(s.SecurityGroups, o.SecurityGroups)
}

func (s Subject) clone() Subject {
	s.Rules, s.SecurityGroups = slices.Clone(s.Rules), slices.Clone(s.SecurityGroups)
	s.IngressIsolation, s.EgressIsolation = slices.Clone(s.IngressIsolation), slices.Clone(s.EgressIsolation)
	return s
}

func (p Peer) key() string { return PeerKey(p.Space, p.Address) }

// PeerKey is the key of the Peer of that space and address.
func PeerKey(space string, address netip.Addr) string { return space + " " + address.String() }

func (p Peer) equal(o Peer) bool {
	return p.Space == o.Space && p.Address == o.Address && slices.Equal(p.Groups, o.Groups)
}

func (p Peer) clone() Peer {
	p.Groups = slices.Clone(p.Groups)
	return p
}
