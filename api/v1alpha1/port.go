// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Port is one attachment to a Network. Those of pods are made by Coelan, those of virtual machines
// and hosts by users. A user's Port is bound by the OVS interface with
// external_ids:iface-id=<namespace>/<name>, on any node. Those of machines that name none are
// made by the agent of their node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=vport,categories=coelan
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.network`
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.status.addresses`
// +kubebuilder:printcolumn:name="MAC",type=string,JSONPath=`.status.mac`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="LastError",type=string,JSONPath=`.status.lastError`,priority=1
// +kubebuilder:printcolumn:name="HostName",type=string,JSONPath=`.status.lease.hostName`,priority=1
type Port struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec PortSpec `json:"spec"`
	// +optional
	Status PortStatus `json:"status,omitempty"`
}

// PortSpec is what a user asks for. It cannot be changed, but for the node, the SecurityGroups and
// trusted.
//
// +kubebuilder:validation:XValidation:rule="self.network == oldSelf.network",message="network cannot be changed",fieldPath=".network"
// +kubebuilder:validation:XValidation:rule="has(self.mac) == has(oldSelf.mac) && (!has(self.mac) || self.mac == oldSelf.mac)",message="mac cannot be changed",fieldPath=".mac"
// +kubebuilder:validation:XValidation:rule="has(self.addresses) && size(self.addresses) > 0 ? has(oldSelf.addresses) && self.addresses == oldSelf.addresses : !has(oldSelf.addresses) || size(oldSelf.addresses) == 0",message="addresses cannot be changed",fieldPath=".addresses"
// +kubebuilder:validation:XValidation:rule="has(self.pod) == has(oldSelf.pod) && (!has(self.pod) || self.pod == oldSelf.pod)",message="pod cannot be changed",fieldPath=".pod"
// +kubebuilder:validation:XValidation:rule="has(self.neutronPort) == has(oldSelf.neutronPort) && (!has(self.neutronPort) || self.neutronPort == oldSelf.neutronPort)",message="neutronPort cannot be changed",fieldPath=".neutronPort"
// +kubebuilder:validation:XValidation:rule="!has(self.neutronPort) || has(self.pod)",message="the Ports of pods alone have a neutronPort",fieldPath=".neutronPort"
// +kubebuilder:validation:XValidation:rule="!has(self.pod) || !has(self.securityGroups) || size(self.securityGroups) == 0",message="the Ports of a pod are of the SecurityGroups that its annotation coelan.io/security-groups names",fieldPath=".securityGroups"
// +kubebuilder:validation:XValidation:rule="!has(self.pod) || !self.?trusted.orValue(false)",message="the Ports of pods are not trusted",fieldPath=".trusted"
// +kubebuilder:validation:XValidation:rule="self.?dynamic.orValue(false) == oldSelf.?dynamic.orValue(false)",message="dynamic cannot be changed",fieldPath=".dynamic"
// +kubebuilder:validation:XValidation:rule="!self.?dynamic.orValue(false) || self.node == oldSelf.node",message="the node of a dynamic Port cannot be changed",fieldPath=".node"
// +kubebuilder:validation:XValidation:rule="!self.?dynamic.orValue(false) || has(self.node) && size(self.node) > 0 && has(self.mac) && !has(self.pod) && (!has(self.addresses) || size(self.addresses) == 0)",message="a dynamic Port has a node and a mac, no addresses and no pod",fieldPath=".dynamic"
type PortSpec struct {
	// Network that the Port is on.
	//
	// +required
	Network Name `json:"network"`
	// MAC address; left out: made from the first address.
	//
	// +optional
	MAC MAC `json:"mac,omitempty"`
	// Addresses, several of each family are possible; empty: one of each family of
	// the Network is allocated.
	//
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:XValidation:rule="!isIP(self) || ip(self).isGlobalUnicast()",message="must be a unicast address: not unspecified, loopback, link-local or multicast"
	// +listType=set
	// +optional
	Addresses []Address `json:"addresses,omitempty"`
	// Node, if set, is the only one that may bind the Port.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Node string `json:"node,omitempty"`
	// SecurityGroups of the Port's namespace that it is of; none: no SecurityGroup applies to it.
	// One that does not exist closes the Port.
	//
	// +kubebuilder:validation:MaxItems=32
	// +listType=set
	// +optional
	SecurityGroups []GroupName `json:"securityGroups,omitempty"`
	// Trusted says that the Port may send as a DHCP server. On Networks with spec.dhcp, what others
	// send so is dropped.
	//
	// +optional
	Trusted bool `json:"trusted,omitempty"`
	// Dynamic is set in the Ports that agents make for machines which are plugged without naming a
	// Port, with iface-id=<namespace>/?. Their addresses are of a block of their node, and they are
	// deleted when the interface is gone and the lease has expired.
	//
	// +optional
	Dynamic bool `json:"dynamic,omitempty"`
	// Pod is set in the Ports of pods.
	//
	// +optional
	Pod *PortPod `json:"pod,omitempty"`
	// NeutronPort is set in the Ports of pods for which the container runtime has named a port of
	// OpenStack's Neutron, with the backend neutron: its UUID. Without a mac the Port only asks
	// what that port has, and status.offered is the answer.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`
	// +kubebuilder:validation:MaxLength=36
	// +optional
	NeutronPort string `json:"neutronPort,omitempty"`
}

// ByAgent reports whether the agent of the Port's node makes it, gives it its addresses and removes
// it; otherwise a user makes it, and the controller gives it its addresses.
func (s *PortSpec) ByAgent() bool { return s.Pod != nil || s.Dynamic }

// PortPod is the interface of a pod that a Port is for.
type PortPod struct {
	// Name of the pod, which is in the Port's namespace.
	//
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// UID of the pod.
	//
	// +kubebuilder:validation:MaxLength=128
	// +required
	UID string `json:"uid"`
	// Interface is its name in the pod.
	//
	// +kubebuilder:validation:MaxLength=15
	// +required
	Interface string `json:"interface"`
}

// PortPhase says how far a Port is.
//
// +kubebuilder:validation:Enum=Pending;Ready;Bound;Failed
type PortPhase string

// The phases of Ports.
const (
	PortPending PortPhase = "Pending" // addresses are being found
	PortReady   PortPhase = "Ready"   // addresses are known, no node has an interface for it
	PortBound   PortPhase = "Bound"   // a node has connected it
	PortFailed  PortPhase = "Failed"  // lastError says why
)

// PortStatus is what Coelan made of it.
type PortStatus struct {
	// Phase sums up how far the Port is. What the condition Ready says is more exact.
	//
	// +optional
	Phase PortPhase `json:"phase,omitempty"`
	// MAC address in effect.
	//
	// +optional
	MAC string `json:"mac,omitempty"`
	// Addresses in effect.
	//
	// +listType=atomic
	// +optional
	Addresses []string `json:"addresses,omitempty"`
	// NodeAddresses reach the Port from its own node, if its Network's addresses mean nothing
	// there: they are of the node's podCIDRs, and status.podIPs of the pod.
	//
	// +listType=atomic
	// +optional
	NodeAddresses []string `json:"nodeAddresses,omitempty"`
	// Node that has bound the Port.
	//
	// +optional
	Node string `json:"node,omitempty"`
	// BoundTime is when the node has bound it.
	//
	// +optional
	BoundTime *metav1.Time `json:"boundTime,omitempty"`
	// LastError is why the Port does not work; empty when it does.
	//
	// +optional
	LastError string `json:"lastError,omitempty"`
	// Lease is what the Port's machine has got by DHCP or DHCPv6. Without: it has not asked, or has
	// given its addresses back.
	//
	// +optional
	Lease *PortLease `json:"lease,omitempty"`
	// Neutron is the port in OpenStack that the Port is made into, with the backend neutron.
	//
	// +optional
	Neutron *NeutronPort `json:"neutron,omitempty"`
	// Offered is what the port in spec.neutronPort has, or why the pod cannot have it.
	//
	// +optional
	Offered *NeutronOffer `json:"offered,omitempty"`
	// Conditions: Ready, and Programmed once the backend ovn or neutron has not done all of it.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NeutronPort is a port of OpenStack's Neutron.
type NeutronPort struct {
	// ID is its UUID: the external_ids:iface-id of the interface that is plugged for it.
	//
	// +kubebuilder:validation:MaxLength=36
	// +required
	ID string `json:"id"`
	// MAC is its MAC address. While status.mac is another, it is about to be replaced.
	//
	// +kubebuilder:validation:MaxLength=17
	// +required
	MAC string `json:"mac"`
	// VLAN is that of the port on the trunk of its node, if that is a machine of OpenStack.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	// +optional
	VLAN int32 `json:"vlan,omitempty"`
}

// NeutronOffer is what a port of OpenStack's Neutron has that a pod is to have.
type NeutronOffer struct {
	// MAC address of the port.
	//
	// +kubebuilder:validation:MaxLength=17
	// +optional
	MAC string `json:"mac,omitempty"`
	// Addresses of the port.
	//
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Addresses []string `json:"addresses,omitempty"`
	// Refused is why the pod cannot have the port; left out: it can.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Refused string `json:"refused,omitempty"`
}

// PortLease is what a machine said and got when it was last acknowledged its addresses.
type PortLease struct {
	// HostName is what the machine calls itself; left out: it does not say, or what it says is not
	// a name of DNS. It is not verified: machines may say any name, also that of another.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z]([-0-9A-Za-z]*[0-9A-Za-z])?(\.[0-9A-Za-z]([-0-9A-Za-z]*[0-9A-Za-z])?)*$`
	// +optional
	HostName string `json:"hostName,omitempty"`
	// Addresses that it was given, of both families.
	//
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Addresses []string `json:"addresses,omitempty"`
	// RenewTime is when it was last acknowledged them.
	//
	// +optional
	RenewTime *metav1.Time `json:"renewTime,omitempty"`
	// ExpireTime is until when it may use them unless it renews them before.
	//
	// +optional
	ExpireTime *metav1.Time `json:"expireTime,omitempty"`
}

// PortList is a list of Ports.
//
// +kubebuilder:object:root=true
type PortList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Port `json:"items"`
}
