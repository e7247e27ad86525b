// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NetworkType says what carries a Network's packets from node to node.
//
// +kubebuilder:validation:Enum=Overlay;VLAN;Flat;overlay;vlan;flat
type NetworkType string

// The types of Networks.
const (
	Overlay NetworkType = "Overlay" // tunnels between nodes
	VLAN    NetworkType = "VLAN"    // a VLAN of a physical network
	Flat    NetworkType = "Flat"    // untagged on a physical network
)

// NetworkRole says whether pods have their first interface on a Network.
//
// +kubebuilder:validation:Enum=Primary;Secondary;primary;secondary
type NetworkRole string

// The roles of Networks.
const (
	Primary   NetworkRole = "Primary"   // eth0 of all pods of the namespaces selected
	Secondary NetworkRole = "Secondary" // further interfaces, for pods that ask
)

// IPAM says where a Network's addresses come from.
//
// +kubebuilder:validation:Enum=Blocks;PodCIDR;DHCP;blocks;podCIDR;dhcp
type IPAM string

// The sources of addresses.
const (
	Blocks  IPAM = "Blocks"  // AddressBlocks of the Network's subnets
	PodCIDR IPAM = "PodCIDR" // the podCIDRs of the Node that the pod is on
	// DHCPServers are the physical network's: agents ask for pods, machines by themselves.
	DHCPServers IPAM = "DHCP"
)

// FixedAddresses says which addresses interfaces may ask for.
//
// +kubebuilder:validation:Enum=Any;Ranges;None;any;ranges;none
type FixedAddresses string

// The addresses that interfaces may ask for.
const (
	AnyAddress FixedAddresses = "Any" // all of the subnets
	// Those that are handed out: of ranges, none of exclusions.
	RangeAddresses FixedAddresses = "Ranges"
	NoAddress      FixedAddresses = "None"
)

// FixedMACs says which MACs interfaces may ask for.
//
// +kubebuilder:validation:Enum=Any;Local;None;any;local;none
type FixedMACs string

// The MACs that interfaces may ask for.
const (
	AnyMAC    FixedMACs = "Any"
	LocalMACs FixedMACs = "Local" // locally administered ones, which no card is sold with
	NoMAC     FixedMACs = "None"
)

// Network is one L2 domain with its subnets.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=vnet,categories=coelan
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.spec.role`
// +kubebuilder:printcolumn:name="Router",type=string,JSONPath=`.status.router`
// +kubebuilder:printcolumn:name="VNI",type=integer,JSONPath=`.status.vni`
// +kubebuilder:printcolumn:name="Subnets",type=string,JSONPath=`.status.subnets`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="ID",type=integer,JSONPath=`.status.id`,priority=1
// +kubebuilder:printcolumn:name="Physical",type=string,JSONPath=`.spec.physicalNetwork`,priority=1
// +kubebuilder:printcolumn:name="VLAN",type=integer,JSONPath=`.spec.vlan`,priority=1
// +kubebuilder:printcolumn:name="External",type=boolean,JSONPath=`.spec.external`,priority=1
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.addressesUsed`,priority=1
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=`.status.addressesFree`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must not be longer than 63 characters"
// +kubebuilder:validation:XValidation:rule=`self.metadata.name != 'default' || self.spec.type.lowerAscii() == 'overlay' && self.spec.role.lowerAscii() == 'primary' && self.spec.ipam.lowerAscii() == 'podcidr' && (!has(self.spec.router) || self.spec.router == 'default') && self.spec.?vni.orValue(1) == 1 && !has(self.spec.namespaceSelector) && !has(self.spec.node)`,message="the Network default is of type Overlay, role Primary and ipam PodCIDR, in the Router default, with VNI 1, and for all namespaces and nodes"
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default' || self.spec.?vni.orValue(0) != 1",message="VNI 1 is that of the Network default",fieldPath=".spec.vni"
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default' || self.spec.role.lowerAscii() != 'primary' || has(self.spec.namespaceSelector) || has(self.spec.node)",message="a primary Network needs a namespaceSelector: the namespaces whose pods are on it",fieldPath=".spec.namespaceSelector"
type Network struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NetworkSpec `json:"spec"`
	// +optional
	Status NetworkStatus `json:"status,omitempty"`
}

// NetworkSpec is what a user asks for.
//
// +kubebuilder:validation:XValidation:rule="self.type.lowerAscii() == oldSelf.type.lowerAscii()",message="type cannot be changed",fieldPath=".type"
// +kubebuilder:validation:XValidation:rule="self.role.lowerAscii() == oldSelf.role.lowerAscii()",message="role cannot be changed",fieldPath=".role"
// +kubebuilder:validation:XValidation:rule="self.ipam.lowerAscii() == oldSelf.ipam.lowerAscii()",message="ipam cannot be changed",fieldPath=".ipam"
// +kubebuilder:validation:XValidation:rule="self.?vni.orValue(0) == oldSelf.?vni.orValue(0)",message="vni cannot be changed",fieldPath=".vni"
// +kubebuilder:validation:XValidation:rule="self.?vlan.orValue(0) == oldSelf.?vlan.orValue(0)",message="vlan cannot be changed",fieldPath=".vlan"
// +kubebuilder:validation:XValidation:rule="has(self.physicalNetwork) == has(oldSelf.physicalNetwork) && (!has(self.physicalNetwork) || self.physicalNetwork == oldSelf.physicalNetwork)",message="physicalNetwork cannot be changed",fieldPath=".physicalNetwork"
// +kubebuilder:validation:XValidation:rule="has(self.router) == has(oldSelf.router) && (!has(self.router) || self.router == oldSelf.router)",message="router cannot be changed",fieldPath=".router"
// +kubebuilder:validation:XValidation:rule="has(self.node) == has(oldSelf.node) && (!has(self.node) || self.node == oldSelf.node)",message="node cannot be changed",fieldPath=".node"
// +kubebuilder:validation:XValidation:rule="self.?external.orValue(false) == oldSelf.?external.orValue(false)",message="external cannot be changed",fieldPath=".external"
// +kubebuilder:validation:XValidation:rule="self.type.lowerAscii() != 'overlay' || !self.?external.orValue(false)",message="external is for types VLAN and Flat only: an overlay does not lead out of the cluster",fieldPath=".external"
// +kubebuilder:validation:XValidation:rule="!self.?external.orValue(false) || has(self.subnets) && size(self.subnets) > 0",message="an external Network needs a subnet",fieldPath=".subnets"
// +kubebuilder:validation:XValidation:rule="self.type.lowerAscii() == 'overlay' || !has(self.vni)",message="vni is for type Overlay only",fieldPath=".vni"
// +kubebuilder:validation:XValidation:rule="self.type.lowerAscii() == 'vlan' || !has(self.vlan)",message="vlan is for type VLAN only",fieldPath=".vlan"
// +kubebuilder:validation:XValidation:rule="self.type.lowerAscii() != 'vlan' || has(self.vlan)",message="type VLAN needs a vlan",fieldPath=".vlan"
// +kubebuilder:validation:XValidation:rule="self.type.lowerAscii() == 'overlay' || has(self.physicalNetwork)",message="types VLAN and Flat need a physicalNetwork",fieldPath=".physicalNetwork"
// +kubebuilder:validation:XValidation:rule="self.type.lowerAscii() != 'overlay' || !has(self.physicalNetwork)",message="physicalNetwork is for types VLAN and Flat only",fieldPath=".physicalNetwork"
// +kubebuilder:validation:XValidation:rule="self.type.lowerAscii() == 'overlay' || !has(self.router)",message="router is for type Overlay only: a physical network has a router of its own",fieldPath=".router"
// +kubebuilder:validation:XValidation:rule="self.type.lowerAscii() == 'overlay' || self.role.lowerAscii() == 'secondary'",message="a Network of type VLAN or Flat is secondary: its pods would be out of the reach of their node",fieldPath=".role"
// +kubebuilder:validation:XValidation:rule="self.ipam.lowerAscii() != 'podcidr' || self.role.lowerAscii() == 'primary'",message="ipam PodCIDR is for primary Networks only",fieldPath=".ipam"
// +kubebuilder:validation:XValidation:rule="self.ipam.lowerAscii() != 'podcidr' || !has(self.subnets) || size(self.subnets) == 0",message="with ipam PodCIDR the subnets are those of the nodes: leave subnets empty",fieldPath=".subnets"
// +kubebuilder:validation:XValidation:rule="self.ipam.lowerAscii() != 'blocks' || self.type.lowerAscii() != 'overlay' || has(self.subnets) && size(self.subnets) > 0",message="an overlay with ipam Blocks needs a subnet",fieldPath=".subnets"
// +kubebuilder:validation:XValidation:rule="self.ipam.lowerAscii() != 'dhcp' || self.type.lowerAscii() != 'overlay'",message="ipam DHCP is for types VLAN and Flat only: it asks the servers of a physical network",fieldPath=".ipam"
// +kubebuilder:validation:XValidation:rule="self.ipam.lowerAscii() != 'dhcp' || !has(self.subnets) || size(self.subnets) == 0",message="with ipam DHCP the subnets are those of the physical network's servers: leave subnets empty",fieldPath=".subnets"
// +kubebuilder:validation:XValidation:rule="self.ipam.lowerAscii() != 'dhcp' || !self.?external.orValue(false)",message="external needs addresses that Coelan gives: not those of ipam DHCP",fieldPath=".external"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.subnets) || oldSelf.subnets.all(o, has(self.subnets) && self.subnets.exists(s, s.cidr == o.cidr))",message="subnets can be added, but not removed or changed",fieldPath=".subnets"
// +kubebuilder:validation:XValidation:rule="!has(self.subnets) || self.subnets.all(a, !isCIDR(a.cidr) || self.subnets.all(b, a.cidr == b.cidr || !isCIDR(b.cidr) || !cidr(a.cidr).containsCIDR(b.cidr)))",message="subnets must not overlap",fieldPath=".subnets"
// +kubebuilder:validation:XValidation:rule="!has(self.mtu) || self.mtu == 0 || self.mtu >= 1280",message="mtu must be 0 or at least 1280, as IPv6 needs it",fieldPath=".mtu"
// +kubebuilder:validation:XValidation:rule="!has(self.dhcp) || self.type.lowerAscii() == 'overlay' && self.ipam.lowerAscii() == 'blocks'",message="dhcp is for type Overlay with ipam Blocks only: a physical network has servers of its own, and pods are configured by their node",fieldPath=".dhcp"
// +kubebuilder:validation:XValidation:rule="!has(self.dhcpRelay) || self.ipam.lowerAscii() == 'dhcp'",message="dhcpRelay is for ipam DHCP only: it says which servers give the addresses",fieldPath=".dhcpRelay"
type NetworkSpec struct {
	// Type of the Network. It cannot be changed.
	//
	// +kubebuilder:default=Overlay
	// +optional
	Type NetworkType `json:"type,omitempty"`
	// VNI on the wire, of an overlay; one is allocated if it is not given. It cannot be changed.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777215
	// +optional
	VNI *int32 `json:"vni,omitempty"`
	// VLAN id, of type VLAN. It cannot be changed.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	// +optional
	VLAN *int32 `json:"vlan,omitempty"`
	// PhysicalNetwork is a name in the agents' bridgeMappings, of types VLAN and Flat.
	// It cannot be changed.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$')",message="must be letters, digits and -_. between letters or digits, as in bridgeMappings"
	// +optional
	PhysicalNetwork string `json:"physicalNetwork,omitempty"`
	// Role of the Network. It cannot be changed.
	//
	// +kubebuilder:default=Secondary
	// +optional
	Role NetworkRole `json:"role,omitempty"`
	// NamespaceSelector selects the namespaces of the pods and Ports that may attach: pods of a
	// primary Network have their first interface on it. A secondary Network without one takes those
	// of all namespaces.
	//
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Router that the Network joins; left out: one of the Network's own name, made for it. It
	// cannot be changed; what a Router imports and exports can.
	//
	// +optional
	Router Name `json:"router,omitempty"`
	// MTU of the interfaces on the Network in bytes; 0: the most that the node's network takes.
	// Else 1280 or more.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	MTU int32 `json:"mtu,omitempty"`
	// IPAM says where addresses come from. DHCP, of types VLAN and Flat: those of the physical
	// network's servers (IPv4); agents ask for pods, machines by themselves. It cannot be changed.
	//
	// +kubebuilder:default=Blocks
	// +optional
	IPAM IPAM `json:"ipam,omitempty"`
	// Subnets of the Network; an interface gets an address of the first one of each family. More
	// can be added, those that are there cannot be changed but for ranges, exclusions and routes.
	//
	// +listType=map
	// +listMapKey=cidr
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Subnets []Subnet `json:"subnets,omitempty"`
	// External says that FloatingIPs of the namespaces that namespaceSelector selects may have
	// addresses of the Network: it is of type VLAN or Flat, and leads out of the cluster. It cannot
	// be changed.
	//
	// +optional
	External bool `json:"external,omitempty"`
	// Fixed says which addresses and MACs pods and Ports may ask for. A change is for interfaces
	// that come later.
	//
	// +optional
	Fixed *Fixed `json:"fixed,omitempty"`
	// DNS is what runtimes are told of name servers.
	//
	// +optional
	DNS *DNS `json:"dns,omitempty"`
	// DHCP, if set, has each node answer what machines on the Network ask for by DHCP, DHCPv6 and
	// router solicitations. It is for type Overlay and ipam Blocks.
	//
	// +optional
	DHCP *DHCP `json:"dhcp,omitempty"`
	// DHCPRelay, if set, names the DHCP servers that give the addresses: nodes ask them as relays
	// (RFC 3046), in place of those on the physical network. It is for ipam DHCP.
	//
	// +optional
	DHCPRelay *DHCPRelay `json:"dhcpRelay,omitempty"`
	// Node, if set, is the only node with pods that may attach: the Network was made for one node
	// of a namespace. It cannot be changed.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Node string `json:"node,omitempty"`
}

// Fixed says what interfaces may ask for in place of what they would be given. The address of a
// subnet's gateway, and the MAC of Coelan's router, none gets.
type Fixed struct {
	// Addresses that interfaces may ask for: Any of the subnets; only those that are handed out
	// (Ranges), so that no interface gets an exclusion; or None. Left out: Ranges on Networks of
	// type VLAN and Flat, where others have addresses as well, and Any on an overlay.
	//
	// +optional
	Addresses FixedAddresses `json:"addresses,omitempty"`
	// MACs that interfaces may ask for: Any; only locally administered ones (Local), which
	// no card is sold with; or None. Left out: Local on Networks of type VLAN and Flat, and
	// Any on an overlay.
	//
	// +optional
	MACs FixedMACs `json:"macs,omitempty"`
}

// Subnet is a prefix of a Network.
//
// +kubebuilder:validation:XValidation:rule="has(self.gateway) == has(oldSelf.gateway) && (!has(self.gateway) || self.gateway == oldSelf.gateway)",message="gateway cannot be changed",fieldPath=".gateway"
// +kubebuilder:validation:XValidation:rule="self.?blockPrefixLength.orValue(0) == oldSelf.?blockPrefixLength.orValue(0)",message="blockPrefixLength cannot be changed",fieldPath=".blockPrefixLength"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || cidr(self.cidr).ip().isGlobalUnicast()",message="must be a prefix of unicast addresses: not unspecified, loopback, link-local or multicast",fieldPath=".cidr"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || cidr(self.cidr).prefixLength() <= (cidr(self.cidr).ip().family() == 4 ? 30 : 126)",message="is too small for a gateway and an interface: at most /30, or /126 for IPv6",fieldPath=".cidr"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || cidr(self.cidr).prefixLength() >= (cidr(self.cidr).ip().family() == 4 ? 8 : 16)",message="is too large: at least /8, or /16 for IPv6",fieldPath=".cidr"
// +kubebuilder:validation:XValidation:rule=`!isCIDR(self.cidr) || !has(self.gateway) || !isIP(self.gateway) || cidr(self.cidr).containsIP(self.gateway) && !self.cidr.startsWith(self.gateway + '/')`,message="must be an address of the subnet, other than its first, which is the network's own",fieldPath=".gateway"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || !has(self.ranges) || self.ranges.all(r, (!isIP(r.from) || cidr(self.cidr).containsIP(r.from)) && (!isIP(r.to) || cidr(self.cidr).containsIP(r.to)))",message="must lie in the subnet",fieldPath=".ranges"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || !has(self.exclusions) || self.exclusions.all(e, isIP(e) ? cidr(self.cidr).containsIP(e) : isCIDR(e) ? cidr(self.cidr).containsCIDR(e) : !e.contains('-') || (!isIP(e.substring(0, e.indexOf('-'))) || cidr(self.cidr).containsIP(e.substring(0, e.indexOf('-')))) && (!isIP(e.substring(e.indexOf('-') + 1)) || cidr(self.cidr).containsIP(e.substring(e.indexOf('-') + 1))))",message="must lie in the subnet",fieldPath=".exclusions"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || !has(self.routes) || self.routes.all(r, !isIP(r.nextHop) || cidr(self.cidr).containsIP(r.nextHop))",message="must have next hops in the subnet",fieldPath=".routes"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || self.?blockPrefixLength.orValue(0) == 0 || self.blockPrefixLength >= cidr(self.cidr).prefixLength() && self.blockPrefixLength <= (cidr(self.cidr).ip().family() == 4 ? 30 : 126)",message="must be 0, or between the subnet's length and 30, or 126 for IPv6",fieldPath=".blockPrefixLength"
type Subnet struct {
	// CIDR is the prefix, such as 10.10.0.0/16 or fd00:10::/64.
	//
	// +required
	CIDR CIDR `json:"cidr"`
	// Gateway is the address that the Router, or the router of a physical network, has in the
	// subnet; left out: the first after the network's own.
	//
	// +optional
	Gateway Address `json:"gateway,omitempty"`
	// Ranges are the only addresses that are handed out; empty: all. Fixed addresses may lie
	// outside of them where spec.fixed.addresses is Any.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Ranges []AddressRange `json:"ranges,omitempty"`
	// Exclusions are not handed out: addresses, prefixes, or ranges (10.0.0.5-10.0.0.9). Fixed
	// addresses may be among them where spec.fixed.addresses is Any.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Exclusions []Exclusion `json:"exclusions,omitempty"`
	// Routes that interfaces on the subnet get beside the default route.
	//
	// +listType=map
	// +listMapKey=destination
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Routes []Route `json:"routes,omitempty"`
	// BlockPrefixLength is the length of the blocks that nodes claim; 0: four bits longer than the
	// subnet, and between /26 and /30, or /122 and /126.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	// +optional
	BlockPrefixLength int32 `json:"blockPrefixLength,omitempty"`
}

// AddressRange is from one address to another, both included.
//
// +kubebuilder:validation:XValidation:rule="!isIP(self.from) || !isIP(self.to) || ip(self.from).family() == 6 || ip(self.to).family() == 6 || int(self.from.split('.')[0]) * 16777216 + int(self.from.split('.')[1]) * 65536 + int(self.from.split('.')[2]) * 256 + int(self.from.split('.')[3]) <= int(self.to.split('.')[0]) * 16777216 + int(self.to.split('.')[1]) * 65536 + int(self.to.split('.')[2]) * 256 + int(self.to.split('.')[3])",message="from must not be after to",fieldPath=".from"
type AddressRange struct {
	// From is the first address.
	//
	// +required
	From Address `json:"from"`
	// To is the last address.
	//
	// +required
	To Address `json:"to"`
}

// Route leads to a prefix by way of an address.
//
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.destination) || !isIP(self.nextHop) || cidr(self.destination).ip().family() == ip(self.nextHop).family()",message="destination and nextHop must be of one family",fieldPath=".nextHop"
type Route struct {
	// Destination is the prefix.
	//
	// +required
	Destination CIDR `json:"destination"`
	// NextHop is the address that the route leads to.
	//
	// +required
	NextHop Address `json:"nextHop"`
}

// DNS is what runtimes are told of name servers.
type DNS struct {
	// Nameservers are the addresses of the servers.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	// +optional
	Nameservers []Address `json:"nameservers,omitempty"`
	// Searches are the domains that short names are looked for in.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=6
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	Searches []string `json:"searches,omitempty"`
	// Options are those of resolv.conf, such as ndots:2.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +optional
	Options []string `json:"options,omitempty"`
}

// DHCP is what machines on a Network are told beside addresses, masks, gateways, routes, MTU and
// spec.dns, which they get as well.
type DHCP struct {
	// LeaseSeconds is how long an address is valid that a machine does not ask for again; 0: a day.
	// A machine asks again after half of it, and learns of changes then.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 60",message="must be 0 or at least 60"
	// +optional
	LeaseSeconds int32 `json:"leaseSeconds,omitempty"`
	// AddressMode says how machines get their IPv6 addresses; left out: Stateful.
	//
	// +optional
	AddressMode AddressMode `json:"addressMode,omitempty"`
	// NTPServers are the addresses of time servers.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	// +optional
	NTPServers []GatewayAddress `json:"ntpServers,omitempty"`
	// NextServer is the IPv4 address of the server that machines boot from (siaddr).
	//
	// +kubebuilder:validation:XValidation:rule="!isIP(self) || ip(self).family() == 4",message="must be an IPv4 address"
	// +optional
	NextServer GatewayAddress `json:"nextServer,omitempty"`
	// BootFile is the name of the file that machines boot, on nextServer; or a URL, which machines
	// that boot by IPv6 get, too.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=127
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]*$')",message="must be of printable ASCII characters without spaces"
	// +optional
	BootFile string `json:"bootFile,omitempty"`
}

// DHCPRelay is what nodes ask DHCP servers in the name of pods and machines.
type DHCPRelay struct {
	// Servers are the IPv4 addresses of the DHCP servers, which nodes must be in reach of. All of
	// them are asked, and no others are believed.
	//
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(a, !isIP(a) || ip(a).family() == 4)",message="must be IPv4 addresses"
	// +required
	Servers []GatewayAddress `json:"servers"`
	// Subnet is the IPv4 subnet on the physical network: servers choose addresses of it (RFC 3527),
	// and others are refused.
	//
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).ip().family() == 4",message="must be an IPv4 prefix"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).ip().isGlobalUnicast()",message="must be a prefix of unicast addresses: not unspecified, loopback, link-local or multicast"
	// +required
	Subnet CIDR `json:"subnet"`
}

// AddressMode says how machines get their IPv6 addresses.
//
// +kubebuilder:validation:Enum=Stateful;Stateless;None
type AddressMode string

// The ways to IPv6 addresses.
const (
	// Stateful has machines ask by DHCPv6.
	Stateful AddressMode = "Stateful"
	// Stateless has machines make their address of the prefix and their MAC (SLAAC, EUI-64). It is
	// for Ports with that address; others are as with Stateful.
	Stateless AddressMode = "Stateless"
	// NoIPv6 leaves IPv6 alone: no answers to DHCPv6 and router solicitations.
	NoIPv6 AddressMode = "None"
)

// NetworkStatus is what Coelan made of it.
type NetworkStatus struct {
	// ID of the Network on all nodes; 0: none was given, and the Network has no effect.
	//
	// +optional
	ID int32 `json:"id,omitempty"`
	// VNI on the wire, of an overlay.
	//
	// +optional
	VNI int32 `json:"vni,omitempty"`
	// Router that the Network has joined.
	//
	// +optional
	Router string `json:"router,omitempty"`
	// Subnets in effect, in the order of the spec.
	//
	// +listType=atomic
	// +optional
	Subnets []string `json:"subnets,omitempty"`
	// Blocks is how many AddressBlocks nodes have claimed.
	//
	// +optional
	Blocks int32 `json:"blocks,omitempty"`
	// AddressesUsed is how many of all subnets are in use, as far as numbers reach (2^53).
	//
	// +optional
	AddressesUsed int64 `json:"addressesUsed,omitempty"`
	// AddressesFree is how many of all subnets are left, as far as numbers reach (2^53).
	//
	// +optional
	AddressesFree int64 `json:"addressesFree,omitempty"`
	// Neutron is the network in OpenStack that the Network is made into, with the backend neutron.
	//
	// +optional
	Neutron *NeutronNetwork `json:"neutron,omitempty"`
	// Conditions: Ready, Programmed, DeletionBlocked, and QuotaPressure of the Network default with
	// the backend neutron.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NeutronResource is a resource of OpenStack's Neutron.
type NeutronResource struct {
	// ID is its UUID.
	//
	// +kubebuilder:validation:MaxLength=36
	// +required
	ID string `json:"id"`
}

// NeutronNetwork is a network of OpenStack's Neutron.
type NeutronNetwork struct {
	// ID is its UUID.
	//
	// +kubebuilder:validation:MaxLength=36
	// +required
	ID string `json:"id"`
	// Subnets of spec.subnets that Neutron has, in their order.
	//
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Subnets []NeutronSubnet `json:"subnets,omitempty"`
}

// NeutronSubnet is a subnet of OpenStack's Neutron.
type NeutronSubnet struct {
	// CIDR is its prefix.
	//
	// +kubebuilder:validation:MaxLength=43
	// +required
	CIDR string `json:"cidr"`
	// ID is its UUID.
	//
	// +kubebuilder:validation:MaxLength=36
	// +required
	ID string `json:"id"`
}

// NetworkList is a list of Networks.
//
// +kubebuilder:object:root=true
type NetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Network `json:"items"`
}
