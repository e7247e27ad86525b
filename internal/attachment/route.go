// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"net/netip"
	"slices"
)

// Route leads from a pod to a prefix.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	// NextHop that is not valid stands for the interface's gateway.
	NextHop netip.Addr `json:"nextHop,omitzero"`
}

// String is the route as errors have it.
func (r Route) String() string {
	to := "default route"
	if r.Destination.Bits() > 0 {
		to = "route to " + r.Destination.String()
	}
	if !r.NextHop.IsValid() {
		return to
	}
	return to + " via " + r.NextHop.String()
}

// AllRoutes are the routes of the interface: the default routes, and the others with the gateway
// that they lead through. One of a family that the interface has no address of is left out, and one
// to the interface's own subnet that leads through its gateway: it would take the place of the
// kernel's, by which the gateway is reached.
func (a Attachment) AllRoutes() []Route {
	var list []Route
	for _, gw := range a.DefaultRoutes {
		list = append(list, Route{Destination: netip.PrefixFrom(gw, 0).Masked(), NextHop: gw})
	}
	for _, r := range a.Routes {
		i := slices.IndexFunc(a.Addresses, func(p netip.Prefix) bool {
			return p.Addr().Is4() == r.Destination.Addr().Is4()
		})
		if i < 0 {
			continue
		}
		r.Destination = r.Destination.Masked()
		if !r.NextHop.IsValid() {
			if slices.ContainsFunc(a.Addresses, func(p netip.Prefix) bool { return p.Masked() == r.Destination }) {
				continue
			}
			r.NextHop = a.Gateways[i]
		}
		list = append(list, r)
	}
	return list
}
