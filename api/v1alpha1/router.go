// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Router is one L3 domain (VRF): the Networks that join it, and their routes. Two Routers exchange routes when one imports
// what the other exports; without that they are isolated from each other and may use the same addresses.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=vrf
type Router struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RouterSpec   `json:"spec,omitempty"`
	Status RouterStatus `json:"status,omitempty"`
}

// RouterSpec is what a user asks for.
type RouterSpec struct {
	// RouteDistinguisher of the routes (RFC 4364, 4.2): AS:number or IPv4:number; empty: 64512 and the Router's id.
	//
	// +kubebuilder:validation:MaxLength=32
	// +optional
	RouteDistinguisher string `json:"routeDistinguisher,omitempty"`
	// ImportRouteTargets and ExportRouteTargets (RFC 4364, 4.3): AS:number or IPv4:number.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=32
	// +listType=set
	// +optional
	ImportRouteTargets []string `json:"importRouteTargets,omitempty"`
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=32
	// +listType=set
	// +optional
	ExportRouteTargets []string `json:"exportRouteTargets,omitempty"`
	// Routes lead to prefixes behind an address on one of the Router's Networks.
	//
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Routes []Route `json:"routes,omitempty"`
}

// RouterStatus is what Coelan made of it.
type RouterStatus struct {
	// ID of the VRF on all nodes; 0: none was given, and the Router has no effect.
	ID int32 `json:"id,omitempty"`
	// VNI of routed packets between nodes.
	VNI int32 `json:"vni,omitempty"`
	// RouteDistinguisher in effect.
	RouteDistinguisher string `json:"routeDistinguisher,omitempty"`
	// Networks that have joined, sorted.
	Networks []string `json:"networks,omitempty"`
	// Conditions: Ready, DeletionBlocked.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RouterList is a list of Routers.
//
// +kubebuilder:object:root=true
type RouterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Router `json:"items"`
}
