// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Guest is a host at an interface that another program than Coelan has put on the integration
// bridge, as libvirt does with the taps of virtual machines.
type Guest struct {
	*Host
	// Port is the interface's name on the node.
	Port string
	node *Node
	mac  net.HardwareAddr
}

// AddGuest makes a guest and its interface, and plugs it in with external_ids:iface-id. Routes lead
// through the gateways.
func (n *Node) AddGuest(ctx context.Context, name, ifaceID string, mac net.HardwareAddr, addresses []netip.Prefix,
	gateways ...netip.Addr,
) (*Guest, error) {
	g, err := n.NewGuest(name, mac, addresses, gateways...)
	if err != nil {
		return nil, err
	}
	return g, g.Plug(ctx, ifaceID)
}

// NewGuest is AddGuest without the plugging in.
func (n *Node) NewGuest(name string, mac net.HardwareAddr, addresses []netip.Prefix, gateways ...netip.Addr,
) (*Guest, error) {
	h, err := newHost(name, addresses)
	if err != nil {
		return nil, err
	}
	n.onStop(h.close)
	g := &Guest{Host: h, Port: "tap-" + name, node: n, mac: mac}
	if err := connect(n.Host, g.Port, h, "eth0"); err != nil {
		return nil, err
	}
	if n.OVS.Datapath == "netdev" {
		if err := h.checksumInSoftware("eth0"); err != nil {
			return nil, err
		}
	}
	err = h.withLink("eth0", func(l netlink.Link) error {
		if err := netlink.LinkSetMTU(l, referenceMTU); err != nil {
			return err
		}
		return netlink.LinkSetHardwareAddr(l, mac)
	})
	if err == nil {
		err = h.addAddresses("eth0", addresses...)
	}
	for _, gw := range gateways {
		if err == nil {
			err = h.AddRoute(netip.PrefixFrom(gw, 0).Masked(), gw)
		}
	}
	return g, err
}

// Plug puts the guest's interface on the integration bridge.
func (g *Guest) Plug(ctx context.Context, ifaceID string) error {
	_, err := g.node.OVS.Vsctl(ctx, g.plugging(ifaceID)...)
	return err
}

// PlugAll plugs guests in at once, by their iface-ids.
func (n *Node) PlugAll(ctx context.Context, guests map[string]*Guest) error {
	var args []string
	for ifaceID, g := range guests {
		args = append(append(args, "--"), g.plugging(ifaceID)...)
	}
	_, err := n.OVS.Vsctl(ctx, args...)
	return err
}

// plugging are the commands of ovs-vsctl that plug the guest in.
func (g *Guest) plugging(ifaceID string) []string {
	return []string{
		"--may-exist", "add-port", bridge, g.Port, "--",
		"set", "interface", g.Port, fmt.Sprintf("external_ids:iface-id=%q", ifaceID),
		fmt.Sprintf("external_ids:attached-mac=%q", g.mac),
	}
}

// Unplug takes it from there.
func (g *Guest) Unplug(ctx context.Context) error {
	_, err := g.node.OVS.Vsctl(ctx, "del-port", bridge, g.Port)
	return err
}
