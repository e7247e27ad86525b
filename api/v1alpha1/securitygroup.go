// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SecurityGroup is a set of Ports, those that name it, and of rules for them, as Neutron has them.
// A Port of one or more groups takes part in the connections that a rule of one of them allows, in
// the direction from which they are opened, and in no others; what other policies deny stays
// denied. A Port names groups of its namespace in spec.securityGroups, a pod by the annotation
// coelan.io/security-groups for all of its interfaces. One that does not exist closes the Port.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=sg,categories=coelan
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Programmed",type=integer,JSONPath=`.status.programmedNodes`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must not be longer than 63 characters"
type SecurityGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec SecurityGroupSpec `json:"spec,omitempty"`
	// +optional
	Status SecurityGroupStatus `json:"status,omitempty"`
}

// SecurityGroupSpec is what a user asks for.
type SecurityGroupSpec struct {
	// Rules say what is allowed. What no rule of any group of a Port allows is denied, so a group
	// without rules of a direction allows nothing in it. Replies need no rule.
	//
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	Rules []SecurityGroupRule `json:"rules,omitempty"`
}

// SecurityGroupRule allows connections.
//
// +kubebuilder:validation:XValidation:rule="!has(self.remoteIPPrefix) || !has(self.remoteGroup)",message="remoteIPPrefix and remoteGroup exclude each other",fieldPath=".remoteGroup"
// +kubebuilder:validation:XValidation:rule="!has(self.remoteIPPrefix) || !isCIDR(self.remoteIPPrefix) || cidr(self.remoteIPPrefix).ip().family() == (self.etherType == 'IPv4' ? 4 : 6)",message="remoteIPPrefix must be of the family of etherType",fieldPath=".remoteIPPrefix"
// +kubebuilder:validation:XValidation:rule="!has(self.portRangeMax) || has(self.portRangeMin)",message="portRangeMax needs portRangeMin",fieldPath=".portRangeMax"
// +kubebuilder:validation:XValidation:rule="!has(self.portRangeMin) || has(self.protocol) && self.protocol in ['tcp', 'udp', 'sctp', 'icmp', 'icmpv6', 'ipv6-icmp', '1', '6', '17', '58', '132']",message="portRangeMin is for tcp, udp, sctp, icmp and icmpv6",fieldPath=".portRangeMin"
// +kubebuilder:validation:XValidation:rule="!has(self.portRangeMin) || !has(self.protocol) || !(self.protocol in ['tcp', 'udp', 'sctp', '6', '17', '132']) || self.portRangeMin >= 1 && has(self.portRangeMax) && self.portRangeMax >= self.portRangeMin",message="the ports must be portRangeMin to portRangeMax, from 1 on",fieldPath=".portRangeMin"
// +kubebuilder:validation:XValidation:rule="!has(self.portRangeMin) || !has(self.protocol) || !(self.protocol in ['icmp', 'icmpv6', 'ipv6-icmp', '1', '58']) || self.portRangeMin <= 255 && (!has(self.portRangeMax) || self.portRangeMax <= 255)",message="of ICMP, portRangeMin is the type and portRangeMax the code: 0 to 255",fieldPath=".portRangeMin"
// +kubebuilder:validation:XValidation:rule="!has(self.protocol) || (self.etherType == 'IPv4' ? !(self.protocol in ['icmpv6', 'ipv6-icmp', '58']) : self.protocol != '1')",message="ICMP must be that of etherType",fieldPath=".protocol"
type SecurityGroupRule struct {
	// Direction of the connections' first packets, seen from the Port: Ingress or Egress.
	//
	// +required
	Direction RuleDirection `json:"direction"`
	// EtherType is the family of the addresses: IPv4 or IPv6.
	//
	// +kubebuilder:default=IPv4
	// +optional
	EtherType EtherType `json:"etherType,omitempty"`
	// Protocol by its name, such as tcp, udp, sctp or icmp, or by its IP protocol number as text:
	// "47". Left out, any or "0": all.
	//
	// +optional
	Protocol IPProtocol `json:"protocol,omitempty"`
	// PortRangeMin is the first port of the receiver, for tcp, udp and sctp, and needs
	// portRangeMax; of ICMP it is the type. Left out: all ports, or all types.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	PortRangeMin *int32 `json:"portRangeMin,omitempty"`
	// PortRangeMax is the last port, the same as portRangeMin for a single one; of ICMP it is the
	// code, or left out for all codes.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	PortRangeMax *int32 `json:"portRangeMax,omitempty"`
	// RemoteIPPrefix has the other side's addresses, of the family of etherType. Without it and
	// remoteGroup: all addresses.
	//
	// +optional
	RemoteIPPrefix CIDR `json:"remoteIPPrefix,omitempty"`
	// RemoteGroup is the SecurityGroup that the other side is of: its name, or namespace/name for
	// that of another namespace.
	//
	// +optional
	RemoteGroup GroupReference `json:"remoteGroup,omitempty"`
	// Description is for people.
	//
	// +kubebuilder:validation:MaxLength=255
	// +optional
	Description string `json:"description,omitempty"`
}

// RuleDirection is that of a connection's first packet, seen from the Port.
//
// +kubebuilder:validation:Enum=Ingress;Egress;ingress;egress
type RuleDirection string

// The directions.
const (
	RuleIngress RuleDirection = "Ingress"
	RuleEgress  RuleDirection = "Egress"
)

// EtherType is a family of addresses.
//
// +kubebuilder:validation:Enum=IPv4;IPv6
type EtherType string

// The families.
const (
	EtherIPv4 EtherType = "IPv4"
	EtherIPv6 EtherType = "IPv6"
)

// SecurityGroupStatus is what Coelan made of it.
type SecurityGroupStatus struct {
	// Nodes is how many nodes have Ports of the group.
	//
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
	// ProgrammedNodes is how many of these nodes enforce the group as it is now.
	//
	// +optional
	ProgrammedNodes int32 `json:"programmedNodes,omitempty"`
	// Conditions: Accepted says whether all rules are valid, Programmed whether
	// all nodes enforce them.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SecurityGroupList is a list of SecurityGroups.
//
// +kubebuilder:object:root=true
type SecurityGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SecurityGroup `json:"items"`
}
