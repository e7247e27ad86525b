// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"net/netip"

	"coelan.io/coelan/internal/intent"
)

// Connections forgets connections, so that their next packet is looked at like that of a new one. Only those of UDP need
// it: who speaks TCP or SCTP notices that the other end is gone, and begins anew.
type Connections interface {
	// ForgetBalanced forgets connections of clients to endpoints, in the bridge.
	ForgetBalanced(ctx context.Context, which []Balanced) error
	// ForgetFrontends forgets connections to addresses and ports of Services from outside, in the host's kernel.
	ForgetFrontends(ctx context.Context, which []Frontend) error
}

// Balanced are the UDP connections of clients to a Service's address that go to an endpoint.
type Balanced struct {
	IPv6     bool
	Service  netip.AddrPort  // of no address: any of the node's, for a node port
	Endpoint intent.Endpoint // the zero value: any
}

// Frontend are the UDP connections to an address and port.
type Frontend struct {
	IPv6    bool
	Address netip.Addr // not valid: any of the host's
	Port    uint16
}

// stale is what has to be forgotten after a Service has become another one; both may be zero: it was not there, or is gone.
func stale(old, now intent.Service) (balanced []Balanced, frontends []Frontend) {
	was, is := udpPorts(old), udpPorts(now)
	for key, p := range was {
		q, ok := is[key]
		gone := p.endpoints
		if ok {
			gone = map[intent.Endpoint]bool{}
			for e := range p.endpoints {
				if !q.endpoints[e] {
					gone[e] = true
				}
			}
		}
		if !ok && len(gone) > 0 {
			balanced = append(balanced, Balanced{IPv6: key.ipv6, Service: key.at})
		} else {
			for e := range gone {
				balanced = append(balanced, Balanced{IPv6: key.ipv6, Service: key.at, Endpoint: e})
			}
		}
	}
	for key, p := range was {
		if q, ok := is[key]; p.external && (!ok || p.local != q.local) {
			frontends = append(frontends, Frontend{IPv6: key.ipv6, Address: key.at.Addr(), Port: key.at.Port()})
		}
	}
	for key, p := range is {
		if _, ok := was[key]; p.external && !ok {
			frontends = append(frontends, Frontend{IPv6: key.ipv6, Address: key.at.Addr(), Port: key.at.Port()})
		}
	}
	return balanced, frontends
}

// udpKey is where a UDP port is found; the address of a node port is none.
type udpKey struct {
	ipv6 bool
	at   netip.AddrPort
}

// udpPort is what is found there.
type udpPort struct {
	external, local bool
	endpoints       map[intent.Endpoint]bool
}

// udpPorts are all addresses and ports of a Service's UDP ports.
func udpPorts(v intent.Service) map[udpKey]udpPort {
	m := map[udpKey]udpPort{}
	for _, p := range v.Ports {
		if p.Protocol != intent.UDP {
			continue
		}
		external := udpPort{external: true, local: v.ExternalLocal, endpoints: map[intent.Endpoint]bool{}}
		for _, e := range p.Endpoints {
			external.endpoints[e] = true
		}
		for _, e := range p.LocalEndpoints {
			external.endpoints[e] = true
		}
		internal := udpPort{endpoints: external.endpoints}
		if p.ClusterIP.IsValid() {
			m[udpKey{p.IPv6, netip.AddrPortFrom(p.ClusterIP, p.Port)}] = internal
		}
		for _, a := range p.ExternalIPs {
			m[udpKey{p.IPv6, netip.AddrPortFrom(a, p.Port)}] = external
		}
		for _, a := range p.LoadBalancerIPs {
			m[udpKey{p.IPv6, netip.AddrPortFrom(a, p.Port)}] = external
		}
		if p.NodePort != 0 {
			m[udpKey{p.IPv6, netip.AddrPortFrom(netip.Addr{}, p.NodePort)}] = external
		}
	}
	return m
}
