// SPDX-License-Identifier: Apache-2.0

// Package policyapi has ClusterNetworkPolicy of the API group policy.networking.k8s.io,
// version v1alpha2, reduced to the fields that Coelan reads; each means what the definition
// of the kind says. Importing the group's own package would make this module follow its
// versions of Kubernetes' libraries.
package policyapi

import (
	"fmt"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind and its resource, and the group and version of both.
const (
	Kind     = "ClusterNetworkPolicy"
	Resource = "clusternetworkpolicies"
)

// GroupVersion is that of ClusterNetworkPolicy.
var GroupVersion = schema.GroupVersion{Group: "policy.networking.k8s.io", Version: "v1alpha2"}

// New is an object of the kind without anything in it, to ask for one or for a watch.
func New() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(GroupVersion.WithKind(Kind))
	return o
}

// ClusterNetworkPolicy is one without its status.
type ClusterNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec ClusterNetworkPolicySpec `json:"spec"`
	// Unknown are the paths of fields of the spec that this package does not know, or not of that
	// type: those of a newer definition.
	Unknown []string `json:"-"`
}

// ClusterNetworkPolicySpec has at most 25 rules of each direction.
type ClusterNetworkPolicySpec struct {
	Tier     Tier    `json:"tier"`
	Priority int32   `json:"priority"` // 0 to 1000; the lower wins
	Subject  Subject `json:"subject"`
	Ingress  []Rule  `json:"ingress,omitempty"`
	Egress   []Rule  `json:"egress,omitempty"`
}

// Tier of a policy.
type Tier string

// The tiers.
const (
	AdminTier    Tier = "Admin"
	BaselineTier Tier = "Baseline"
)

// Subject has exactly one field set.
type Subject struct {
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`
	Pods       *NamespacedPod        `json:"pods,omitempty"`
}

// NamespacedPod selects pods by their labels and by those of their namespaces.
type NamespacedPod struct {
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
	PodSelector       metav1.LabelSelector `json:"podSelector"`
}

// Rule is one of either direction: From is set in those of ingress, To in those of egress.
type Rule struct {
	Name      string     `json:"name,omitempty"`
	Action    Action     `json:"action"`
	From      []Peer     `json:"from,omitempty"`
	To        []Peer     `json:"to,omitempty"`
	Protocols []Protocol `json:"protocols,omitempty"` // none: all
}

// Action of a rule.
type Action string

// The actions.
const (
	Accept Action = "Accept"
	Deny   Action = "Deny"
	Pass   Action = "Pass"
)

// Peer has exactly one field set. Rules of ingress know the first two only.
type Peer struct {
	Namespaces  *metav1.LabelSelector `json:"namespaces,omitempty"`
	Pods        *NamespacedPod        `json:"pods,omitempty"`
	Nodes       *metav1.LabelSelector `json:"nodes,omitempty"`
	Networks    []string              `json:"networks,omitempty"`
	DomainNames []string              `json:"domainNames,omitempty"`
}

// Protocol has exactly one field set.
type Protocol struct {
	TCP                  *ProtocolPorts `json:"tcp,omitempty"`
	UDP                  *ProtocolPorts `json:"udp,omitempty"`
	SCTP                 *ProtocolPorts `json:"sctp,omitempty"`
	DestinationNamedPort string         `json:"destinationNamedPort,omitempty"`
}

// ProtocolPorts are a protocol's.
type ProtocolPorts struct {
	DestinationPort *Port `json:"destinationPort,omitempty"`
}

// Port has exactly one field set.
type Port struct {
	Number int32      `json:"number,omitempty"`
	Range  *PortRange `json:"range,omitempty"`
}

// PortRange holds its first and its last port.
type PortRange struct {
	Start int32 `json:"start"`
	End   int32 `json:"end"`
}

// unknownField is how the decoder names a field.
var unknownField = regexp.MustCompile(`^unknown field "(spec\..*)"$`)

// Parse reads an object as the API server has it. What of the spec is not of the type that the
// definition here gives it is left out, as if it were not known: see Unknown.
func Parse(o *unstructured.Unstructured) *ClusterNetworkPolicy {
	p := &ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), UID: o.GetUID(),
		Generation: o.GetGeneration()}}
	reads := func(spec any) bool { _, _, err := decode(spec); return err == nil }
	spec, unread := readable("spec", o.Object["spec"], reads)
	p.Spec, p.Unknown, _ = decode(spec)
	p.Unknown = append(p.Unknown, unread...)
	slices.Sort(p.Unknown)
	return p
}

// decode also returns the paths of fields that are not known.
func decode(spec any) (_ ClusterNetworkPolicySpec, unknown []string, _ error) {
	into := &struct {
		Spec ClusterNetworkPolicySpec `json:"spec"`
	}{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(map[string]any{"spec": spec}, into, true)
	strict, ok := runtime.AsStrictDecodingError(err)
	if !ok {
		return into.Spec, nil, err
	}
	for _, e := range strict.Errors() {
		if m := unknownField.FindStringSubmatch(e.Error()); m != nil {
			unknown = append(unknown, m[1])
		}
	}
	return into.Spec, unknown, nil
}

// readable is what is left of a value without what does not read, and the paths of that. What is
// left out of a list keeps its place.
func readable(path string, value any, reads func(any) bool) (left any, unread []string) {
	if reads(value) {
		return value, nil
	}
	switch v := value.(type) {
	case map[string]any:
		if !reads(map[string]any{}) {
			break
		}
		kept := make(map[string]any, len(v))
		for key, field := range v {
			one, lost := readable(path+"."+key, field, func(x any) bool { return reads(map[string]any{key: x}) })
			kept[key], unread = one, append(unread, lost...)
		}
		return kept, unread
	case []any:
		if !reads([]any{}) {
			break
		}
		kept := make([]any, len(v))
		for i, item := range v {
			one, lost := readable(fmt.Sprintf("%s[%d]", path, i), item, func(x any) bool { return reads([]any{x}) })
			kept[i], unread = one, append(unread, lost...)
		}
		return kept, unread
	}
	return nil, []string{path}
}
