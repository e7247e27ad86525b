// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/translate"
)

// NamespaceObjects are the Routers and Networks that the mapping by namespace wants: a Router for
// each namespace with a pod, and a Network for each of its nodes, sorted by name. As the COE
// integration maps them, the first is the vpn-instance of the namespace and the second the
// elan-instance of namespace and node. If Networks get subnets of pools, each namespace has one for
// all nodes instead, of which the subnets are chosen when it is made (NextSubnet).
//
// Only pods count that have an address of the pod network and are on a node that is there: what
// hostNetwork pods, ended pods and pods of a lost node need is nothing. A namespace that one of the
// networks selects has its pods on that one.
func NamespaceObjects(pods []*corev1.Pod, namespaces []*corev1.Namespace, nodes []*corev1.Node,
	networks []*v1alpha1.Network, pooled bool,
) (routers []*v1alpha1.Router, segments []*v1alpha1.Network) {
	nodeOf := map[string]*corev1.Node{}
	for _, n := range nodes {
		nodeOf[n.Name] = n
	}
	wanted := map[string]map[string]bool{} // namespace, node
	for _, p := range pods {
		if !translate.OnPodNetwork(p) || nodeOf[p.Spec.NodeName] == nil {
			continue
		}
		if wanted[p.Namespace] == nil {
			wanted[p.Namespace] = map[string]bool{}
		}
		wanted[p.Namespace][p.Spec.NodeName] = true
	}
	selecting := slices.DeleteFunc(slices.Clone(networks), func(n *v1alpha1.Network) bool {
		return n.Spec.NamespaceSelector == nil || translate.MadeFor(n) != ""
	})
	for _, ns := range namespaces {
		own := false
		for node := range wanted[ns.Name] {
			name, _ := translate.PrimaryNetwork(config.MapNamespace, ns.Name, ns, node, selecting)
			if name != names.NamespaceNetwork(ns.Name, node) {
				continue
			}
			if !own {
				own = true
				routers = append(routers, namespaceRouter(ns))
			} else if pooled {
				continue
			}
			if pooled {
				segments = append(segments, pooledNetwork(ns.Name, networks))
			} else {
				segments = append(segments, namespaceNetwork(ns.Name, nodeOf[node]))
			}
		}
	}
	slices.SortFunc(routers, func(a, b *v1alpha1.Router) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(segments, func(a, b *v1alpha1.Network) int { return cmp.Compare(a.Name, b.Name) })
	return routers, segments
}

func namespaceRouter(ns *corev1.Namespace) *v1alpha1.Router {
	r := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{
		Name: names.NamespaceRouter(ns.Name),
		Labels: map[string]string{
			v1alpha1.LabelManagedBy: v1alpha1.ManagedByController,
			v1alpha1.LabelNamespace: ns.Name,
		},
		Annotations: map[string]string{v1alpha1.AnnotationVPN: ns.Name},
		Finalizers:  []string{v1alpha1.FinalizerInUse},
	}}
	target := v1alpha1.DefaultRouteTarget
	if ns.Labels[v1alpha1.LabelIsolated] == "true" {
		target = ownRouteTarget(ns.Name)
	}
	r.Spec.ImportRouteTargets, r.Spec.ExportRouteTargets = []string{target}, []string{target}
	return r
}

// ownRouteTarget is one that no other namespace has, so that others can import it if they are
// configured to: a number of an autonomous system for private use (RFC 6996: 4200000000 to
// 4294967294) and 16 bits (RFC 5668), both from a hash.
func ownRouteTarget(namespace string) string {
	const first, count = 4200000000, 94967295
	sum := sha256.Sum256([]byte(namespace))
	return fmt.Sprintf("%d:%d", first+binary.BigEndian.Uint64(sum[:])%count, binary.BigEndian.Uint16(sum[8:]))
}

func namespaceNetwork(namespace string, node *corev1.Node) *v1alpha1.Network {
	n := &v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{
			Name: names.NamespaceNetwork(namespace, node.Name),
			Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedByController,
				v1alpha1.LabelNamespace: namespace,
				v1alpha1.LabelNode:      names.LabelValue(node.Name),
			},
			Annotations: map[string]string{v1alpha1.AnnotationVPN: namespace},
			Finalizers:  []string{v1alpha1.FinalizerInUse},
		},
		Spec: v1alpha1.NetworkSpec{
			Type: v1alpha1.Overlay, Role: v1alpha1.Primary, IPAM: v1alpha1.PodCIDR,
			Router: names.NamespaceRouter(namespace), Node: node.Name,
		},
	}
	if ip := internalIP(node); ip != "" {
		n.Annotations[v1alpha1.AnnotationELAN] = ip + ":" + namespace
	}
	return n
}

// pooledNetwork is the Network of a namespace with subnets of its own, without these.
func pooledNetwork(namespace string, networks []*v1alpha1.Network) *v1alpha1.Network {
	return &v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{
			Name: pooledName(namespace, networks),
			Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedByController,
				v1alpha1.LabelNamespace: namespace,
			},
			Annotations: map[string]string{v1alpha1.AnnotationVPN: namespace},
			Finalizers:  []string{v1alpha1.FinalizerInUse},
		},
		Spec: v1alpha1.NetworkSpec{
			Type: v1alpha1.Overlay, Role: v1alpha1.Primary, IPAM: v1alpha1.Blocks,
			Router: names.NamespaceRouter(namespace),
			NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: namespace},
			},
		},
	}
}

// pooledName is the name of such a Network: of the one that is there, or of a new one. One that is
// being deleted keeps its name until the last of its pods is gone, and the next pods do not wait
// for that.
func pooledName(namespace string, networks []*v1alpha1.Network) string {
	leaving := map[string]string{} // UIDs by name
	for _, n := range slices.SortedFunc(slices.Values(networks), translate.Older) {
		switch {
		case translate.MadeFor(n) != namespace || n.Spec.NamespaceSelector == nil:
		case n.DeletionTimestamp == nil:
			return n.Name
		default:
			leaving[n.Name] = string(n.UID)
		}
	}
	name := names.NamespaceRouter(namespace)
	for uid, taken := leaving[name]; taken; uid, taken = leaving[name] {
		name = names.NamespaceNetwork(namespace, uid)
	}
	return name
}

// internalIP is the node's first one, "" if it has none yet.
func internalIP(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			return ip.String()
		}
	}
	return ""
}
