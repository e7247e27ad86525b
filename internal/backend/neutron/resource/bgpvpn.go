// SPDX-License-Identifier: Apache-2.0

package resource

// AssociationOf is a router's place in a BGPVPN. It has the BGPVPN's Key if that and the router are
// of one Router.
func AssociationOf(vpn, router Ref) Ref {
	if vpn.Key == router.Key {
		return Ref{Kind: Association, Key: vpn.Key}
	}
	return Ref{Kind: Association, Key: Key(vpn.Key, router.Key)}
}

// Associated is such a place that is there. A list of BGPVPNs says which routers each has, and not
// the ids of their places.
func Associated(vpn, router string) Actual {
	return Actual{ID: vpn + " " + router, Attributes: Attributes{"bgpvpn_id": vpn, "router_id": router}}
}
