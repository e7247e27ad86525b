// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"fmt"
	"net/netip"

	"coelan.io/coelan/internal/backend/neutron/octavia"
	"coelan.io/coelan/internal/controller/findings"
	"coelan.io/coelan/internal/intent"
)

// The reasons of FloatingIPs of Services that have no effect.
const (
	reasonNoBalancer = "ServiceUnsupported"
	reasonFamily     = "FamilyUnsupported"
	reasonSecond     = "OneFloatingIP"
)

// floatingIPs has load balancers have the FloatingIPs that stand for their Services, before one of
// the external network that all have one of. It returns these by their Services, and what is not
// done of others.
func (b *Balancers) floatingIPs(
	state *intent.State, wanted map[string]*octavia.Balancer, places *places,
) (users map[string]string, list []findings.Finding) {
	users = map[string]string{}
	for f := range state.FloatingIPs().All() {
		w := wanted[f.Service]
		if f.Service == "" || w == nil && b.Native {
			continue
		}
		reason, message := "", ""
		first := users[f.Service]
		switch {
		case w == nil:
			reason, message = reasonNoBalancer, "without --northbound a FloatingIP stands for a Port, or for a Service of "+
				"the type LoadBalancer and the class coelan.io/octavia: its load balancer has the address"
		case b.Subnet == "":
			reason, message = reasonNotConfigured, "the controller's --octavia-subnet names no subnet for load balancers of "+
				"Services"
		case places == nil || w.Subnet == "":
			// It is not known yet, or the Service says why it has no load balancer.
		case f.Address.Is6() != places.addresses.Addr().Is6():
			reason, message = reasonFamily, fmt.Sprintf("load balancers of Services have addresses of %s, so the "+
				"FloatingIP has to be of that family", places.addresses)
		case first != "":
			reason, message = reasonSecond, fmt.Sprintf("the load balancer of Service %s has one floating IP: that of "+
				"FloatingIP %s", f.Service, first)
		default:
			users[f.Service] = f.Name
			if id := b.Network(f.Network); id != "" {
				w.External, w.Floating = id, f.Address
			}
		}
		if reason != "" {
			list = append(list, findings.Finding{Object: "FloatingIP " + f.Name, Reason: reason, Message: message})
		}
	}
	return users, list
}

// claimed says whether an address is that of a FloatingIP: a load balancer that may have any leaves
// it to that.
func (b *Balancers) claimed(a netip.Addr) bool {
	for range b.State().FloatingIPsAt(a) {
		return true
	}
	return false
}
