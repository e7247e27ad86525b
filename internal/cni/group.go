// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"cmp"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/attachment"
)

// group is what one ADD made and one DEL removes: its own interface first, and those that were made with it.
type group []attachment.Attachment

// group finds what the ADD of a key made; nothing if there is none.
func (s *Server) group(key attachment.Key) group {
	g := slices.DeleteFunc(group(s.opts.Store.Of(key.ContainerID)), func(a attachment.Attachment) bool {
		return a.IfName != key.IfName && a.MadeWith != key.IfName
	})
	slices.SortFunc(g, func(a, b attachment.Attachment) int {
		switch {
		case a.Key == key:
			return -1
		case b.Key == key:
			return 1
		}
		return cmp.Or(cmp.Compare(len(a.IfName), len(b.IfName)), cmp.Compare(a.IfName, b.IfName)) // net2 before net10
	})
	return g
}

func (g group) keys() []attachment.Key {
	list := make([]attachment.Key, len(g))
	for i, a := range g {
		list[i] = a.Key
	}
	return list
}

// maker is the key of the ADD that made an attachment.
func maker(a attachment.Attachment) attachment.Key {
	if a.MadeWith == "" {
		return a.Key
	}
	return attachment.Key{ContainerID: a.ContainerID, IfName: a.MadeWith}
}

// routesOf are the routes of an attachment's interface: the default routes, and the others with the gateway that they
// lead through. One of a family that the interface has no address of is left out, and one to the interface's own subnet
// that leads through its gateway: it would take the place of the kernel's, by which the gateway is reached.
func routesOf(a attachment.Attachment) []attachment.Route {
	var list []attachment.Route
	for _, gw := range a.DefaultRoutes {
		list = append(list, attachment.Route{Destination: netip.PrefixFrom(gw, 0).Masked(), NextHop: gw})
	}
	for _, r := range a.Routes {
		i := slices.IndexFunc(a.Addresses, func(p netip.Prefix) bool { return p.Addr().Is4() == r.Destination.Addr().Is4() })
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
