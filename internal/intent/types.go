// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"fmt"
	"net/netip"
	"slices"
)

// Network is one L2 domain.
type Network struct {
	Name   string // the key
	UID    string // the object's, which AddressBlocks name as their owner
	ID     NetworkID
	VNI    uint32 // on the wire; 24 bits; 0 on a physical network
	Router string // name of the Router that joins it
	// Subnets are what interfaces have on link; none if addresses are from the
	// nodes' own subnets (Node.Subnets).
	Subnets []NetworkSubnet
	// Pools are what is handed out of each of Subnets, in their order.
	Pools []Pool
	// Withheld says why nothing is handed out of any; empty: it is.
	Withheld string
	// Physical is the name of the physical network that carries the packets in place of tunnels;
	// empty: an overlay.
	Physical string
	// External says that FloatingIPs may have addresses of it.
	External bool
	VLAN     uint16 // on the physical network; 0: untagged
	// Leased says that DHCP servers of the physical network give the addresses.
	Leased bool
	// Relay says which servers these are; not enabled: those that are on the physical network.
	Relay Relay
	MTU   int // of interfaces, in bytes; 0: the most that the node's network takes
	DNS   DNS
	DHCP  DHCP
	// LogicalSwitch is the name of OVN's switch of another system that it is on; empty: none.
	LogicalSwitch string
	// NeutronNetwork is the UUID, or a tag, of the network in Neutron of another program that it is
	// on; empty: none.
	NeutronNetwork string
	// Kuryr is the namespace that Kuryr has made the network of in Neutron; empty: it has not.
	Kuryr string
	// Project is the project of OpenStack that its network is to be in; empty: the cluster's own.
	Project string
	// Undecided says that there is no Namespace yet which says what Project is to be.
	Undecided bool
	// Namespace is the one that the controller has made the Network for; empty: none.
	Namespace string
}

// SubnetPool is a prefix that Networks of namespaces have their subnets of.
type SubnetPool struct {
	Prefix netip.Prefix // masked
	Bits   int          // the prefix length of each subnet
}

// String is how settings have it, such as 10.128.0.0/14/24.
func (p SubnetPool) String() string { return fmt.Sprintf("%s/%d", p.Prefix, p.Bits) }

// Tenant is a namespace, and the project of OpenStack that it has.
type Tenant struct {
	Namespace string // the key
	Project   string // its id; empty: the cluster's own
	// Denied is the project that the namespace asks for and may not use, quoted; empty: none.
	Denied string
}

// DNS is what interfaces on a Network are told of name servers.
type DNS struct {
	Servers  []netip.Addr
	Searches []string // the domains that short names are looked for in
	Options  []string // those of resolv.conf, such as ndots:2
}

// NetworkSubnet is a prefix of a Network.
type NetworkSubnet struct {
	Prefix  netip.Prefix // masked
	Gateway netip.Addr   // the Router's address; on a physical network that of a router outside
}

// Pool is what nodes hand out of a subnet of a Network. Addresses that are asked for may lie
// elsewhere in the subnet.
type Pool struct {
	Subnet netip.Prefix // masked
	// BlockBits is the prefix length of the blocks that nodes claim.
	BlockBits int
	Only      []AddressRange // empty: all of the subnet
	Except    []AddressRange
}

// Router is one L3 domain (VRF): the Networks that name it, and their routes.
type Router struct {
	Name string // the key
	ID   RouterID
	// VNI of routed packets between nodes; that of the Router default is its Network's.
	VNI uint32
	// Shared says that the Router exchanges routes with the Router default in both directions:
	// their addresses are one space, known to every node's kernel.
	Shared bool
	// Imports are the names of the other Routers that this one imports routes of, sorted; never
	// that of the Router default, which Shared stands for.
	Imports []string
	// ImportTargets and ExportTargets are the Router's route targets, sorted, without that of the
	// Router default, which Shared stands for. Imports say what they mean in the cluster.
	// Distinguisher is the route distinguisher that is asked for; empty: none is.
	ImportTargets, ExportTargets []string
	Distinguisher                string
	Routes                       []Route
	SNAT                         SNAT
}

// SNAT says whether what a Router's Ports send out of the cluster gets the address of
// their node as source.
type SNAT struct {
	Enabled bool
	Direct  []netip.Prefix // where packets go as they are
}

// Route leads to a prefix by way of an address on one of the Router's Networks.
type Route struct {
	Destination netip.Prefix // masked
	NextHop     netip.Addr
}

// Block is a part of a Network's subnet that one node hands out.
type Block struct {
	Network string       // name
	Prefix  netip.Prefix // masked
	Node    string       // name
}

// Subnet is a prefix of a Network that one node hands out addresses from.
type Subnet struct {
	Network string       // name
	Prefix  netip.Prefix // masked
	Gateway netip.Addr   // the address that answers as the pods' router
}

// Node is a member of the cluster.
type Node struct {
	Name      string       // the key
	Addresses []netip.Addr // InternalIPs, in the order given
	// What the node hands out, at most one of each family in the default network.
	Subnets []Subnet
	MTU     int    // of the node's pods, as the node says; 0: it is not known
	Zone    string // where it is, for the hints of endpoints; empty: in none
	// PhysicalNetworks are the names of those that the node says it is connected to, sorted.
	PhysicalNetworks []string
	// Withdrawn says that the node keeps load balancers away, or is about to go.
	Withdrawn bool
	// TrunkPort is the UUID of the port in Neutron by which the node is plugged, if it is a machine
	// of OpenStack; empty: it is none.
	TrunkPort string
}

// Port is one attachment of a pod (or, later, of a virtual machine or a host) to
// a Network.
type Port struct {
	ID        string // the key, unique and never used again: container id/interface
	Namespace string
	Pod       string
	Interface string // inside the pod, such as eth0
	UID       string // the pod's
	// Object is the name of the Port object, whether or not there is one: pods on the Network
	// default have none.
	Object string
	// ObjectUID is that of the Port object, of which there may be others of that name at other
	// times; empty for Ports that are not read from one.
	ObjectUID string

	Network   string // name
	Node      string // name of the node that the port is on
	MAC       MAC
	Addresses []netip.Addr // primary first, at least one
	// Audited says that what policies deny of the port is told to people.
	Audited bool
	// NodeAddresses stand for the port in its node's subnets, if its Router is not shared: at most
	// one of each family.
	NodeAddresses []netip.Addr
	// MTU of the interface, in bytes; 0: it is not known.
	MTU int
	// Egress is the name of the Egress that selects the Port, which is of this node; empty: none
	// does.
	Egress string
	// Trusted says that the Port, which is of this node, may send as a DHCP server.
	Trusted bool
	// NeutronPort is the UUID of the port in Neutron that the pod's container runtime has named;
	// empty: none.
	NeutronPort string
}

// Local is the node that the agent runs on.
type Local struct {
	Node          string // name; the Node of that name holds addresses and subnets
	Datapath      Datapath
	Encapsulation Encapsulation
	TunnelIP      netip.Addr // the underlay address that tunnels start from; not valid with NoEncap
	MTU           int        // of pods and of the gateway interface, in bytes
	// The largest one of a Port that is older than a change of MTU; 0: none has a larger one.
	PortMTU     int
	ServiceMode ServiceMode
	PolicyMode  PolicyMode
	// Gateway is the name of the interface by which the node's kernel reaches pods.
	Gateway string
}

// Datapath is the datapath_type of the integration bridge.
type Datapath string

// The datapaths.
const (
	DatapathSystem Datapath = "system" // in the kernel
	DatapathNetdev Datapath = "netdev" // in ovs-vswitchd
)

// Encapsulation says how packets cross from node to node.
type Encapsulation string

// The encapsulations.
const (
	VXLAN   Encapsulation = "vxlan"
	Geneve  Encapsulation = "geneve"
	NoEncap Encapsulation = "noEncap" // plain packets that the hosts route
)

// Tunneled says whether packets to other nodes are encapsulated.
func (e Encapsulation) Tunneled() bool { return e == VXLAN || e == Geneve }

// FromNodes says whether the network's addresses are from the nodes' own subnets.
func (n Network) FromNodes() bool { return n.Physical == "" && len(n.Subnets) == 0 }

// Private says whether the router's addresses mean something on its own networks only.
func (r Router) Private() bool { return !r.Shared && r.Name != DefaultRouterName }

// Prefixes are what the node hands out addresses from, in order.
func (n Node) Prefixes() []netip.Prefix {
	ps := make([]netip.Prefix, len(n.Subnets))
	for i, s := range n.Subnets {
		ps[i] = s.Prefix
	}
	return ps
}

// Name is how people name the port: namespace/pod/interface, or namespace/name for
// one that is not a pod's. Two ports may have the same name while a pod is
// replaced by another of the same name.
func (p Port) Name() string {
	if p.Interface == "" {
		return p.Namespace + "/" + p.Pod
	}
	return p.Namespace + "/" + p.Pod + "/" + p.Interface
}

// IsMachine says whether the port is not a pod's, but a virtual machine's or another guest's.
func (p Port) IsMachine() bool { return p.Interface == "" }

// ObjectKey is the namespace/name of the Port object; empty if the Port has no name.
func (p Port) ObjectKey() string {
	if p.Object == "" {
		return ""
	}
	return p.Namespace + "/" + p.Object
}

// AddressIn is the node's first address of the family of like, which is what
// tunnels and routes from a node with that address lead to; the zero Addr if
// there is none.
func (n Node) AddressIn(like netip.Addr) netip.Addr {
	for _, a := range n.Addresses {
		if a.Is4() == like.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// equal reports equality of two objects; all have slices of comparable values only.
func (n Node) equal(o Node) bool {
	return n.Name == o.Name && n.MTU == o.MTU && n.Zone == o.Zone && slices.Equal(n.Addresses, o.Addresses) &&
		slices.Equal(n.Subnets, o.Subnets) && slices.Equal(n.PhysicalNetworks, o.PhysicalNetworks) &&
		n.Withdrawn == o.Withdrawn && n.TrunkPort == o.TrunkPort
}

func (p Port) equal(o Port) bool {
	addresses := slices.Equal(p.Addresses, o.Addresses)
	return addresses && slices.Equal(p.NodeAddresses, o.NodeAddresses) && p.ID == o.ID && p.Namespace == o.Namespace &&
		p.Pod == o.Pod &&
		p.Interface == o.Interface && p.UID == o.UID && p.Object == o.Object && p.ObjectUID == o.ObjectUID &&
		p.Network == o.Network && p.Node == o.Node && p.MAC == o.MAC && p.Audited == o.Audited && p.MTU == o.MTU &&
		p.Egress == o.Egress && p.Trusted == o.Trusted && p.NeutronPort == o.NeutronPort
}

func (n Network) equal(o Network) bool {
	return slices.Equal(n.Subnets, o.Subnets) && slices.EqualFunc(n.Pools, o.Pools, Pool.equal) &&
		n.Withheld == o.Withheld && n.UID == o.UID && n.Name == o.Name && n.ID == o.ID && n.VNI == o.VNI &&
		n.Router == o.Router && n.Physical == o.Physical && n.External == o.External && n.VLAN == o.VLAN &&
		n.Leased == o.Leased && n.Relay.equal(o.Relay) && n.MTU == o.MTU && n.LogicalSwitch == o.LogicalSwitch &&
		n.NeutronNetwork == o.NeutronNetwork && n.Kuryr == o.Kuryr && n.Project == o.Project &&
		n.Undecided == o.Undecided && n.Namespace == o.Namespace && n.DNS.equal(o.DNS) && n.DHCP.equal(o.DHCP)
}

func (p Pool) equal(o Pool) bool {
	return p.Subnet == o.Subnet && p.BlockBits == o.BlockBits && slices.Equal(p.Only, o.Only) &&
		slices.Equal(p.Except, o.Except)
}

func (d DNS) equal(o DNS) bool {
	return slices.Equal(d.Servers, o.Servers) && slices.Equal(d.Searches, o.Searches) &&
		slices.Equal(d.Options, o.Options)
}

func (r Router) equal(o Router) bool {
	return slices.Equal(r.Imports, o.Imports) && slices.Equal(r.Routes, o.Routes) && r.Name == o.Name && r.ID == o.ID &&
		r.VNI == o.VNI && r.Shared == o.Shared && r.SNAT.Enabled == o.SNAT.Enabled &&
		slices.Equal(r.SNAT.Direct, o.SNAT.Direct) && slices.Equal(r.ImportTargets, o.ImportTargets) &&
		slices.Equal(r.ExportTargets, o.ExportTargets) && r.Distinguisher == o.Distinguisher
}

func (b Block) equal(o Block) bool { return b == o }

func (t Tenant) equal(o Tenant) bool { return t == o }

// clone protects a stored object from later writes to the slices it came with.
func (n Node) clone() Node {
	n.Addresses = slices.Clone(n.Addresses)
	n.Subnets = slices.Clone(n.Subnets)
	n.PhysicalNetworks = slices.Clone(n.PhysicalNetworks)
	return n
}

func (p Port) clone() Port {
	p.Addresses = slices.Clone(p.Addresses)
	p.NodeAddresses = slices.Clone(p.NodeAddresses)
	return p
}

func (n Network) clone() Network {
	n.Subnets, n.Pools = slices.Clone(n.Subnets), slices.Clone(n.Pools)
	for i, p := range n.Pools {
		n.Pools[i].Only, n.Pools[i].Except = slices.Clone(p.Only), slices.Clone(p.Except)
	}
	n.DNS = DNS{slices.Clone(n.DNS.Servers), slices.Clone(n.DNS.Searches), slices.Clone(n.DNS.Options)}
	n.DHCP, n.Relay.Servers = n.DHCP.clone(), slices.Clone(n.Relay.Servers)
	return n
}

func (r Router) clone() Router {
	r.Imports = slices.Clone(r.Imports)
	r.ImportTargets, r.ExportTargets = slices.Clone(r.ImportTargets), slices.Clone(r.ExportTargets)
	r.Routes = slices.Clone(r.Routes)
	r.SNAT.Direct = slices.Clone(r.SNAT.Direct)
	return r
}

func (b Block) clone() Block { return b }

func (t Tenant) clone() Tenant { return t }

func (n Network) key() string { return n.Name }
func (r Router) key() string  { return r.Name }
func (n Node) key() string    { return n.Name }
func (p Port) key() string    { return p.ID }

// key is unique: blocks of one Network do not overlap, but for single addresses
// that have been granted.
func (b Block) key() string { return b.Network + " " + b.Prefix.String() }

func (t Tenant) key() string { return t.Namespace }
