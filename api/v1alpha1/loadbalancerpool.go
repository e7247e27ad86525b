// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LoadBalancerPool is a set of addresses outside of the cluster that Services of type LoadBalancer
// get. Each address in use is answered for (ARP, neighbor discovery) by one node. Without any
// pool, Coelan leaves Services' status alone.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=lbpool,categories=coelan
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.addresses`
// +kubebuilder:printcolumn:name="Auto",type=boolean,JSONPath=`.spec.autoAssign`
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.addresses`
// +kubebuilder:printcolumn:name="Assigned",type=integer,JSONPath=`.status.assigned`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must not be longer than 63 characters"
type LoadBalancerPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec LoadBalancerPoolSpec `json:"spec"`
	// +optional
	Status LoadBalancerPoolStatus `json:"status,omitempty"`
}

// LoadBalancerPoolSpec is what a user asks for.
type LoadBalancerPoolSpec struct {
	// Addresses that Services get: prefixes such as 192.0.2.32/28, of which the first and last
	// addresses are handed out as well, and ranges such as 192.0.2.10-192.0.2.20. Those of
	// both families may be in one pool. An address that is in use stays so when it is taken
	// out of the list.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=set
	// +required
	Addresses []PoolAddresses `json:"addresses"`
	// AutoAssign is whether Services that name no pool get addresses of this one. It protects
	// nothing: any Service of a namespace that may use the pool can name it.
	//
	// +kubebuilder:default=true
	// +optional
	AutoAssign *bool `json:"autoAssign,omitempty"`
	// NamespaceSelector selects the namespaces of the Services that may have addresses of the pool;
	// left out: all namespaces. A Service of another namespace gets none, whatever it asks for, and
	// loses those that it has.
	//
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// NodeSelector says which nodes may answer for the addresses; left out: all.
	//
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// LoadBalancerPoolStatus is what Coelan made of it.
type LoadBalancerPoolStatus struct {
	// Ranges are the addresses in effect, the only ones that nodes answer for: those of the spec
	// unless the pool is not Ready, and one by one those that Services still have after they were
	// taken out of the spec.
	//
	// +listType=atomic
	// +optional
	Ranges []string `json:"ranges,omitempty"`
	// Addresses is how many there are, as far as numbers reach (2^53).
	//
	// +optional
	Addresses int64 `json:"addresses,omitempty"`
	// Assigned is how many of them Services have.
	//
	// +optional
	Assigned int64 `json:"assigned,omitempty"`
	// Conditions: Ready, DeletionBlocked.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// LoadBalancerPoolList is a list of LoadBalancerPools.
//
// +kubebuilder:object:root=true
type LoadBalancerPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LoadBalancerPool `json:"items"`
}
