// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// l2Feature sends what is addressed to a MAC of the same network to its port, or
// to the node of a port that is known everywhere, and what is addressed to the
// virtual router to l3. Nothing is flooded.
var l2Feature = &feature{
	number: 5,
	name:   "l2",
	tables: []Table{l2},
	local: func(r *rules) {
		group := openflow.MAC{0x01}
		r.on(l2, 200, openflow.EthDstMask(group, group)).
			drop("broadcast and multicast are not forwarded")
		r.on(l2, 100, openflow.EthDst(routerMAC)).goTo(l3)
		if !r.native() {
			// Where the bridge has balanced Services until now, packets still come back from
			// conntrack here, until the datapath has forgotten the flows that sent them there.
			r.on(serviceState, 0).goTo(l2)
		}
		if n, _, ok := r.network(intent.DefaultNetworkName); ok {
			r.on(l2, 100, from(fromPod), inNetwork(n), openflow.EthDst(gatewayMAC)).
				set(toPort(datapath.GatewayPort)).
				deliver()
		}
	},
	port: func(r *rules, p intent.Port) {
		if n, _, ok := r.network(p.Network); ok && n.Physical == "" {
			r.toMAC(n, p, toPort(r.number(p)))
		}
	},
	remote: func(r *rules, p intent.Port) {
		n, remote, ok := r.l2Endpoint(p)
		if !ok {
			return
		}
		r.toMAC(n, p, openflow.TunDst(remote), openflow.TunnelID(uint64(n.VNI)), toPort(datapath.TunnelPort))
	},
}

// toMAC sends what is addressed to the MAC of a port, whatever its IP address is: the port may
// route. Policies, which judge the address, are told if it is not the port's.
func (r *rules) toMAC(n intent.Network, p intent.Port, set ...openflow.FieldValue) {
	to := []openflow.FieldValue{inNetwork(n), openflow.EthDst(openflow.MAC(p.MAC))}
	other := r.on(l2, 100, to...).set(set...)
	if _, rt, _ := r.lookup(p.Network); r.policed() && !isNextHop(rt, p) {
		for _, a := range addresses(p) {
			r.on(l2, 110, append(to[:len(to):len(to)], openflow.IPDst(a))...).set(set...).deliver()
		}
		other = other.set(notToOwner)
	}
	other.deliver()
}

// l2Endpoint is the end of the tunnel to a port of another node, in its network;
// false if no port of this node could use it.
func (r *rules) l2Endpoint(p intent.Port) (n intent.Network, remote netip.Addr, ok bool) {
	if n, _, ok = r.network(p.Network); !ok || n.Physical != "" || !r.tunneled() || !r.attached(p.Network) {
		return n, remote, false
	}
	node, ok := r.node(p.Node)
	if !ok || len(p.Addresses) == 0 {
		return n, remote, false
	}
	remote, ok = r.endpoint(node, host(p.Addresses[0]))
	return n, remote, ok
}
