// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/intent"
)

// Connections deletes connections from the bridge, so that their next packet is handled like that
// of a new one. Only those of UDP need it: with TCP or SCTP the client notices that the other end
// is gone, and connects again.
type Connections interface {
	ForgetBalanced(ctx context.Context, which []backend.Balanced) error
}

// stale is what has to be forgotten after a Service has become another one, which may be
// zero: it is gone.
func stale(old, now intent.NodeService) []backend.Balanced {
	var list []backend.Balanced
	is := udpPorts(now)
	for key, endpoints := range udpPorts(old) {
		left, ok := is[key]
		if !ok && len(endpoints) > 0 {
			list = append(list, backend.Balanced{IPv6: key.ipv6, Service: key.at})
			continue
		}
		for e := range endpoints {
			if !left[e] {
				list = append(list, backend.Balanced{IPv6: key.ipv6, Service: key.at, Endpoint: e})
			}
		}
	}
	return list
}

// udpKey is where a UDP port is found; the address of a node port is none.
type udpKey struct {
	ipv6 bool
	at   netip.AddrPort
}

// udpPorts are the endpoints of all addresses and ports of a Service's UDP ports.
func udpPorts(v intent.NodeService) map[udpKey]map[intent.Endpoint]bool {
	m := map[udpKey]map[intent.Endpoint]bool{}
	for _, p := range v.Ports {
		if p.Protocol != intent.UDP {
			continue
		}
		endpoints := map[intent.Endpoint]bool{}
		for _, e := range slices.Concat(p.Endpoints, p.LocalEndpoints, p.Draining) {
			endpoints[e] = true
		}
		at := slices.Concat(p.ExternalIPs, p.LoadBalancerIPs)
		if p.ClusterIP.IsValid() {
			at = append(at, p.ClusterIP)
		}
		for _, a := range at {
			m[udpKey{p.IPv6, netip.AddrPortFrom(a, p.Port)}] = endpoints
		}
		if p.NodePort != 0 {
			m[udpKey{p.IPv6, netip.AddrPortFrom(netip.Addr{}, p.NodePort)}] = endpoints
		}
	}
	return m
}
