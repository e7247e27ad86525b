// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// AddCard makes a network card of the node that leads to the fabric by a wire of its own.
func (n *Node) AddCard(card string) error {
	if err := connect(n.lab.fabric.Host, n.Name+"-ext", n.Host, card); err != nil {
		return err
	}
	return n.lab.fabric.withLink(n.Name+"-ext", func(port netlink.Link) error {
		fabric, err := netlink.LinkByName(fabricBridge)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(port, fabric)
	})
}

// AddPhysicalBridge makes a bridge on the node that leads to the fabric by a wire of its own: what
// an agent's bridgeMappings name.
func (n *Node) AddPhysicalBridge(ctx context.Context, name string) error {
	card := "ext0"
	if err := n.AddCard(card); err != nil {
		return err
	}
	// The kernel has no part in it.
	if err := n.Sysctl("net/ipv6/conf/"+card+"/disable_ipv6", "1"); err != nil {
		return err
	}
	_, err := n.OVS.Vsctl(ctx, "add-br", name, "--", "set", "bridge", name, "datapath_type="+n.OVS.Datapath,
		"fail_mode=standalone",
		"--", "add-port", name, card)
	return err
}

// AddVLANHost makes a host behind a bridge of AddPhysicalBridge, on a port in a VLAN.
func (n *Node) AddVLANHost(ctx context.Context, bridge, name string, vlan int,
	addresses ...netip.Prefix,
) (*Host, error) {
	h, err := newHost(name, addresses)
	if err != nil {
		return nil, err
	}
	n.onStop(h.close)
	port := "vlan-" + name
	if err := connect(n.Host, port, h, "eth0"); err != nil {
		return nil, err
	}
	if n.OVS.Datapath == "netdev" {
		if err := h.checksumInSoftware("eth0"); err != nil {
			return nil, err
		}
	}
	if err := h.addAddresses("eth0", addresses...); err != nil {
		return nil, err
	}
	if _, err := n.OVS.Vsctl(ctx, "add-port", bridge, port, fmt.Sprintf("tag=%d", vlan)); err != nil {
		return nil, fmt.Errorf("host %s: %w", name, err)
	}
	return h, nil
}
