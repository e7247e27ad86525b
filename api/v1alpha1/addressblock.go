// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressBlock is a part of a Network's subnet that one node hands out by itself. Its name follows
// from Network and prefix, so of two nodes that claim the same one the API lets one create it. A
// block of a single address inside a block of another node asks that node for the address: it
// answers by the condition Granted.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ablock,categories=coelan
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.network`
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.node`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.used`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Port",type=string,JSONPath=`.spec.port`,priority=1
// +kubebuilder:printcolumn:name="Granted",type=string,JSONPath=`.status.conditions[?(@.type=="Granted")].status`,priority=1
// +kubebuilder:printcolumn:name="ActiveNode",type=string,JSONPath=`.status.activeNode`,priority=1
type AddressBlock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec AddressBlockSpec `json:"spec"`
	// +optional
	Status AddressBlockStatus `json:"status,omitempty"`
}

// AddressBlockSpec cannot be changed.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an AddressBlock cannot be changed"
// +kubebuilder:validation:XValidation:rule=`!isCIDR(self.cidr) || !has(self.floatingIP) || self.floatingIP == "" || cidr(self.cidr).prefixLength() == (cidr(self.cidr).ip().family() == 4 ? 32 : 128)`,message="a block that is for a FloatingIP is a single address: /32, or /128 for IPv6",fieldPath=".cidr"
// +kubebuilder:validation:XValidation:rule=`!isCIDR(self.cidr) || !has(self.gateway) || self.gateway == "" || cidr(self.cidr).prefixLength() == (cidr(self.cidr).ip().family() == 4 ? 32 : 128)`,message="a block that is for a gateway is a single address: /32, or /128 for IPv6",fieldPath=".cidr"
// +kubebuilder:validation:XValidation:rule=`!has(self.gateway) || self.gateway == "" || (!has(self.port) || self.port == "") && (!has(self.floatingIP) || self.floatingIP == "") && (!has(self.node) || self.node == "") && (!has(self.egress) || self.egress == "")`,message="a block that is for a gateway is the controller's, and for nothing else",fieldPath=".gateway"
// +kubebuilder:validation:XValidation:rule=`!isCIDR(self.cidr) || !has(self.egress) || self.egress == "" || cidr(self.cidr).prefixLength() == (cidr(self.cidr).ip().family() == 4 ? 32 : 128)`,message="a block that is for an Egress is a single address: /32, or /128 for IPv6",fieldPath=".cidr"
// +kubebuilder:validation:XValidation:rule=`!has(self.egress) || self.egress == "" || (!has(self.port) || self.port == "") && (!has(self.floatingIP) || self.floatingIP == "") && (!has(self.node) || self.node == "")`,message="a block that is for an Egress is the controller's, and for nothing else",fieldPath=".egress"
// +kubebuilder:validation:XValidation:rule=`!has(self.floatingIP) || self.floatingIP == "" || (!has(self.port) || self.port == "") && (!has(self.node) || self.node == "")`,message="a block that is for a FloatingIP is the controller's, and for no Port",fieldPath=".floatingIP"
// +kubebuilder:validation:XValidation:rule=`!isCIDR(self.cidr) || !has(self.port) || self.port == "" || cidr(self.cidr).prefixLength() == (cidr(self.cidr).ip().family() == 4 ? 32 : 128)`,message="a block that is for a Port is a single address: /32, or /128 for IPv6",fieldPath=".cidr"
type AddressBlockSpec struct {
	// Network that has the subnet that the block is a part of.
	//
	// +required
	Network Name `json:"network"`
	// CIDR is the block's prefix.
	//
	// +required
	CIDR CIDR `json:"cidr"`
	// Node that hands out the addresses; empty: the controller, for users' Ports.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Node string `json:"node,omitempty"`
	// Port is the key, namespace/name, of the Port that a block of a single address is for.
	//
	// +kubebuilder:validation:MaxLength=317
	// +optional
	Port string `json:"port,omitempty"`
	// FloatingIP is the key, namespace/name, of the FloatingIP that a block of a single address is
	// for.
	//
	// +kubebuilder:validation:MaxLength=317
	// +optional
	FloatingIP string `json:"floatingIP,omitempty"`
	// Gateway is the key, Router/node, of the node that a block of a single address makes a
	// Router's gateway; Router/* of an address that any of the gateway's nodes may be active for.
	//
	// +kubebuilder:validation:MaxLength=317
	// +optional
	Gateway string `json:"gateway,omitempty"`
	// Egress is the name of the Egress that a block of a single address is for.
	//
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Egress string `json:"egress,omitempty"`
	// Grantor of a single address is the node that hands out the block around it: that node alone
	// may say in the condition Granted whether the address is free. The claimant names it; empty:
	// no node hands out the address.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Grantor string `json:"grantor,omitempty"`
}

// AddressBlockStatus is what the owner says of it.
type AddressBlockStatus struct {
	// Used is how many of the addresses are in use, some seconds ago.
	//
	// +optional
	Used int32 `json:"used,omitempty"`
	// ActiveNode is the node that answers for the address and translates, as it reported last.
	// Only addresses that any of several nodes may have have one.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ActiveNode string `json:"activeNode,omitempty"`
	// Conditions: Granted.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AddressBlockList is a list of AddressBlocks.
//
// +kubebuilder:object:root=true
type AddressBlockList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AddressBlock `json:"items"`
}
