// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Egress has chosen pods leave the cluster by addresses of an external Network that are theirs, or
// by next hops there. For each address one node at a time is active, by which the pods of all nodes
// leave, and another one takes over when that is gone.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=egresses,shortName=eg,categories=coelan
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.network`
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.status.addresses`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="ActiveNodes",type=string,JSONPath=`.status.activeNodes`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must not be longer than 63 characters"
type Egress struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec EgressSpec `json:"spec"`
	// +optional
	Status EgressStatus `json:"status,omitempty"`
}

// EgressSpec is what a user asks for.
//
// +kubebuilder:validation:XValidation:rule="has(self.namespaceSelector) || has(self.podSelector)",message="must select pods: set namespaceSelector, podSelector, or both; {} selects all"
// +kubebuilder:validation:XValidation:rule="!has(self.count) || !has(self.addresses) || size(self.addresses) == 0",message="count is for addresses that the Network hands out: leave it out, or leave addresses out",fieldPath=".count"
// +kubebuilder:validation:XValidation:rule="has(self.policyRoute) == has(oldSelf.policyRoute)",message="cannot be set or removed, since that would break all connections at once: make another Egress",fieldPath=".policyRoute"
type EgressSpec struct {
	// NamespaceSelector selects pods by the labels of their namespace; left out: those of all
	// namespaces.
	//
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// PodSelector selects pods by their own labels; left out: all of the selected namespaces.
	//
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// Network that has the addresses: an external one.
	//
	// +required
	Network Name `json:"network"`
	// Addresses that the pods are seen as; left out: as many as count says, which the Network hands
	// out.
	//
	// +kubebuilder:validation:MaxItems=16
	// +listType=set
	// +optional
	Addresses []GatewayAddress `json:"addresses,omitempty"`
	// Count is how many addresses of each family of the Network it hands out; left out, without
	// addresses: 1.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	// +optional
	Count int32 `json:"count,omitempty"`
	// Destinations that the pods leave to by these addresses; left out: all outside of the cluster.
	//
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	// +optional
	Destinations []CIDR `json:"destinations,omitempty"`
	// PolicyRoute sends what the pods send to next hops on the Network, with the pods' own
	// addresses in place of those of the Egress. The next hops send the answers to an address of
	// the Egress.
	//
	// +optional
	PolicyRoute *PolicyRoute `json:"policyRoute,omitempty"`
	// Nodes that may be active; left out: all.
	//
	// +optional
	Nodes *metav1.LabelSelector `json:"nodes,omitempty"`
	// Failback has an address return to the node that it had before, when that is back. Connections
	// by it break once more.
	//
	// +optional
	Failback bool `json:"failback,omitempty"`
}

// PolicyRoute is where packets go in place of the Network's gateway.
type PolicyRoute struct {
	// NextHops are hosts of the Network outside of the cluster, such as firewalls. Connections are
	// spread over those of their family that work, and stay with theirs while that works.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=set
	// +required
	NextHops []GatewayAddress `json:"nextHops"`
	// HealthCheck finds out which next hops work; left out: those work of which the MAC is known or
	// not known yet.
	//
	// +optional
	HealthCheck *NextHopHealthCheck `json:"healthCheck,omitempty"`
}

// NextHopHealthCheck is how the active node finds out whether a next hop works.
type NextHopHealthCheck struct {
	// Type is ICMP for echo requests, or BFD for a session of RFC 5881, which the next hop has to
	// be configured for with the address of the Egress as its peer.
	//
	// +required
	Type HealthCheckType `json:"type"`
	// IntervalMilliseconds between two packets; left out: 300.
	//
	// +kubebuilder:validation:Minimum=50
	// +kubebuilder:validation:Maximum=60000
	// +kubebuilder:default=300
	// +optional
	IntervalMilliseconds int32 `json:"intervalMilliseconds,omitempty"`
	// FailureThreshold is after how many intervals without an answer a next hop does not work; left
	// out: 3.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	// +kubebuilder:default=3
	// +optional
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
}

// HealthCheckType is the protocol of a health check.
//
// +kubebuilder:validation:Enum=ICMP;BFD
type HealthCheckType string

const (
	// HealthCheckICMP sends echo requests.
	HealthCheckICMP HealthCheckType = "ICMP"
	// HealthCheckBFD keeps a session of Bidirectional Forwarding Detection.
	HealthCheckBFD HealthCheckType = "BFD"
)

// EgressStatus is what Coelan made of it.
type EgressStatus struct {
	// Addresses in effect, IPv4 first.
	//
	// +listType=atomic
	// +optional
	Addresses []string `json:"addresses,omitempty"`
	// ActiveNodes have reported last that they are active for one of the addresses, sorted.
	//
	// +listType=atomic
	// +optional
	ActiveNodes []string `json:"activeNodes,omitempty"`
	// Conditions: Ready, and with the backends ovn and neutron Programmed.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// EgressList is a list of Egresses.
//
// +kubebuilder:object:root=true
type EgressList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Egress `json:"items"`
}
