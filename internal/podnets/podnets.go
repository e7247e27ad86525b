// SPDX-License-Identifier: Apache-2.0

// Package podnets parses network requests in pods' annotations, and NetworkAttachmentDefinitions
// that these name, and formats their results: the formats of the Kubernetes Network Plumbing
// Working Group (specification version 1.3), of OVN4NFV and of Kuryr. It does no I/O.
package podnets

import (
	"fmt"
	"strconv"

	"coelan.io/coelan/internal/attachment"
)

// Annotations of pods.
const (
	// Networks is the request of the Network Plumbing Working Group, NetworkStatus its answer.
	AnnotationNetworks      = "k8s.v1.cni.cncf.io/networks"
	AnnotationNetworkStatus = "k8s.v1.cni.cncf.io/network-status"
	// NFNNetwork is the request of OVN4NFV, OVNInterfaces its answer.
	AnnotationNFNNetwork    = "k8s.plugin.opnfv.org/nfn-network"
	AnnotationOVNInterfaces = "k8s.plugin.opnfv.org/ovnInterfaces"
)

// Request is one interface that a pod asks for.
type Request struct {
	// Annotation and Position, from 1, say where it stands.
	Annotation string
	Position   int

	// Namespace and Name are those of a NetworkAttachmentDefinition; empty with Network or Primary.
	Namespace, Name string
	// Network is the name of a Coelan Network.
	Network string
	// Primary says that it is about the pod's first interface, on any Network.
	Primary bool

	// Interface is its name in the pod; empty with Primary. One that was not named is netN,
	// N being the Position.
	Interface string
	attachment.Requested
	// Ignored are keys that were given and have no effect on a Network of Coelan's. On another
	// plugin's network they may have one.
	Ignored []string
}

// String says where the request stands, for messages.
func (r Request) String() string {
	return fmt.Sprintf("annotation %s, element %d", r.Annotation, r.Position)
}

// Error is what is wrong with an annotation.
type Error struct {
	Annotation string
	Position   int    // of the element, from 1; 0: the whole
	Field      string // in it; empty: the whole
	Value      string // shortened
	Problem    string
}

func (e *Error) Error() string {
	text := "annotation " + e.Annotation
	if e.Position > 0 {
		text += ", element " + strconv.Itoa(e.Position)
	}
	if e.Field != "" {
		text += ", " + e.Field
	}
	return fmt.Sprintf("%s %s: %s", text, e.Value, e.Problem)
}

// maxValue is how many bytes of a value an error shows.
const maxValue = 100

func quote(value string) string {
	if len(value) > maxValue {
		return strconv.Quote(value[:maxValue]) + "…"
	}
	return strconv.Quote(value)
}

// Parse reads the annotations of a pod in the namespace: all interfaces beside the first one, and
// what is asked of the first. Those of AnnotationNetworks come first. The error is an *Error.
func Parse(annotations map[string]string, namespace string) ([]Request, error) {
	list, err := parseNetworks(annotations[AnnotationNetworks], namespace)
	if err != nil {
		return nil, err
	}
	nfn, err := parseNFN(annotations[AnnotationNFNNetwork])
	if err != nil {
		return nil, err
	}
	list = append(list, nfn...)
	return list, checkAll(list)
}

// checkAll returns an error if two requests cannot both be met.
func checkAll(list []Request) error {
	names := map[string]Request{}
	var routed *Request
	for i, r := range list {
		fail := func(field, value, format string, args ...any) error {
			return &Error{r.Annotation, r.Position, field, quote(value), fmt.Sprintf(format, args...)}
		}
		if other, twice := names[r.Interface]; twice && r.Interface != "" {
			return fail("interface", r.Interface, "%s has the same", other)
		}
		names[r.Interface] = r
		if !r.DefaultRoute {
			continue
		}
		if routed != nil && routed.Annotation != r.Annotation {
			return fail("interface", r.Interface, "asks for the default route, which %s has", *routed)
		}
		routed = &list[i]
	}
	return nil
}
