// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/wellknown"
)

// primaryInterface is the one that the labels of a pod speak of.
const primaryInterface = "eth0"

// podSubject is the key of a pod's Subject.
func podSubject(o *corev1.Pod) string {
	uid := wellknown.PodUID(o)
	if intent.IsStaticUID(uid) {
		return intent.StaticPodSubject(o.Namespace, o.Name, uid)
	}
	return intent.PodSubject(uid)
}

// Annotations are those of pods that are read for policies.
func Annotations() []string {
	return []string{v1alpha1.AnnotationSecurityGroups, wellknown.AnnotationConfigHash}
}

// Namespace is what policies see of a namespace.
func Namespace(o *corev1.Namespace) policy.Namespace {
	return policy.Namespace{Name: o.Name, Labels: o.Labels}
}

// Node is what policies see of a node: its addresses of all types, those of the gateways of its
// podCIDRs, and the address in each that own returns, unless own is nil. What cannot be read is
// left out here; Nodes tells of it.
func Node(o *corev1.Node, own func(subnet netip.Prefix) (netip.Addr, bool)) policy.Node {
	n := policy.Node{Name: o.Name, Labels: o.Labels}
	for _, a := range o.Status.Addresses {
		n.Addresses = append(n.Addresses, parseAddresses(a.Address)...)
	}
	for _, s := range translate.PodSubnets(o) {
		n.Addresses = append(n.Addresses, s.Gateway)
		if own == nil {
			continue
		}
		if a, ok := own(s.Prefix); ok {
			n.Addresses = append(n.Addresses, a)
		}
	}
	n.Addresses = sortedAddresses(n.Addresses)
	return n
}

func sortedAddresses(list []netip.Addr) []netip.Addr {
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

// policyPod is what policies need of a pod.
type policyPod struct {
	key, uid   string // of its Subject; in the API
	node       string
	labels     labels.Set
	addresses  []netip.Addr // in the cluster
	namedPorts []policy.NamedPort
	groups     []string
}

// readPolicyPod is nil for a pod that has no interfaces of Coelan's: one of its node's network, one
// that has ended, and one that has no node yet.
func readPolicyPod(o *corev1.Pod) *policyPod {
	if !translate.OnPodNetwork(o) {
		return nil
	}
	p := &policyPod{
		key: podSubject(o), uid: string(o.UID), node: o.Spec.NodeName, labels: o.Labels,
		groups: groupKeys(o.Namespace, strings.Split(o.Annotations[v1alpha1.AnnotationSecurityGroups], ",")),
	}
	for _, ip := range o.Status.PodIPs {
		p.addresses = append(p.addresses, parseAddresses(ip.IP)...)
	}
	named := func(containers []corev1.Container) {
		for _, c := range containers {
			for _, port := range c.Ports {
				protocol, ok := translate.ProtocolOf(port.Protocol)
				if port.Name != "" && ok && translate.IsPort(port.ContainerPort) {
					p.namedPorts = append(p.namedPorts, policy.NamedPort{
						Name: port.Name, Protocol: uint8(protocol), Port: uint16(port.ContainerPort), //nolint:gosec // 1 to 65535
					})
				}
			}
		}
	}
	named(o.Spec.Containers)
	for _, c := range o.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			named([]corev1.Container{c}) // it runs beside the others
		}
	}
	slices.SortFunc(p.namedPorts, func(a, b policy.NamedPort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	p.namedPorts = slices.Compact(p.namedPorts)
	return p
}

// Bounds of what a pod may say in its annotation: of how many SecurityGroups it is, as the
// definition of Ports has it, and how much of a name that is none is kept.
const (
	maxGroups    = 32
	maxGroupName = 253
)

// groupKeys are namespace/name of SecurityGroups of a namespace, sorted. Invalid names, and those
// beyond the limit, are kept as a name that no group has: that closes the endpoint.
func groupKeys(namespace string, names []string) []string {
	var keys []string
	for _, name := range names {
		if name = strings.TrimSpace(name); name != "" {
			keys = append(keys, namespace+"/"+groupName(name))
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if more := len(keys) - maxGroups; more > 0 {
		keys = append(slices.Clone(keys[:maxGroups]), fmt.Sprintf("%s/and %d more", namespace, more))
		slices.Sort(keys)
	}
	return keys
}

// groupName is a name without what cannot be shown, and not too long.
func groupName(name string) string {
	if len(name) > maxGroupName {
		name = name[:maxGroupName] + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, name)
}

// policyPort is what policies need of a Port.
type policyPort struct {
	namespace, name, uid string
	network              string
	pod                  *v1alpha1.PortPod // nil: a user's
	node                 string            // of a pod's Port: the one that has made it
	labels               labels.Set
	groups               []string
	addresses, onNode    []netip.Addr // on its Network; in the cluster
}

func readPolicyPort(o *v1alpha1.Port) *policyPort {
	p := &policyPort{
		namespace: o.Namespace, name: o.Name, uid: string(o.UID), network: o.Spec.Network, pod: o.Spec.Pod,
		addresses: parseAddresses(o.Status.Addresses...), onNode: parseAddresses(o.Status.NodeAddresses...),
	}
	p.node = cmp.Or(o.Spec.Node, o.Status.Node)
	if p.pod == nil {
		p.node, p.labels = cmp.Or(o.Status.Node, o.Spec.Node), o.Labels
		p.groups = groupKeys(o.Namespace, o.Spec.SecurityGroups)
	}
	return p
}

// parseAddresses leaves out what no packet has: nodes are told of addresses without zones, and take
// nothing of which there are two.
func parseAddresses(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil && !a.Is4In6() && a.Zone() == "" {
			list = append(list, a)
		}
	}
	return list
}

// places are where the addresses of a Port are, in the spaces that its Network is seen in.
func (p *policyPort) places(spaces []string) []policy.Place {
	secondary := p.pod != nil && p.pod.Interface != primaryInterface
	var places []policy.Place
	for _, space := range spaces {
		for _, a := range p.addresses {
			places = append(places, policy.Place{Space: space, Address: a, Secondary: secondary})
		}
	}
	return append(places, inCluster(p.onNode, secondary)...)
}

func inCluster(addresses []netip.Addr, secondary bool) []policy.Place {
	var places []policy.Place
	for _, a := range addresses {
		places = append(places, policy.Place{Space: intent.DefaultRouterName, Address: a, Secondary: secondary})
	}
	return places
}

// sortPlaces puts places into order, each once.
func sortPlaces(places []policy.Place) []policy.Place {
	slices.SortFunc(places, func(a, b policy.Place) int {
		return cmp.Or(cmp.Compare(a.Space, b.Space), a.Address.Compare(b.Address),
			translate.TrueFirst(!a.Secondary, !b.Secondary))
	})
	return slices.CompactFunc(places, func(a, b policy.Place) bool {
		return a.Space == b.Space && a.Address == b.Address
	})
}

// policySpaces are, by the name of a Network, the spaces in which the addresses on it mean
// something: that of its Router, and those of Routers that import its routes. Physical
// networks are in none.
func policySpaces(routers []*v1alpha1.Router, networks []*v1alpha1.Network) map[string][]string {
	of, on, _ := translate.Networks(routers, networks)
	own := make(map[string]string, len(of))
	for _, r := range of {
		own[r.Name] = r.Name
		if r.Shared {
			own[r.Name] = intent.DefaultRouterName
		}
	}
	seen := map[string][]string{}
	for _, r := range of {
		for _, from := range append(r.Imports, r.Name) {
			seen[from] = append(seen[from], own[r.Name])
		}
	}
	spaces := make(map[string][]string, len(on))
	for router, list := range seen {
		slices.Sort(list)
		seen[router] = slices.Compact(list)
	}
	for _, n := range on {
		spaces[n.Name] = seen[n.Router]
	}
	return spaces
}
