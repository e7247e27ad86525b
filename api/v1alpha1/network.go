// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NetworkType says what carries a Network's packets from node to node.
//
// +kubebuilder:validation:Enum=overlay;vlan;flat
type NetworkType string

// The types of Networks.
const (
	Overlay NetworkType = "overlay" // tunnels between nodes
	VLAN    NetworkType = "vlan"    // a VLAN of a physical network
	Flat    NetworkType = "flat"    // untagged on a physical network
)

// NetworkRole says whether pods have their first interface on a Network.
//
// +kubebuilder:validation:Enum=primary;secondary
type NetworkRole string

// The roles of Networks.
const (
	Primary   NetworkRole = "primary"   // eth0 of all pods of the namespaces selected
	Secondary NetworkRole = "secondary" // further interfaces, for pods that ask
)

// IPAM says where a Network's addresses come from.
//
// +kubebuilder:validation:Enum=blocks;podCIDR
type IPAM string

// The sources of addresses.
const (
	Blocks  IPAM = "blocks"  // AddressBlocks of the Network's subnets
	PodCIDR IPAM = "podCIDR" // the podCIDRs of the Node that the pod is on
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
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.addressesUsed`,priority=1
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=`.status.addressesFree`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must not be longer than 63 characters"
// +kubebuilder:validation:XValidation:rule=`self.metadata.name != 'default' || self.spec.type == 'overlay' && self.spec.role == 'primary' && self.spec.ipam == 'podCIDR' && (!has(self.spec.router) || self.spec.router == 'default') && self.spec.?vni.orValue(1) == 1 && !has(self.spec.namespaceSelector) && !has(self.spec.node)`,message="the Network default is of type overlay, role primary and ipam podCIDR, in the Router default, with VNI 1, and for all namespaces and nodes"
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default' || self.spec.?vni.orValue(0) != 1",message="VNI 1 is that of the Network default",fieldPath=".spec.vni"
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default' || self.spec.role != 'primary' || has(self.spec.namespaceSelector) || has(self.spec.node)",message="a primary Network needs a namespaceSelector: the namespaces whose pods are on it",fieldPath=".spec.namespaceSelector"
type Network struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NetworkSpec   `json:"spec"`
	Status NetworkStatus `json:"status,omitempty"`
}

// NetworkSpec is what a user asks for.
//
// +kubebuilder:validation:XValidation:rule="self.type == oldSelf.type",message="type cannot be changed",fieldPath=".type"
// +kubebuilder:validation:XValidation:rule="self.role == oldSelf.role",message="role cannot be changed",fieldPath=".role"
// +kubebuilder:validation:XValidation:rule="self.ipam == oldSelf.ipam",message="ipam cannot be changed",fieldPath=".ipam"
// +kubebuilder:validation:XValidation:rule="self.?vni.orValue(0) == oldSelf.?vni.orValue(0)",message="vni cannot be changed",fieldPath=".vni"
// +kubebuilder:validation:XValidation:rule="self.?vlan.orValue(0) == oldSelf.?vlan.orValue(0)",message="vlan cannot be changed",fieldPath=".vlan"
// +kubebuilder:validation:XValidation:rule="has(self.physicalNetwork) == has(oldSelf.physicalNetwork) && (!has(self.physicalNetwork) || self.physicalNetwork == oldSelf.physicalNetwork)",message="physicalNetwork cannot be changed",fieldPath=".physicalNetwork"
// +kubebuilder:validation:XValidation:rule="has(self.router) == has(oldSelf.router) && (!has(self.router) || self.router == oldSelf.router)",message="router cannot be changed",fieldPath=".router"
// +kubebuilder:validation:XValidation:rule="has(self.node) == has(oldSelf.node) && (!has(self.node) || self.node == oldSelf.node)",message="node cannot be changed",fieldPath=".node"
// +kubebuilder:validation:XValidation:rule="self.type == 'overlay' || !has(self.vni)",message="vni is for type overlay only",fieldPath=".vni"
// +kubebuilder:validation:XValidation:rule="self.type == 'vlan' || !has(self.vlan)",message="vlan is for type vlan only",fieldPath=".vlan"
// +kubebuilder:validation:XValidation:rule="self.type != 'vlan' || has(self.vlan)",message="type vlan needs a vlan",fieldPath=".vlan"
// +kubebuilder:validation:XValidation:rule="self.type == 'overlay' || has(self.physicalNetwork)",message="types vlan and flat need a physicalNetwork",fieldPath=".physicalNetwork"
// +kubebuilder:validation:XValidation:rule="self.type != 'overlay' || !has(self.physicalNetwork)",message="physicalNetwork is for types vlan and flat only",fieldPath=".physicalNetwork"
// +kubebuilder:validation:XValidation:rule="self.type == 'overlay' || !has(self.router)",message="router is for type overlay only: a physical network has a router of its own",fieldPath=".router"
// +kubebuilder:validation:XValidation:rule="self.type == 'overlay' || self.role == 'secondary'",message="a Network of type vlan or flat is secondary: its pods would be out of the reach of their node",fieldPath=".role"
// +kubebuilder:validation:XValidation:rule="self.ipam != 'podCIDR' || self.role == 'primary'",message="ipam podCIDR is for primary Networks only",fieldPath=".ipam"
// +kubebuilder:validation:XValidation:rule="self.ipam != 'podCIDR' || !has(self.subnets) || size(self.subnets) == 0",message="with ipam podCIDR the subnets are those of the nodes: leave subnets empty",fieldPath=".subnets"
// +kubebuilder:validation:XValidation:rule="self.ipam != 'blocks' || self.type != 'overlay' || has(self.subnets) && size(self.subnets) > 0",message="an overlay with ipam blocks needs a subnet",fieldPath=".subnets"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.subnets) || oldSelf.subnets.all(o, has(self.subnets) && self.subnets.exists(s, s.cidr == o.cidr))",message="subnets can be added, but not removed or changed",fieldPath=".subnets"
// +kubebuilder:validation:XValidation:rule="!has(self.subnets) || self.subnets.all(a, !isCIDR(a.cidr) || self.subnets.all(b, a.cidr == b.cidr || !isCIDR(b.cidr) || !cidr(a.cidr).containsCIDR(b.cidr)))",message="subnets must not overlap",fieldPath=".subnets"
// +kubebuilder:validation:XValidation:rule="!has(self.mtu) || self.mtu == 0 || self.mtu >= 1280",message="mtu must be 0 or at least 1280, as IPv6 needs it",fieldPath=".mtu"
type NetworkSpec struct {
	// Type of the Network. It cannot be changed.
	//
	// +kubebuilder:default=overlay
	// +optional
	Type NetworkType `json:"type,omitempty"`
	// VNI on the wire, of an overlay; one is allocated if it is not given. It cannot be changed.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777215
	// +optional
	VNI *int32 `json:"vni,omitempty"`
	// VLAN id, of type vlan. It cannot be changed.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	// +optional
	VLAN *int32 `json:"vlan,omitempty"`
	// PhysicalNetwork is a name in the agents' bridgeMappings, of types vlan and flat. It cannot be changed.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$')",message="must be letters, digits and -_. between letters or digits, as in bridgeMappings"
	// +optional
	PhysicalNetwork string `json:"physicalNetwork,omitempty"`
	// Role of the Network. It cannot be changed.
	//
	// +kubebuilder:default=secondary
	// +optional
	Role NetworkRole `json:"role,omitempty"`
	// NamespaceSelector says whose pods and Ports may attach: those of a primary Network have their first interface
	// on it. A secondary Network without one takes those of all namespaces.
	//
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Router that the Network joins; left out: one of the Network's own name, made for it. It cannot
	// be changed; what a Router imports and exports can.
	//
	// +optional
	Router Name `json:"router,omitempty"`
	// MTU of the interfaces on the Network in bytes; 0: the most that the node's network takes. Else 1280
	// or more.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	MTU int32 `json:"mtu,omitempty"`
	// IPAM says where addresses come from. It cannot be changed.
	//
	// +kubebuilder:default=blocks
	// +optional
	IPAM IPAM `json:"ipam,omitempty"`
	// Subnets of the Network; an interface gets an address of the first one of each family. More can be added, those
	// that are there cannot be changed but for ranges, exclusions and routes.
	//
	// +listType=map
	// +listMapKey=cidr
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Subnets []Subnet `json:"subnets,omitempty"`
	// DNS is what runtimes are told of name servers.
	//
	// +optional
	DNS *DNS `json:"dns,omitempty"`
	// Node, if set, is the only node whose pods attach: a Network that was made for one node of a namespace.
	// It cannot be changed.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Node string `json:"node,omitempty"`
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
	CIDR CIDR `json:"cidr"`
	// Gateway is the address that the Router, or the router of a physical network, has in the subnet; left out: the
	// first after the network's own.
	//
	// +optional
	Gateway Address `json:"gateway,omitempty"`
	// Ranges are the only addresses that are handed out; empty: all. Fixed addresses may lie outside of them.
	//
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Ranges []AddressRange `json:"ranges,omitempty"`
	// Exclusions are not handed out: addresses, prefixes, or ranges (10.0.0.5-10.0.0.9). Fixed addresses may be among
	// them.
	//
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
	// BlockPrefixLength is the length of the blocks that nodes claim; 0: four bits longer than the subnet, and
	// between /26 and /30, or /122 and /126.
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
	From Address `json:"from"`
	To   Address `json:"to"`
}

// Route leads to a prefix by way of an address.
//
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.destination) || !isIP(self.nextHop) || cidr(self.destination).ip().family() == ip(self.nextHop).family()",message="destination and nextHop must be of one family",fieldPath=".nextHop"
type Route struct {
	Destination CIDR    `json:"destination"`
	NextHop     Address `json:"nextHop"`
}

// DNS is what runtimes are told of name servers.
type DNS struct {
	// Nameservers are the addresses of the servers.
	//
	// +kubebuilder:validation:MaxItems=3
	// +optional
	Nameservers []Address `json:"nameservers,omitempty"`
	// Searches are the domains that short names are looked for in.
	//
	// +kubebuilder:validation:MaxItems=6
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	Searches []string `json:"searches,omitempty"`
	// Options are those of resolv.conf, such as ndots:2.
	//
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +optional
	Options []string `json:"options,omitempty"`
}

// NetworkStatus is what Coelan made of it.
type NetworkStatus struct {
	// ID of the Network on all nodes; 0: none was given, and the Network has no effect.
	ID int32 `json:"id,omitempty"`
	// VNI on the wire, of an overlay.
	VNI int32 `json:"vni,omitempty"`
	// Router that the Network has joined.
	Router string `json:"router,omitempty"`
	// Subnets in effect, in the order of the spec.
	Subnets []string `json:"subnets,omitempty"`
	// Blocks is how many AddressBlocks nodes have claimed.
	Blocks int32 `json:"blocks,omitempty"`
	// AddressesUsed is how many of all subnets are in use, as far as numbers reach (2^53).
	AddressesUsed int64 `json:"addressesUsed,omitempty"`
	// AddressesFree is how many of all subnets are left, as far as numbers reach (2^53).
	AddressesFree int64 `json:"addressesFree,omitempty"`
	// Conditions: Ready, DeletionBlocked.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NetworkList is a list of Networks.
//
// +kubebuilder:object:root=true
type NetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Network `json:"items"`
}
