// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/internal/restconf/datatree"
)

// writeEndpoints makes the EndpointSlices of a Service be as the entry says.
func writeEndpoints(w *World, e *endpointsEntry) error {
	s, err := serviceOf(w, e)
	if err != nil {
		return err
	}
	if err := mayWrite(w, s); err != nil {
		return err
	}
	if err := sameService(s, text(e.Name), text(e.Network_NS)); err != nil {
		return err
	}
	of := slicesOf(w, keyOf(s))
	shown := showSlices(s, of)
	if len(of) > 0 && *shown.Uid != text(e.Uid) {
		return datatree.Fail(datatree.DataExists, "uid", fmt.Sprintf(
			"the endpoints of the Service %s are there under the uid %s: use that", keyOf(s), *shown.Uid))
	}
	edit := editSlices(s, of)
	ports, err := edit.portsOf(e, shown)
	if err != nil {
		return err
	}
	wanted := maps.Clone(e.EndpointAddresses)
	edit.filter(func(endpoint *discoveryv1.Endpoint) bool { return take(endpoint, wanted) })
	for _, address := range slices.Sorted(maps.Keys(wanted)) {
		edit.add(address, discoveryv1.Endpoint{
			Addresses: []string{address}, Hostname: wanted[address].HostName, NodeName: wanted[address].NodeName,
		}, ports)
	}
	edit.mark(text(e.Uid), text(e.ClusterId), ports)
	edit.finish(w)
	return nil
}

// serviceOf is the Service that an entry is about: the one of the uid, else that of the name, as
// the watcher of COE sends the uid of the Endpoints.
func serviceOf(w *World, e *endpointsEntry) (*corev1.Service, error) {
	uid := text(e.Uid)
	of := slicesByService(w)
	for _, s := range sortedServices(w) {
		if all := of[keyOf(s)]; len(all) > 0 && entryUID(s, all) == uid {
			return s, nil
		}
	}
	if s := findService(w, uid); s != nil {
		return s, nil
	}
	key := types.NamespacedName{Namespace: cmp.Or(text(e.Network_NS), defaultNamespace), Name: text(e.Name)}
	if s := w.Services[key]; key.Name != "" && s != nil && alive(s) {
		return s, nil
	}
	if key.Name == "" {
		return nil, invalid("uid", "there is no Service of that uid: make it first, or give its name")
	}
	return nil, invalid("name", fmt.Sprintf("there is no Service %s, and none of that uid: make it first", key))
}

// take reports whether an endpoint is to stay. If its addresses are wanted, it does, as they say,
// and they are wanted no more; one that is not ready is none of the entry's.
func take(endpoint *discoveryv1.Endpoint, wanted map[string]*endpointAddress) bool {
	var first *endpointAddress
	for _, a := range endpoint.Addresses {
		entry := wanted[canonicalAddress(a)]
		if entry == nil {
			return !ready(endpoint)
		}
		first = cmp.Or(first, entry)
	}
	if first == nil {
		return true
	}
	if !ready(endpoint) {
		endpoint.Conditions = discoveryv1.EndpointConditions{}
	}
	if text(endpoint.Hostname) != text(first.HostName) {
		endpoint.Hostname = first.HostName
	}
	if text(endpoint.NodeName) != text(first.NodeName) {
		endpoint.NodeName = first.NodeName
	}
	for _, a := range endpoint.Addresses {
		delete(wanted, canonicalAddress(a))
	}
	return true
}

// portsOf are the ports of new slices. Those of the slices that there are change if the entry has
// others than are shown.
func (s *sliceEdit) portsOf(e, shown *endpointsEntry) ([]discoveryv1.EndpointPort, error) {
	if len(s.list) > 0 && slices.Equal(portKeys(e), portKeys(shown)) {
		return s.list[0].Ports, nil
	}
	protocols := map[string]corev1.Protocol{}
	for _, slice := range s.list {
		for _, p := range slice.Ports {
			protocols[text(p.Name)] = text(p.Protocol)
		}
	}
	for _, p := range s.service.Spec.Ports {
		protocols[p.Name] = p.Protocol
	}
	var ports []discoveryv1.EndpointPort
	seen := map[string]bool{}
	for _, key := range portKeys(e) {
		if seen[key.Name] {
			return nil, invalid("endpoint-ports", fmt.Sprintf(
				"has two ports %q: the model cannot say which address has which", key.Name))
		}
		seen[key.Name] = true
		ports = append(ports, endpointPort(key.Name, key.Port, protocols[key.Name]))
	}
	for _, slice := range s.list {
		slice.Ports = ports
	}
	return ports, nil
}

// portKeys are an entry's ports, in order.
func portKeys(e *endpointsEntry) []endpointPortKey {
	return slices.SortedFunc(maps.Keys(e.EndpointPorts), func(a, b endpointPortKey) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port))
	})
}

// removeEndpoints removes the EndpointSlices of a Service.
func removeEndpoints(w *World, uid string) error {
	of := slicesByService(w)
	for _, s := range sortedServices(w) {
		all := of[keyOf(s)]
		if len(all) == 0 || entryUID(s, all) != uid {
			continue
		}
		if err := mayWrite(w, s); err != nil {
			return err
		}
		removeSlices(w, keyOf(s))
		return nil
	}
	return datatree.NotFound("uid")
}
