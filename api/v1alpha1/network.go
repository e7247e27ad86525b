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
// +kubebuilder:resource:scope=Cluster,shortName=vnet
type Network struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NetworkSpec   `json:"spec"`
	Status NetworkStatus `json:"status,omitempty"`
}

// NetworkSpec is what a user asks for.
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
	// +kubebuilder:validation:MaxLength=63
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
	// Router that the Network joins; empty: one of the Network's own name, made for it.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Router string `json:"router,omitempty"`
	// MTU of the interfaces on the Network in bytes; 0: the most that the node's network takes.
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
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Subnets []Subnet `json:"subnets,omitempty"`
	// DNS is what runtimes are told of name servers.
	//
	// +optional
	DNS *DNS `json:"dns,omitempty"`
	// Node, if set, is the only node whose pods attach: a Network that was made for one node of a namespace.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Node string `json:"node,omitempty"`
}

// Subnet is a prefix of a Network.
type Subnet struct {
	// CIDR is the prefix, such as 10.10.0.0/16 or fd00:10::/64.
	//
	// +kubebuilder:validation:MaxLength=49
	CIDR string `json:"cidr"`
	// Gateway is the address that the Router, or the router of a physical network, has in the subnet; empty: the first.
	//
	// +kubebuilder:validation:MaxLength=45
	// +optional
	Gateway string `json:"gateway,omitempty"`
	// Ranges are the only addresses that are handed out; empty: all. Fixed addresses may lie outside of them.
	//
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Ranges []AddressRange `json:"ranges,omitempty"`
	// Exclusions are not handed out: addresses, prefixes, or ranges (10.0.0.5-10.0.0.9). Fixed addresses may be among
	// them.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=91
	// +optional
	Exclusions []string `json:"exclusions,omitempty"`
	// Routes that interfaces on the subnet get beside the default route.
	//
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
type AddressRange struct {
	// +kubebuilder:validation:MaxLength=45
	From string `json:"from"`
	// +kubebuilder:validation:MaxLength=45
	To string `json:"to"`
}

// Route leads to a prefix by way of an address.
type Route struct {
	// +kubebuilder:validation:MaxLength=49
	Destination string `json:"destination"`
	// +kubebuilder:validation:MaxLength=45
	NextHop string `json:"nextHop"`
}

// DNS is what runtimes are told of name servers.
type DNS struct {
	// +kubebuilder:validation:MaxItems=3
	// +optional
	Nameservers []string `json:"nameservers,omitempty"`
	// +kubebuilder:validation:MaxItems=6
	// +optional
	Searches []string `json:"searches,omitempty"`
	// +kubebuilder:validation:MaxItems=8
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
	// Blocks is how many AddressBlocks nodes have claimed.
	Blocks int32 `json:"blocks,omitempty"`
	// AddressesUsed and AddressesFree count all subnets, as far as numbers reach (2^53).
	AddressesUsed int64 `json:"addressesUsed,omitempty"`
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
