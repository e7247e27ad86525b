// SPDX-License-Identifier: Apache-2.0

package translate

import (
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
// if it is not ready, because another one would be a hole; otherwise the one that the controller
// has made for the namespace with subnets of its own, unless that is being deleted; otherwise what
// the mapping says. A namespace of which nothing is known is nil: nothing selects it. The problem
// is that several Networks select the namespace.
func PrimaryNetwork(mapping config.Mapping, namespace string, known *corev1.Namespace, node string,
	networks []*v1alpha1.Network,
) (string, *Problem) {
	var selecting, made []*v1alpha1.Network
	for _, n := range networks {
		switch owner := MadeFor(n); {
		case known == nil || n.Spec.Role != v1alpha1.Primary || n.Spec.NamespaceSelector == nil || !onNode(n, node) ||
			n.Name == intent.DefaultNetworkName:
		case owner != "" && owner != namespace: // there may be one for each namespace
		case !Selects(n.Spec.NamespaceSelector, known):
		case owner == "":
			selecting = append(selecting, n)
		case n.DeletionTimestamp == nil:
			made = append(made, n)
		}
	}
	slices.SortFunc(selecting, Older)
	slices.SortFunc(made, Older)
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
	case len(made) > 0:
		return made[0].Name, nil
	case mapping == config.MapNamespace:
		return names.NamespaceNetwork(namespace, node), nil
	}
	return intent.DefaultNetworkName, nil
}

// MadeFor is the namespace that the controller has made a Network or Router for; empty: none.
func MadeFor(o metav1.Object) string {
	if o.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedByController {
		return ""
	}
	return o.GetLabels()[v1alpha1.LabelNamespace]
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
	own := mapping == config.MapNamespace && name == names.NamespaceNetwork(namespace, node)
	if i := slices.IndexFunc(networks, func(n *v1alpha1.Network) bool { return n.Name == name }); i >= 0 && !own {
		if MadeFor(networks[i]) != namespace {
			return networks[i].Status.Router
		}
		own = true
	}
	switch {
	case name == intent.DefaultNetworkName:
		return intent.DefaultRouterName
	case !own:
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
