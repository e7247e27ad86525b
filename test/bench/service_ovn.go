// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"net/netip"

	"coelan.io/coelan/test/lab"
)

// ovn is OVN on one node that has no Coelan.
type ovn struct {
	*lab.OVN
	node *lab.Node
}

// balance makes a logical switch with two ports, for a client and for a server on another node or
// the same one, and one load balancer. There is no logical router: the client knows the server's
// MAC for the balanced address, which saves OVN what a router would cost.
func (o ovn) balance(ctx context.Context, serverNode *lab.Node) (client, server *lab.Host, err error) {
	const name = "pods"
	var hosts [2]*lab.Host
	if _, err := o.Nbctl(ctx, "ls-add", name); err != nil {
		return nil, nil, err
	}
	nodes := [2]*lab.Node{o.node, serverNode}
	for i, port := range []string{"client", "server"} {
		address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, 1, byte(i + 2)}), 24)
		mac := net.HardwareAddr{0x0a, 0, 0, 0, 0, byte(i + 2)}
		if _, err := o.Nbctl(ctx, "lsp-add", name, port, "--", "lsp-set-addresses", port,
			mac.String()+" "+address.Addr().String()); err != nil {
			return nil, nil, err
		}
		g, err := nodes[i].AddGuest(ctx, port, port, mac, []netip.Prefix{address})
		if err != nil {
			return nil, nil, err
		}
		hosts[i] = g.Host
		if i == 0 {
			continue
		}
		if err := neighborOfService(ctx, hosts[0], mac); err != nil {
			return nil, nil, err
		}
	}
	endpoint := netip.AddrPortFrom(hosts[1].Address(lab.IPv4), serverPort)
	_, err = o.Nbctl(ctx, "lb-add", "service", serviceAddress.String(), endpoint.String(), "tcp", "--", "ls-lb-add",
		name, "service")
	return hosts[0], hosts[1], err
}

// neighborOfService has a host take the balanced address for one of its own subnet, with the
// endpoint's MAC.
func neighborOfService(ctx context.Context, client *lab.Host, mac net.HardwareAddr) error {
	for _, args := range [][]string{
		{"route", "add", serviceAddress.Addr().String(), "dev", "eth0"},
		{"neighbour", "add", serviceAddress.Addr().String(), "lladdr", mac.String(), "dev", "eth0"},
	} {
		if _, err := client.Run(ctx, "ip", args...); err != nil {
			return err
		}
	}
	return nil
}
