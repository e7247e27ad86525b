// SPDX-License-Identifier: Apache-2.0

// Package world draws clusters with policies, for tests: few namespaces, labels, addresses and
// ports, so that they often meet.
package world

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/policy/oracle"
)

// World is a Cluster, the Routers and Networks of its pods and Ports, and the Ends that connections
// may have in each space that addresses mean something in.
type World struct {
	oracle.Cluster

	routers  []*v1alpha1.Router
	networks []*v1alpha1.Network
	podPorts []*v1alpha1.Port // as agents make them for pods
	blocks   []*v1alpha1.AddressBlock
	Ends     map[string][]oracle.End
}

func pick[T any](t *rapid.T, label string, from ...T) T {
	return rapid.SampledFrom(from).Draw(t, label)
}

// sometimes is true once in n times.
func sometimes(t *rapid.T, label string, n int) bool {
	return rapid.IntRange(0, n-1).Draw(t, label) == n-1
}

// Two nodes: each with a pod range of the cluster, of which the first address is the node's, and
// with addresses of its own.
func (w *World) drawNodes(t *rapid.T) {
	for n := 1; n <= 2; n++ {
		o := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", n), Labels: drawLabels(t, "zone", "n1", "n2")},
			Spec: corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.244.%d.0/24", n),
				fmt.Sprintf("fd00:244:%d::/64", n)}},
		}
		for _, a := range []string{fmt.Sprintf("192.0.2.%d", n), fmt.Sprintf("2001:db8:2::%d", n)} {
			o.Status.Addresses = append(o.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
			w.end(intent.DefaultRouterName, oracle.End{Node: o}, a)
			w.end(intent.DefaultRouterName, oracle.End{Node: o, Masked: true}, a)
		}
		w.end(intent.DefaultRouterName, oracle.End{Node: o}, fmt.Sprintf("10.244.%d.1", n),
			fmt.Sprintf("fd00:244:%d::1", n))
		w.end(intent.DefaultRouterName, oracle.End{Node: o, Masked: true}, fmt.Sprintf("10.244.%d.1", n),
			fmt.Sprintf("fd00:244:%d::1", n))
		w.Nodes = append(w.Nodes, o)
	}
}

func (w *World) end(space string, e oracle.End, addresses ...string) {
	for _, a := range addresses {
		e.Address = netip.MustParseAddr(a)
		w.Ends[space] = append(w.Ends[space], e)
	}
}

// drawLabels has one of the values for the key, or not the key; and so another key.
func drawLabels(t *rapid.T, key string, values ...string) map[string]string {
	labels := map[string]string{}
	if v := pick(t, key, append(values, "")...); v != "" {
		labels[key] = v
	}
	if rapid.Bool().Draw(t, "extra") {
		labels["extra"] = pick(t, "extra's value", "", "yes")
	}
	return labels
}

var namespaces = []string{"a", "b", "c"}

// The Routers red and blue are private, and may exchange routes; green is shared.
func (w *World) drawNetworks(t *rapid.T) (spaces map[string][]string) {
	router := func(name string, id int32, imports, exports []string) {
		w.routers = append(w.routers, &v1alpha1.Router{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.RouterStatus{ID: id},
			Spec: v1alpha1.RouterSpec{ImportRouteTargets: imports, ExportRouteTargets: exports},
		})
		w.networks = append(w.networks, &v1alpha1.Network{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-net"},
			Status:     v1alpha1.NetworkStatus{ID: id + 10, Router: name},
			Spec: v1alpha1.NetworkSpec{Type: v1alpha1.Overlay, Router: name,
				Subnets: subnets(networkNumber[name+"-net"])},
		})
	}
	spaces = map[string][]string{"default": {intent.DefaultRouterName}, "green-net": {intent.DefaultRouterName},
		"red-net": {"red"}, "blue-net": {"blue"}}
	var red, blue []string
	if rapid.Bool().Draw(t, "red and blue exchange routes") {
		red, blue = []string{"64512:11"}, []string{"64512:12"}
		spaces["red-net"], spaces["blue-net"] = []string{"red", "blue"}, []string{"red", "blue"}
	}
	router("red", 5, blue, red)
	router("blue", 6, red, blue)
	router("green", 7, []string{v1alpha1.DefaultRouteTarget}, []string{v1alpha1.DefaultRouteTarget})
	return spaces
}

// subnets are handed out in blocks of four addresses.
func subnets(network int) []v1alpha1.Subnet {
	return []v1alpha1.Subnet{
		{CIDR: fmt.Sprintf("10.%d.0.0/16", network), BlockPrefixLength: 30},
		{CIDR: fmt.Sprintf("fd00:%d::/64", network), BlockPrefixLength: 126},
	}
}

// pair is an address of each family, in a block that has none of another host.
func pair(network, host int) []string {
	return []string{fmt.Sprintf("10.%d.0.%d", network, 10+4*host), fmt.Sprintf("fd00:%d::%d", network, 10+4*host)}
}

var networkNumber = map[string]int{"red-net": 9, "blue-net": 10, "green-net": 8}

func (w *World) drawPods(t *rapid.T, spaces map[string][]string) {
	for i := range rapid.IntRange(2, 5).Draw(t, "pods") {
		node := rapid.IntRange(1, 2).Draw(t, "node")
		name := fmt.Sprint("p", i)
		o := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: pick(t, "namespace", namespaces...), Name: name,
				Labels: drawLabels(t, "app", "web", "db")},
			Spec: corev1.PodSpec{NodeName: fmt.Sprint("n", node),
				Containers: []corev1.Container{{Ports: drawContainerPorts(t)}, {Ports: drawContainerPorts(t)}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
		o.UID = types.UID(fmt.Sprint(o.Namespace, "/", name, "/", rapid.IntRange(1, 2).Draw(t, "made again")))
		if groups := drawGroups(t); len(groups) > 0 {
			o.Annotations = map[string]string{v1alpha1.AnnotationSecurityGroups: strings.Join(groups, ", ")}
		}
		w.Pods = append(w.Pods, o)
		ips := []string{fmt.Sprintf("10.244.%d.%d", node, 10+i), fmt.Sprintf("fd00:244:%d::%d", node, 10+i)}
		for _, ip := range ips {
			o.Status.PodIPs = append(o.Status.PodIPs, corev1.PodIP{IP: ip})
		}
		eth0 := oracle.End{Pod: o, Interface: "eth0"}
		w.end(intent.DefaultRouterName, eth0, ips...)
		switch network := pick(t, "network of eth0", "default", "default", "red-net", "green-net"); {
		case network == "red-net" || network == "green-net":
			w.onNetwork(t, spaces, eth0, network, i, ips)
		case rapid.Bool().Draw(t, "Port is known"):
			w.podPorts = append(w.podPorts, portOf(eth0, "default", ips, nil))
		}
		if sometimes(t, "second interface", 3) {
			network := pick(t, "network of net1", "red-net", "blue-net", "green-net")
			onNode := []string{fmt.Sprintf("10.244.%d.%d", node, 100+i), fmt.Sprintf("fd00:244:%d::%d", node, 100+i)}
			net1 := oracle.End{Pod: o, Interface: "net1"}
			w.end(intent.DefaultRouterName, net1, onNode...)
			w.onNetwork(t, spaces, net1, network, 20+i, onNode)
		}
	}
	w.drawOthers(t)
}

// onNetwork has an end's addresses on a Network, besides those that the cluster knows it by.
func (w *World) onNetwork(t *rapid.T, spaces map[string][]string, e oracle.End, network string, host int,
	onNode []string,
) {
	addresses := pair(networkNumber[network], host)
	for _, space := range spaces[network] {
		w.end(space, e, addresses...)
	}
	for _, a := range addresses {
		w.claim(t, e, network, netip.MustParseAddr(a))
	}
	if e.Pod != nil {
		w.podPorts = append(w.podPorts, portOf(e, network, addresses, onNode))
	}
}

// claim makes an address that of the pod's node: by a block around it, or by one for its Port
// alone. The controller claims for users' Ports.
func (w *World) claim(t *rapid.T, e oracle.End, network string, a netip.Addr) {
	prefix := netip.PrefixFrom(a, a.BitLen())
	o := &v1alpha1.AddressBlock{Spec: v1alpha1.AddressBlockSpec{Network: network}}
	if e.Pod != nil {
		o.Spec.Node = e.Pod.Spec.NodeName
	}
	switch {
	case e.Pod == nil:
		o.Spec.Port = e.Port.Namespace + "/" + e.Port.Name
	case rapid.Bool().Draw(t, "claimed for the Port"):
		o.Spec.Port = e.Pod.Namespace + "/" + e.Pod.Name + "." + e.Interface
	default:
		prefix, _ = a.Prefix(a.BitLen() - 2) // the length of the Network's blocks
	}
	o.Name, o.Spec.CIDR = names.BlockName(network, prefix), prefix.String()
	w.blocks = append(w.blocks, o)
}

// OnDefault says whether an end is a pod's interface on the default network.
func (w *World) OnDefault(e oracle.End) bool {
	return e.Pod != nil && e.Interface == "eth0" && !slices.ContainsFunc(w.podPorts, func(p *v1alpha1.Port) bool {
		return p.Spec.Pod.UID == string(e.Pod.UID) && p.Spec.Pod.Interface == "eth0" &&
			p.Spec.Network != intent.DefaultNetworkName
	})
}

func portOf(e oracle.End, network string, addresses, onNode []string) *v1alpha1.Port {
	return &v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Pod.Namespace, Name: e.Pod.Name + "." + e.Interface},
		Spec: v1alpha1.PortSpec{Network: network, Node: e.Pod.Spec.NodeName,
			Pod: &v1alpha1.PortPod{Name: e.Pod.Name, UID: string(e.Pod.UID), Interface: e.Interface}},
		Status: v1alpha1.PortStatus{Addresses: addresses, NodeAddresses: onNode, Node: e.Pod.Spec.NodeName},
	}
}

// drawOthers are a pod that has ended, the addresses of which a running one has now, and one of its
// node's network: nothing selects them.
func (w *World) drawOthers(t *rapid.T) {
	ended := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pick(t, "namespace of the ended", namespaces...), Name: "ended",
			UID: "ended", Labels: drawLabels(t, "app", "web", "db")},
		Spec: w.Pods[0].Spec, Status: corev1.PodStatus{Phase: pick(t, "phase", corev1.PodSucceeded,
			corev1.PodFailed), PodIPs: w.Pods[0].Status.PodIPs},
	}
	onHost := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pick(t, "namespace on the host", namespaces...), Name: "host",
			UID: "host", Labels: drawLabels(t, "app", "web", "db")},
		Spec: corev1.PodSpec{NodeName: "n1", HostNetwork: true,
			Containers: []corev1.Container{{Ports: drawContainerPorts(t)}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning,
			PodIPs: []corev1.PodIP{{IP: "192.0.2.1"}, {IP: "2001:db8:2::1"}}},
	}
	w.Pods = append(w.Pods, ended, onHost)
}

func drawContainerPorts(t *rapid.T) []corev1.ContainerPort {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) corev1.ContainerPort {
		return corev1.ContainerPort{
			Name:          pick(t, "port name", "http", "http", "dns", ""),
			ContainerPort: pick(t, "container port", int32(80), 8080, 53),
			Protocol:      pick(t, "port protocol", "", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP),
		}
	}), 0, 2).Draw(t, "container ports")
}

func drawGroups(t *rapid.T) []string {
	if !sometimes(t, "groups", 4) {
		return nil
	}
	if sometimes(t, "a group that does not exist", 8) {
		return []string{"g1", "lost"}
	}
	return pick(t, "group names", []string{"g1"}, []string{"g2"}, []string{"g2", "g1"})
}

func (w *World) drawPorts(t *rapid.T, spaces map[string][]string) {
	for i := range rapid.IntRange(0, 2).Draw(t, "machines") {
		node, network := rapid.IntRange(1, 2).Draw(t, "node"), pick(t, "network", "red-net", "blue-net", "green-net")
		o := &v1alpha1.Port{
			ObjectMeta: metav1.ObjectMeta{Namespace: pick(t, "namespace", namespaces...), Name: fmt.Sprint("vm", i),
				Labels: drawLabels(t, "app", "web", "db")},
			Spec:   v1alpha1.PortSpec{Network: network, SecurityGroups: drawGroups(t)},
			Status: v1alpha1.PortStatus{Addresses: pair(networkNumber[network], 40+i), Node: fmt.Sprint("n", node)},
		}
		e := oracle.End{Port: o}
		if network != "green-net" {
			o.Status.NodeAddresses = []string{fmt.Sprintf("10.244.%d.%d", node, 60+i),
				fmt.Sprintf("fd00:244:%d::%d", node, 60+i)}
			w.end(intent.DefaultRouterName, e, o.Status.NodeAddresses...)
		}
		w.onNetwork(t, spaces, e, network, 40+i, nil)
		w.Ports = append(w.Ports, o)
	}
}

// Draw draws one.
func Draw(t *rapid.T) *World {
	w := &World{Ends: map[string][]oracle.End{}}
	for _, name := range namespaces {
		labels := drawLabels(t, "team", "x", "y")
		labels[corev1.LabelMetadataName] = name
		w.Namespaces = append(w.Namespaces,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	w.drawNodes(t)
	spaces := w.drawNetworks(t)
	w.drawPods(t, spaces)
	w.drawPorts(t, spaces)
	for _, space := range []string{intent.DefaultRouterName, "red", "blue"} {
		w.end(space, oracle.End{}, "203.0.113.9", "203.0.113.99", "2001:db8:113::9", "10.9.0.200", "fd00:9::200")
	}
	w.drawPolicies(t)
	return w
}
