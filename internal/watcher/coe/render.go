// SPDX-License-Identifier: Apache-2.0

package coe

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// DefaultNetworkID is the network of every pod, as COE's watcher sent it.
const DefaultNetworkID = "00000000-0000-0000-0000-000000000000"

// Renderer has what the entries of a cluster have in common.
type Renderer struct {
	ClusterID string // UUID
	NetworkID string // of the pods' interfaces; usually DefaultNetworkID
	// Networks are the names at the controller of the networks that further interfaces of pods are
	// on, by those in AnnotationNetworkStatus. Interfaces on others are left out.
	Networks map[string]string
	// HostNetwork includes pods on their node's network.
	HostNetwork bool
}

// Cluster is the entry of the cluster itself.
func (r Renderer) Cluster() Entry { return Entry{clusterID: r.ClusterID} }

// Node is the entry of a node. Of several addresses of a type it has the first, as the model does.
func (r Renderer) Node(n *corev1.Node) Entry {
	e := Entry{uid: string(n.UID), clusterID: r.ClusterID, "host-name": n.Name}
	for leaf, of := range map[string]corev1.NodeAddressType{
		"internal-ip-address": corev1.NodeInternalIP, "external-ip-address": corev1.NodeExternalIP,
	} {
		i := slices.IndexFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == of })
		if i >= 0 {
			e[leaf] = n.Status.Addresses[i].Address
		}
	}
	e.put("pod-cidr", n.Spec.PodCIDR)
	return e
}

// Pod is the entry of a pod, with an interface for each of its addresses; nil if it has none, or
// has ended and may have lost them to another.
func (r Renderer) Pod(p *corev1.Pod) Entry {
	ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	if ended || p.Spec.HostNetwork && !r.HostNetwork || len(p.Status.PodIPs) == 0 {
		return nil
	}
	e := Entry{uid: string(p.UID), clusterID: r.ClusterID, name: p.Name, namespace: p.Namespace}
	e.put("host-ip-address", p.Status.HostIP)
	var interfaces []Entry
	for i, ip := range p.Status.PodIPs {
		interfaces = append(interfaces, Entry{
			uid: interfaceUID(string(p.UID), i), ipAddress: ip.IP, "network-id": r.NetworkID, "network-type": "VXLAN",
		})
	}
	e["interface"] = append(interfaces, r.further(p)...)
	return e
}

// AnnotationNetworkStatus on a pod has its interfaces, as the Network Plumbing Working Group says.
const AnnotationNetworkStatus = "k8s.v1.cni.cncf.io/network-status"

// further are the pod's interfaces beside the first one: an entry for each address. What is in the
// annotation and is none is left out.
func (r Renderer) further(p *corev1.Pod) []Entry {
	var status []struct {
		Name      string   `json:"name"`
		Interface string   `json:"interface"`
		IPs       []string `json:"ips"`
		Default   bool     `json:"default"`
	}
	text := p.Annotations[AnnotationNetworkStatus]
	space, err := uuid.Parse(string(p.UID))
	if len(r.Networks) == 0 || text == "" || err != nil || json.Unmarshal([]byte(text), &status) != nil {
		return nil
	}
	var list []Entry
	seen := map[string]bool{}
	for _, s := range status {
		id := r.Networks[s.Name]
		if s.Default || id == "" || s.Interface == "" || seen[s.Interface] {
			continue
		}
		seen[s.Interface] = true
		for i, text := range s.IPs {
			ip, err := netip.ParseAddr(text)
			if err != nil || ip.Zone() != "" {
				continue
			}
			name := "interface " + s.Interface + " address " + strconv.Itoa(i)
			list = append(list, Entry{
				uid: uuid.NewSHA1(space, []byte(name)).String(), ipAddress: ip.Unmap().String(), "network-id": id,
			})
		}
	}
	return list
}

// interfaceUID is the pod's uid for the first interface, as COE's watcher had it. The model has one
// address for an interface, so that a second address needs another.
func interfaceUID(pod string, i int) string {
	space, err := uuid.Parse(pod)
	if i == 0 || err != nil {
		return pod
	}
	return uuid.NewSHA1(space, []byte("address "+strconv.Itoa(i))).String()
}

// Service is the entry of a Service. The model has no protocol of a port, and one cluster IP.
func (r Renderer) Service(s *corev1.Service) Entry {
	e := Entry{uid: string(s.UID), clusterID: r.ClusterID, name: s.Name, namespace: s.Namespace}
	if s.Spec.ClusterIP != corev1.ClusterIPNone {
		e.put("cluster-ip-address", s.Spec.ClusterIP)
	}
	e.put("load-balancer-IP", s.Spec.LoadBalancerIP)
	e.putAll("external-ip-address", s.Spec.ExternalIPs)
	var ingress []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		if i.IP != "" {
			ingress = append(ingress, i.IP)
		}
	}
	e.putAll("ingress-ip-address", ingress)
	var ports []Entry
	for _, p := range s.Spec.Ports {
		ports = append(ports, Entry{
			name: p.Name, port: int(p.Port), "target-port": p.TargetPort.String(), "node-port": int(p.NodePort),
		})
	}
	if len(ports) > 0 {
		e["service-ports"] = ports
	}
	return e
}

// Endpoints is the entry of a Service's endpoints that are ready, of all its slices and families;
// nil if it has no slices.
func (r Renderer) Endpoints(s *corev1.Service, list []*discoveryv1.EndpointSlice) Entry {
	if len(list) == 0 {
		return nil
	}
	addresses, ports := map[string]Entry{}, map[string]Entry{}
	for _, slice := range list {
		if slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for i := range slice.Endpoints {
			addAddresses(addresses, &slice.Endpoints[i])
		}
		for _, p := range slice.Ports {
			if p.Port == nil {
				continue // all ports, which the model cannot say
			}
			e := Entry{name: deref(p.Name), port: int(*p.Port)}
			ports[deref(p.Name)+" "+strconv.Itoa(int(*p.Port))] = e
		}
	}
	e := Entry{uid: string(s.UID), name: s.Name, namespace: s.Namespace}
	e.putEntries("endpoint-addresses", addresses)
	e.putEntries("endpoint-ports", ports)
	return e
}

func addAddresses(all map[string]Entry, endpoint *discoveryv1.Endpoint) {
	if ready := endpoint.Conditions.Ready; ready != nil && !*ready {
		return
	}
	for _, a := range endpoint.Addresses {
		e := Entry{ipAddress: a}
		e.put("host-name", deref(endpoint.Hostname))
		e.put("node-name", deref(endpoint.NodeName))
		all[a] = e
	}
}

func deref(s *string) string { return *cmp.Or(s, new(string)) }

// put sets a leaf that has a value.
func (e Entry) put(leaf, value string) {
	if value = strings.TrimSpace(value); value != "" {
		e[leaf] = value
	}
}

func (e Entry) putAll(leaf string, values []string) {
	if len(values) > 0 {
		e[leaf] = values
	}
}

// putEntries sets a list, in the order of the keys.
func (e Entry) putEntries(list string, of map[string]Entry) {
	var all []Entry
	for _, k := range slices.Sorted(maps.Keys(of)) {
		all = append(all, of[k])
	}
	if len(all) > 0 {
		e[list] = all
	}
}
