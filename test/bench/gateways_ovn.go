// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"coelan.io/coelan/test/lab"
)

// ovnFloating is a node of OVN's alone, in which OVN translates the first floating IP one-to-one on
// the server's own node, from a host in the same VLAN as Coelan's.
func ovnFloating(ctx context.Context) (*contender, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1, NoAgents: true, OVN: true})
	c := &contender{name: "ovn", lab: l}
	if err != nil {
		return c, err
	}
	n := l.Nodes[0]
	if err := n.AddPhysicalBridge(ctx, externalBridge); err != nil {
		return c, err
	}
	if c.client, err = n.AddVLANHost(ctx, externalBridge, "host", externalVLAN, externalHost); err != nil {
		return c, err
	}
	if _, err := n.OVS.Vsctl(ctx, "set", "open_vswitch", ".",
		"external_ids:ovn-bridge-mappings=dc:"+externalBridge); err != nil {
		return c, err
	}
	c.server, err = ovn{l.OVN, n}.float(ctx)
	return c, err
}

// float makes a logical switch with a server, one for the external network, and the router between
// them, which has the first floating IP stand for the server.
func (o ovn) float(ctx context.Context) (server *lab.Host, err error) {
	const (
		inside, outside, router = "pods", "office", "router"
		serverMAC               = "0a:00:00:00:00:02"
	)
	own := netip.MustParsePrefix("10.244.1.2/24")
	link := func(network, address, mac string) []string {
		name := router + "-" + network
		return []string{
			"--", "lrp-add", router, name, mac, address,
			"--", "lsp-add", network, network + "-" + router,
			"--", "lsp-set-type", network + "-" + router, "router",
			"--", "lsp-set-addresses", network + "-" + router, "router",
			"--", "lsp-set-options", network + "-" + router, "router-port=" + name,
		}
	}
	args := []string{"ls-add", inside, "--", "ls-add", outside, "--", "lr-add", router}
	args = append(args, link(inside, "10.244.1.1/24", "0a:00:00:00:01:01")...)
	args = append(args, link(outside, "172.20.0.2/16", "0a:00:00:00:01:02")...)
	args = append(args,
		"--", "lsp-add", inside, "server",
		"--", "lsp-set-addresses", "server", serverMAC+" "+own.Addr().String(),
		"--", "lsp-add", outside, "wire", "", fmt.Sprint(externalVLAN),
		"--", "lsp-set-type", "wire", "localnet",
		"--", "lsp-set-addresses", "wire", "unknown",
		"--", "lsp-set-options", "wire", "network_name=dc",
		"--", "lrp-set-gateway-chassis", router+"-"+outside, o.node.Name,
		"--", "lr-nat-add", router, "dnat_and_snat", firstFloating.String(), own.Addr().String(), "server",
		"0a:00:00:00:01:03")
	if _, err := o.Nbctl(ctx, args...); err != nil {
		return nil, err
	}
	mac, err := net.ParseMAC(serverMAC)
	if err != nil {
		return nil, err
	}
	g, err := o.node.AddGuest(ctx, "server", "server", mac, []netip.Prefix{own}, netip.MustParseAddr("10.244.1.1"))
	if err != nil {
		return nil, err
	}
	return g.Host, nil
}
