// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FloatingIP is an address of an external Network that stands for one Port: what is sent to it
// reaches the Port, and what the Port sends out of the cluster comes from it. It follows the Port
// from node to node. Or it stands for a Service, as a load balancer's address does.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=fip,categories=coelan
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.network`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name="Port",type=string,JSONPath=`.spec.port`
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.service`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
type FloatingIP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec FloatingIPSpec `json:"spec"`
	// +optional
	Status FloatingIPStatus `json:"status,omitempty"`
}

// IPFamily is a family of addresses.
//
// +kubebuilder:validation:Enum=IPv4;IPv6;ipv4;ipv6
type IPFamily string

// The families.
const (
	IPv4 IPFamily = "IPv4"
	IPv6 IPFamily = "IPv6"
)

// FloatingIPSpec is what a user asks for. Only what the address stands for can be changed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.port) || !has(self.service)",message="may not be set beside port",fieldPath=".service"
// +kubebuilder:validation:XValidation:rule="self.network == oldSelf.network",message="network cannot be changed",fieldPath=".network"
// +kubebuilder:validation:XValidation:rule="has(self.address) == has(oldSelf.address) && (!has(self.address) || self.address == oldSelf.address)",message="address cannot be changed",fieldPath=".address"
// +kubebuilder:validation:XValidation:rule="has(self.ipFamily) == has(oldSelf.ipFamily) && (!has(self.ipFamily) || self.ipFamily.lowerAscii() == oldSelf.ipFamily.lowerAscii())",message="ipFamily cannot be changed",fieldPath=".ipFamily"
// +kubebuilder:validation:XValidation:rule="!has(self.address) || !has(self.ipFamily) || !isIP(self.address) || ip(self.address).family() == (self.ipFamily.lowerAscii() == 'ipv4' ? 4 : 6)",message="is not the family of address",fieldPath=".ipFamily"
type FloatingIPSpec struct {
	// Network that has the address: an external one.
	//
	// +required
	Network Name `json:"network"`
	// Address that is asked for; left out: one that the Network hands out.
	//
	// +kubebuilder:validation:XValidation:rule="!isIP(self) || ip(self).isGlobalUnicast()",message="must be a unicast address: not unspecified, loopback, link-local or multicast"
	// +optional
	Address Address `json:"address,omitempty"`
	// IPFamily of the address that is handed out; left out: that of the Network's first subnet. Two
	// FloatingIPs, one of each family, make a pair.
	//
	// +optional
	IPFamily IPFamily `json:"ipFamily,omitempty"`
	// Port of the same namespace that the address stands for. That of a pod's interface is the
	// pod's name, a dot, and the interface's: web-0.eth0. Left out: the address is kept, and
	// nothing answers for it.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Port string `json:"port,omitempty"`
	// Service of the same namespace that the address stands for, in place of a Port, at all of the
	// Service's ports. It needs Services in the bridge (services.mode: native).
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Service string `json:"service,omitempty"`
}

// FloatingIPStatus is what Coelan made of it.
type FloatingIPStatus struct {
	// Address in effect.
	//
	// +optional
	Address string `json:"address,omitempty"`
	// Node that answers for the address: that of the Port. Of a Service there is none here: the
	// nodes choose one among themselves.
	//
	// +optional
	Node string `json:"node,omitempty"`
	// Neutron is the floating IP in OpenStack that the FloatingIP is made into, with the backend
	// neutron. That of a load balancer of Octavia is not said here.
	//
	// +optional
	Neutron *NeutronResource `json:"neutron,omitempty"`
	// Conditions: Ready, and with the backends ovn and neutron Programmed.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FloatingIPList is a list of FloatingIPs.
//
// +kubebuilder:object:root=true
type FloatingIPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FloatingIP `json:"items"`
}
