// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Router is one L3 domain (VRF): the Networks that join it, and their routes. Two Routers exchange
// routes when one imports what the other exports; without that they are isolated from each other
// and may use the same addresses.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=vrf,categories=coelan
// +kubebuilder:printcolumn:name="ID",type=integer,JSONPath=`.status.id`
// +kubebuilder:printcolumn:name="VNI",type=integer,JSONPath=`.status.vni`
// +kubebuilder:printcolumn:name="RD",type=string,JSONPath=`.status.routeDistinguisher`
// +kubebuilder:printcolumn:name="Networks",type=string,JSONPath=`.status.networks`
// +kubebuilder:printcolumn:name="Gateway",type=string,JSONPath=`.spec.gateway.network`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="SNAT",type=string,JSONPath=`.spec.gateway.snat`,priority=1
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.status.gatewayAddresses`,priority=1
// +kubebuilder:printcolumn:name="Imports",type=string,JSONPath=`.spec.importRouteTargets`,priority=1
// +kubebuilder:printcolumn:name="Exports",type=string,JSONPath=`.spec.exportRouteTargets`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must not be longer than 63 characters"
// +kubebuilder:validation:XValidation:rule="self.metadata.name != 'default' || has(self.spec) && has(self.spec.importRouteTargets) && '64512:1' in self.spec.importRouteTargets && has(self.spec.exportRouteTargets) && '64512:1' in self.spec.exportRouteTargets",message="the Router default imports and exports 64512:1"
type Router struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec RouterSpec `json:"spec,omitempty"`
	// +optional
	Status RouterStatus `json:"status,omitempty"`
}

// RouterSpec is what a user asks for.
//
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || !has(self.routes) || self.routes.all(r, !isCIDR(r.destination) || cidr(r.destination).prefixLength() > 0)",message="a Router with a gateway has no route for 0.0.0.0/0 or ::/0: the gateway is the way there",fieldPath=".routes"
type RouterSpec struct {
	// RouteDistinguisher of the routes (RFC 4364, 4.2): AS:number or IPv4:number; empty: 64512 and
	// the Router's id.
	//
	// +optional
	RouteDistinguisher RouteTarget `json:"routeDistinguisher,omitempty"`
	// ImportRouteTargets (RFC 4364, 4.3): the routes that others export with one of them are the
	// Router's as well.
	//
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	// +optional
	ImportRouteTargets []RouteTarget `json:"importRouteTargets,omitempty"`
	// ExportRouteTargets go with the Router's routes: others that import one of them have these
	// routes as well.
	//
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	// +optional
	ExportRouteTargets []RouteTarget `json:"exportRouteTargets,omitempty"`
	// Routes lead to prefixes behind an address on one of the Router's Networks.
	//
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=destination
	// +optional
	Routes []Route `json:"routes,omitempty"`
	// Gateway leads out of the cluster by an external Network, in place of the nodes' own networks.
	//
	// +optional
	Gateway *RouterGateway `json:"gateway,omitempty"`
}

// SNAT is which address takes the place of the source of what leaves a Router by its gateway.
//
// +kubebuilder:validation:Enum=Distributed;Centralized;None;distributed;centralized;none
type SNAT string

// The kinds of SNAT.
const (
	// DistributedSNAT has each node translate to an address of its own.
	DistributedSNAT SNAT = "Distributed"
	// CentralizedSNAT has one node at a time translate to each of the Router's addresses.
	CentralizedSNAT SNAT = "Centralized"
	// NoSNAT leaves the source as it is: the outside has routes to the Router's Networks.
	NoSNAT SNAT = "None"
)

// RouterGateway is the way out of a Router by an external Network. Each node that is connected to
// the Network and has something of the Router gets an address of its own there, one of each family,
// which it writes over the source of what its pods and Ports send out of the cluster. Snat says
// what differs from that.
//
// +kubebuilder:validation:XValidation:rule="!has(self.snatFamilies) || !has(self.snat) || self.snat.lowerAscii() == 'distributed'",message="snatFamilies are for snat: Distributed: set that, or leave snatFamilies out",fieldPath=".snatFamilies"
// +kubebuilder:validation:XValidation:rule="!has(self.addresses) || size(self.addresses) == 0 || has(self.snat) && self.snat.lowerAscii() == 'centralized'",message="addresses are for snat: Centralized: set that, or leave addresses out",fieldPath=".addresses"
// +kubebuilder:validation:XValidation:rule="!has(self.failback) || !self.failback || has(self.snat) && self.snat.lowerAscii() == 'centralized'",message="failback is for snat: Centralized: set that, or leave failback out",fieldPath=".failback"
type RouterGateway struct {
	// Network that leads outside: an external one.
	//
	// +required
	Network Name `json:"network"`
	// Nodes that may be gateways; left out: all.
	//
	// +optional
	Nodes *metav1.LabelSelector `json:"nodes,omitempty"`
	// SNAT is Distributed: each node writes its own address over the source. Centralized: all
	// leaves with the Router's addresses, for each of which one node at a time is active, and
	// another one takes over when that is gone. None: nothing is translated, and the outside sends
	// what is for the Router's Networks to the nodes' addresses.
	//
	// +kubebuilder:default=Distributed
	// +optional
	SNAT SNAT `json:"snat,omitempty"`
	// SNATFamilies are those that are translated (Distributed); left out: both. The other one is
	// treated as with None.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +listType=set
	// +optional
	SNATFamilies []IPFamily `json:"snatFamilies,omitempty"`
	// Addresses that the Router is seen as (Centralized); left out: one of each family that the
	// Network hands out.
	//
	// +kubebuilder:validation:MaxItems=16
	// +listType=set
	// +optional
	Addresses []GatewayAddress `json:"addresses,omitempty"`
	// Failback has an address return to the node that it had before, when that is back
	// (Centralized). Connections by it break once more.
	//
	// +optional
	Failback bool `json:"failback,omitempty"`
}

// IsCentralized reports whether the Router is seen as a few addresses of its own; a Router without
// a gateway is not.
func (g *RouterGateway) IsCentralized() bool { return g != nil && g.SNAT == CentralizedSNAT }

// IsRouted reports whether what leaves with a family keeps its source.
func (g *RouterGateway) IsRouted(family IPFamily) bool {
	return g != nil && (g.SNAT == NoSNAT || len(g.SNATFamilies) > 0 && !slices.Contains(g.SNATFamilies, family))
}

// RouterStatus is what Coelan made of it.
type RouterStatus struct {
	// ID of the VRF on all nodes; 0: none was given, and the Router has no effect.
	//
	// +optional
	ID int32 `json:"id,omitempty"`
	// VNI of routed packets between nodes.
	//
	// +optional
	VNI int32 `json:"vni,omitempty"`
	// RouteDistinguisher in effect.
	//
	// +optional
	RouteDistinguisher string `json:"routeDistinguisher,omitempty"`
	// Networks that have joined, sorted.
	//
	// +listType=atomic
	// +optional
	Networks []string `json:"networks,omitempty"`
	// GatewayNodes is how many nodes have an address of the gateway's Network; of a centralized
	// gateway, how many may be active.
	//
	// +optional
	GatewayNodes int32 `json:"gatewayNodes,omitempty"`
	// GatewayAddresses in effect of a centralized gateway, IPv4 first.
	//
	// +listType=atomic
	// +optional
	GatewayAddresses []string `json:"gatewayAddresses,omitempty"`
	// Neutron is the router in OpenStack that the Router is made into, with the backend neutron:
	// that of the Router default, if it is shared.
	//
	// +optional
	Neutron *NeutronResource `json:"neutron,omitempty"`
	// Conditions: Ready, Programmed, DeletionBlocked, and GatewayReady with a gateway.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
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
