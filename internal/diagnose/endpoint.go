// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Endpoint is one end of a packet's way as a user names it.
type Endpoint struct {
	// Pod is namespace/name, of a pod or a Port; empty for an address.
	Pod string
	// Interface is the Port's, as its agent names it; empty: it is the pod's first one.
	Interface string
	Addresses []netip.Addr
	Port      uint16
	// Outside says that the address is outside of the cluster, and the packet comes from there by
	// an external Network.
	Outside bool
	// Node is that of the pod, or answers for the floating IP.
	Node string
	// Host says that the pod uses its node's network.
	Host bool
	// Router is that of the pod's first interface; Own are its addresses there, if the pod has
	// others for its node.
	Router string
	Own    []netip.Addr
}

// ParseEndpoint reads POD, NAMESPACE/POD, or an address, each with a port behind a colon if need
// be; an IPv6 address with a port is in brackets. A pod without a namespace is in the given one. A
// POD may be a Port.
func ParseEndpoint(text, namespace string) (Endpoint, error) {
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return Endpoint{Addresses: []netip.Addr{ap.Addr().Unmap()}, Port: ap.Port()}, nil
	}
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return Endpoint{Addresses: []netip.Addr{a.Unmap()}}, nil
	}
	name, port, hasPort := strings.Cut(text, ":")
	var e Endpoint
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return Endpoint{}, fmt.Errorf("%q: port %q is not a number from 1 to 65535", text, port)
		}
		e.Port = uint16(n)
	}
	ns, pod, hasNamespace := strings.Cut(name, "/")
	if !hasNamespace {
		ns, pod = namespace, name
	}
	if ns == "" || pod == "" || strings.Contains(pod, "/") {
		return Endpoint{}, fmt.Errorf("%q is neither an address nor POD, NAMESPACE/POD, with :PORT behind it if need be", text)
	}
	e.Pod = ns + "/" + pod
	return e, nil
}

// Resolve fills in what the API knows of the pod, or which node has the Port.
func (c *Cluster) Resolve(ctx context.Context, e Endpoint) (Endpoint, error) {
	if e.Pod == "" {
		return e, nil
	}
	ns, name, _ := strings.Cut(e.Pod, "/")
	pod, err := c.client.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return findPort(ctx, c, e)
	}
	if err != nil {
		return e, fmt.Errorf("pod %s: %w", e.Pod, err)
	}
	return ofPod(e, pod)
}

// findPort finds the node that has a Port of the name.
func findPort(ctx context.Context, agents Agents, e Endpoint) (Endpoint, error) {
	nodes, err := agents.Nodes(ctx)
	errs := []error{err}
	for _, node := range nodes {
		ports, err := Ports(ctx, agents, node)
		errs = append(errs, err)
		for _, p := range ports {
			if p.PortKey() == e.Pod {
				e.Node, e.Interface = node, p.PodRef()
				return e, nil
			}
		}
	}
	return e, errors.Join(append([]error{fmt.Errorf("no pod is called %s, and no node has a Port of this name", e.Pod)},
		errs...)...)
}

func ofPod(e Endpoint, pod *corev1.Pod) (Endpoint, error) {
	if len(pod.Status.PodIPs) == 0 {
		return e, fmt.Errorf("pod %s has no address yet (phase %s); `kubectl describe pod` says why", e.Pod,
			pod.Status.Phase)
	}
	for _, ip := range pod.Status.PodIPs {
		a, err := netip.ParseAddr(ip.IP)
		if err != nil {
			return e, fmt.Errorf("pod %s: address: %w", e.Pod, err)
		}
		e.Addresses = append(e.Addresses, a)
	}
	e.Node, e.Host = pod.Spec.NodeName, pod.Spec.HostNetwork
	return e, nil
}

// errFamilies is returned where the two ends have no family in common.
var errFamilies = errors.New("source and destination have no address of the same family")

// Locate fills in what the agents know of a pod's or a Port's network. Pods in a private
// Router are known to the API by addresses that stand for them on their nodes; among
// themselves they use their own.
func Locate(ctx context.Context, agents Agents, e Endpoint) (Endpoint, error) {
	if e.Pod == "" || e.Host || e.Node == "" {
		return e, nil
	}
	ports, err := Ports(ctx, agents, e.Node)
	if err != nil {
		return e, err
	}
	networks, err := Networks(ctx, agents, e.Node)
	if err != nil {
		return e, err
	}
	for _, p := range ports {
		if e.Interface != "" && p.PodRef() != e.Interface || e.Interface == "" &&
			(p.PodNamespace+"/"+p.PodName != e.Pod || !p.Primary) {
			continue
		}
		if e.Interface != "" {
			e.Addresses = addressesOf(p.Addresses)
			if len(p.NodeAddresses) > 0 {
				e.Addresses = addressesOf(p.NodeAddresses)
			}
		}
		for _, n := range networks {
			if n.Name == p.NetworkName {
				e.Router = n.Router
			}
		}
		if len(p.NodeAddresses) > 0 {
			e.Own = addressesOf(p.Addresses)
		}
	}
	return e, nil
}

func addressesOf(prefixes []netip.Prefix) []netip.Addr {
	list := make([]netip.Addr, len(prefixes))
	for i, p := range prefixes {
		list[i] = p.Addr()
	}
	return list
}

// leaving are the addresses that packets of the end leave it with; reached are those by which
// another end reaches it.
func (e Endpoint) leaving() []netip.Addr {
	if len(e.Own) > 0 {
		return e.Own
	}
	return e.Addresses
}

func (e Endpoint) reached(from Endpoint) []netip.Addr {
	if e.Router != "" && e.Router == from.Router {
		return e.leaving()
	}
	return e.Addresses
}

// NewPacket is the packet between two resolved ends: the first family that both have, or IPv6 if
// that is asked for.
func NewPacket(from, to Endpoint, v6 bool) (Packet, error) {
	if from.Pod == "" && !from.Outside {
		return Packet{}, errors.New("the source has to be a pod or a Port, or outside:ADDRESS")
	}
	if from.Host {
		return Packet{}, fmt.Errorf("pod %s uses its node's network: its packets are routed by the node's kernel first",
			from.Pod)
	}
	p := Packet{Node: from.Node, From: cmp.Or(from.Interface, from.Pod), DestinationPort: to.Port}
	if from.Outside {
		p.Node, p.From = to.Node, "outside"
	}
	for _, dst := range to.reached(from) {
		for _, src := range from.leaving() {
			if src.Is4() == dst.Is4() && (!v6 || dst.Is6()) && !p.Source.IsValid() {
				p.Source, p.Destination = src, dst
			}
		}
	}
	if !p.Source.IsValid() {
		return Packet{}, errFamilies
	}
	return p, nil
}
