// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/names"
)

// PrimaryNetwork is the name of the Network that pods of a namespace have their first
// interface on, on the named node: the oldest primary Network that selects the namespace, also
// if it is not ready, because another one would be a hole; otherwise what the mapping says. A
// namespace of which nothing is known is nil: nothing selects it. The problem is that several
// Networks select the namespace.
func PrimaryNetwork(mapping config.Mapping, namespace string, known *corev1.Namespace, node string,
	networks []*v1alpha1.Network,
) (string, *Problem) {
	var selecting []*v1alpha1.Network
	for _, n := range networks {
		if known != nil && n.Spec.Role == v1alpha1.Primary && n.Spec.NamespaceSelector != nil && onNode(n, node) &&
			n.Name != intent.DefaultNetworkName && Selects(n.Spec.NamespaceSelector, known) {
			selecting = append(selecting, n)
		}
	}
	slices.SortFunc(selecting, func(a, b *v1alpha1.Network) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	switch {
	case len(selecting) == 1:
		return selecting[0].Name, nil
	case len(selecting) > 1:
		var others []string
		for _, n := range selecting[1:] {
			others = append(others, n.Name)
		}
		return selecting[0].Name, &Problem{
			Object: "namespace " + namespace, Field: "metadata.labels", Reason: Overlap,
			Text: fmt.Sprintf("several primary networks select it: %s, the oldest, has its pods; not %s",
				selecting[0].Name, strings.Join(others, ", ")),
		}
	case mapping == config.MapNamespace:
		return names.NamespaceNetwork(namespace, node), nil
	}
	return intent.DefaultNetworkName, nil
}

// ServiceRouter is the name of the Router of the Network that Services of a namespace are in, as a
// node sees them; "" if that is not known. exists says whether there is a Router of that name.
func ServiceRouter(mapping config.Mapping, namespace string, known *corev1.Namespace, node string,
	networks []*v1alpha1.Network,
	exists func(router string) bool,
) string {
	if known == nil {
		return ""
	}
	name, _ := PrimaryNetwork(mapping, namespace, known, node, networks)
	switch {
	case name == intent.DefaultNetworkName:
		return intent.DefaultRouterName
	case mapping != config.MapNamespace || name != names.NamespaceNetwork(namespace, node):
		for _, n := range networks {
			if n.Name == name {
				return n.Status.Router
			}
		}
		return ""
	case !exists(names.NamespaceRouter(namespace)) && known.Labels[v1alpha1.LabelIsolated] != "true":
		// It has no pods, and so no Router: its Services lead to addresses of others, as that of
		// the API server does.
		return intent.DefaultRouterName
	}
	return names.NamespaceRouter(namespace)
}

// MayAttach says whether pods and Ports of a namespace may be on a Network on the named node. A
// namespace of which nothing is known is nil.
func MayAttach(n *v1alpha1.Network, namespace *corev1.Namespace, node string) bool {
	if owner := n.Labels[v1alpha1.LabelNamespace]; owner != "" &&
		(namespace == nil || owner != names.LabelValue(namespace.Name)) {
		return false // made for another namespace
	}
	if !onNode(n, node) {
		return false
	}
	if n.Spec.NamespaceSelector == nil {
		return true
	}
	return namespace != nil && Selects(n.Spec.NamespaceSelector, namespace)
}

func onNode(n *v1alpha1.Network, node string) bool { return n.Spec.Node == "" || n.Spec.Node == node }

// Selects says whether a selector picks the namespace; one that makes no sense picks none.
func Selects(selector *metav1.LabelSelector, namespace *corev1.Namespace) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(namespace.Labels))
}
