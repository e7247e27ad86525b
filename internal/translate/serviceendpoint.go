// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"coelan.io/coelan/internal/intent"
)

// endpoints are those of a port in one family, sorted. Slices are in the order of their names and
// sorted by address, so that the order of those with the same address and port is always the same.
func endpoints(endpointSlices []*sliceRecord, f family, p recordPort) []intent.ServiceEndpoint {
	n := 0
	for _, s := range endpointSlices {
		if s.family == f && s.port(p.name, p.protocol) != 0 {
			n += len(s.all)
		}
	}
	if n == 0 {
		return nil
	}
	list := make([]intent.ServiceEndpoint, 0, n)
	for _, s := range endpointSlices {
		port := s.port(p.name, p.protocol)
		if s.family != f || port == 0 {
			continue
		}
		for i := range s.all {
			e := &s.all[i]
			list = append(list,
				intent.ServiceEndpoint{Address: e.ip, Port: port, Terminating: !e.ready, Topology: e.place})
		}
	}
	if !slices.IsSortedFunc(list, compareEndpoints) {
		slices.SortStableFunc(list, compareEndpoints)
	}
	return distinct(list)
}

// distinct takes out endpoints that are there before in the same list, which several slices may
// have: those with the same address and port are next to each other.
func distinct(list []intent.ServiceEndpoint) []intent.ServiceEndpoint {
	kept, first := list[:0], 0
	for _, e := range list {
		if first < len(kept) && compareEndpoints(kept[first], e) != 0 {
			first = len(kept)
		}
		if !slices.Contains(kept[first:], e) {
			kept = append(kept, e)
		}
	}
	return kept
}

func compareEndpoints(a, b intent.ServiceEndpoint) int { return a.Endpoint().Compare(b.Endpoint()) }

// IsSound says whether an address may be an endpoint's in an EndpointSlice of a type, and
// so makes no Problem.
func IsSound(address string, of discoveryv1.AddressType) bool {
	switch of {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
		ip, err := serviceAddress(address)
		return err == nil && familyOf(ip).String() == string(of)
	}
	return true // names are left out whatever they are
}
