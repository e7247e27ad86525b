// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeNetworkConfig is the network configuration of one node, or of those that a selector chooses.
// Its settings take the place of those of the agents' ConfigMap. One holds for a node: one that
// names it, before those that select it; of several alike the oldest.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=nodenetworkconfigs,shortName=nnc,categories=coelan
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.selectedNodes`
// +kubebuilder:printcolumn:name="Applied",type=integer,JSONPath=`.status.appliedNodes`
// +kubebuilder:printcolumn:name="LastApplied",type=date,JSONPath=`.status.lastAppliedTime`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="ByNode",type=string,JSONPath=`.status.nodes`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must not be longer than 63 characters"
type NodeNetworkConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NodeNetworkConfigSpec `json:"spec"`
	// +optional
	Status NodeNetworkConfigStatus `json:"status,omitempty"`
}

// NodeNetworkConfigSpec is what an administrator asks for. A setting that is left out is that of
// the ConfigMap.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeName) != has(self.nodeSelector)",message="must be for one node or for those with some labels: set nodeName or nodeSelector; {} selects all"
type NodeNetworkConfigSpec struct {
	// NodeName is the node that it is for.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// NodeSelector selects nodes by their labels.
	//
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// MTU of the interfaces of new pods.
	//
	// +kubebuilder:validation:Minimum=1280
	// +kubebuilder:validation:Maximum=65535
	// +optional
	MTU int32 `json:"mtu,omitempty"`
	// Encapsulation between nodes. All nodes of a cluster have the same: a node refuses one that is
	// not that of its ConfigMap.
	//
	// +optional
	Encapsulation Encapsulation `json:"encapsulation,omitempty"`
	// BridgeMappings give, by the name of a physical network, the OVS bridge of the node that leads
	// to it; {}: there are none.
	//
	// +kubebuilder:validation:MaxProperties=13
	// +kubebuilder:validation:XValidation:rule="self.all(n, n.matches('^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$'))",message="a key is the name of a physical network: at most 63 letters, digits and -_. between letters or digits"
	// +kubebuilder:validation:XValidation:rule="self.all(n, size(self[n]) > 0 && size(self[n]) <= 15)",message="a value is the name of an OVS bridge: 1 to 15 characters"
	// +optional
	BridgeMappings map[string]string `json:"bridgeMappings,omitzero"`
	// Uplinks give, by the name of a physical network, the network card of the node that leads to
	// it; {}: there are none.
	//
	// +kubebuilder:validation:MaxProperties=13
	// +kubebuilder:validation:XValidation:rule="self.all(n, n.matches('^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$'))",message="a key is the name of a physical network: at most 63 letters, digits and -_. between letters or digits"
	// +optional
	Uplinks map[string]NodeUplink `json:"uplinks,omitzero"`
	// Subnets are the parts of Networks that the node takes its blocks of addresses from; of other
	// Networks it takes them from anywhere.
	//
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=network
	// +optional
	Subnets []NodeSubnets `json:"subnets,omitempty"`
}

// Encapsulation is how packets travel between nodes.
//
// +kubebuilder:validation:Enum=VXLAN;Geneve;NoEncap
type Encapsulation string

// The encapsulations.
const (
	EncapsulationVXLAN  Encapsulation = "VXLAN"
	EncapsulationGeneve Encapsulation = "Geneve"
	EncapsulationNone   Encapsulation = "NoEncap" // routed by the nodes' addresses
)

// InterfaceName is that of a network interface or bridge.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=15
type InterfaceName = string

// NodeUplink is a network card that leads to a physical network.
type NodeUplink struct {
	// Interface is the card's name.
	//
	// +required
	Interface InterfaceName `json:"interface"`
	// Bridge is made for the card; left out: br- and the physical network's name.
	//
	// +optional
	Bridge InterfaceName `json:"bridge,omitempty"`
	// Shared says that the physical network is the node's own: the card's addresses, the node's
	// among them, move to the bridge. Otherwise a card that the node needs is refused.
	//
	// +optional
	Shared bool `json:"shared,omitempty"`
}

// NodeSubnets are parts of a Network.
type NodeSubnets struct {
	// Network that has blocks of addresses.
	//
	// +kubebuilder:validation:XValidation:rule="self != 'default'",message="the Network default has the podCIDRs of the nodes, which the controller manager gives"
	// +required
	Network Name `json:"network"`
	// CIDRs that the node takes blocks from. Of a family that has none here, it takes them from
	// anywhere. Blocks that it has already are not touched.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=set
	// +required
	CIDRs []CIDR `json:"cidrs"`
}

// MaxNodesInStatus is how many nodes the status of a NodeNetworkConfig names.
const MaxNodesInStatus = 128

// NodeNetworkConfigStatus is what became of it.
type NodeNetworkConfigStatus struct {
	// SelectedNodes is the number of nodes that it holds for.
	//
	// +optional
	SelectedNodes int32 `json:"selectedNodes,omitempty"`
	// AppliedNodes is the number of nodes that run with it, as it is now.
	//
	// +optional
	AppliedNodes int32 `json:"appliedNodes,omitempty"`
	// LastAppliedTime is when the last of these has applied it.
	//
	// +optional
	LastAppliedTime *metav1.Time `json:"lastAppliedTime,omitempty"`
	// Nodes that it holds for: those that refuse it first, then those that have not applied it,
	// then the others; at most 128. Each node's annotation coelan.io/network-config says the same.
	//
	// +kubebuilder:validation:MaxItems=128
	// +listType=map
	// +listMapKey=name
	// +optional
	Nodes []NodeNetworkConfigNode `json:"nodes,omitempty"`
	// Conditions: Ready.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeNetworkConfigNode is what one node did.
type NodeNetworkConfigNode struct {
	// Name of the node.
	//
	// +required
	Name string `json:"name"`
	// AppliedGeneration is the generation that the node runs with; left out: it does not run with
	// this configuration.
	//
	// +optional
	AppliedGeneration int64 `json:"appliedGeneration,omitempty"`
	// AppliedTime is when the node has applied it.
	//
	// +optional
	AppliedTime *metav1.Time `json:"appliedTime,omitempty"`
	// Message is why the node does not run with it as it is now.
	//
	// +optional
	Message string `json:"message,omitempty"`
}

// NodeNetworkConfigList is a list of NodeNetworkConfigs.
//
// +kubebuilder:object:root=true
type NodeNetworkConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeNetworkConfig `json:"items"`
}
