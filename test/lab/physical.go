// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

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
	return h, n.joinVLAN(ctx, bridge, h, "eth0", vlan, addresses)
}

// AddGateway has the host outside be in a VLAN too, as its gateway: by an interface with the
// bridge's name, at that bridge of the node.
func (n *Node) AddGateway(ctx context.Context, bridge string, vlan int, addresses ...netip.Prefix) error {
	return n.joinVLAN(ctx, bridge, n.lab.Outside, bridge, vlan, addresses)
}

// joinVLAN gives a host an interface on a port in a VLAN.
func (n *Node) joinVLAN(ctx context.Context, bridge string, h *Host, link string, vlan int,
	addresses []netip.Prefix,
) error {
	port := "vlan-" + h.Name
	if err := connect(n.Host, port, h, link); err != nil {
		return err
	}
	if n.OVS.Datapath == "netdev" {
		if err := h.checksumInSoftware(link); err != nil {
			return err
		}
	}
	if err := h.addAddresses(link, addresses...); err != nil {
		return err
	}
	if _, err := n.OVS.Vsctl(ctx, "add-port", bridge, port, fmt.Sprintf("tag=%d", vlan)); err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	return nil
}

// AddHostBeyond makes a host that the host outside forwards to, by a wire that takes packets of at
// most mtu bytes from there. The host outside gets the address after each of the host's.
func (l *Lab) AddHostBeyond(name string, mtu int, addresses ...netip.Prefix) (*Host, error) {
	h, err := newHost(name, addresses)
	if err != nil {
		return nil, err
	}
	l.beyond = append(l.beyond, h)
	return h, l.wireBehind(l.Outside, h, mtu)
}

// wireBehind gives a host a wire to a router, which sends packets of at most mtu bytes on it. The
// router gets the address after each of the host's, and is its gateway.
func (l *Lab) wireBehind(router, h *Host, mtu int) error {
	for _, setting := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if err := router.Sysctl(setting, "1"); err != nil {
			return err
		}
	}
	if err := connect(router, h.Name, h, "eth0"); err != nil {
		return err
	}
	if l.fabric.software {
		for end, link := range map[*Host]string{h: "eth0", router: h.Name} {
			if err := end.checksumInSoftware(link); err != nil {
				return err
			}
		}
	}
	if err := router.withLink(h.Name, func(link netlink.Link) error {
		return netlink.LinkSetMTU(link, mtu)
	}); err != nil {
		return err
	}
	if err := h.addAddresses("eth0", h.Addresses...); err != nil {
		return err
	}
	for _, a := range h.Addresses {
		gateway := netip.PrefixFrom(a.Addr().Next(), a.Bits())
		if err := router.addAddresses(h.Name, gateway); err != nil {
			return err
		}
		if err := h.AddRoute(netip.PrefixFrom(a.Addr(), 0).Masked(), gateway.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// Unplug takes the wires of the node down: for others it is as if it had no power. Plug reverses
// it.
func (n *Node) Unplug() error { return n.eachWire(netlink.LinkSetDown) }

// Plug takes the wires of the node up again.
func (n *Node) Plug() error { return n.eachWire(netlink.LinkSetUp) }

// eachWire calls fn with the fabric's ends of the node's wires.
func (n *Node) eachWire(fn func(netlink.Link) error) error {
	return n.lab.fabric.Do(func() error {
		for _, name := range []string{n.Name, n.Name + "-ext"} {
			link, err := netlink.LinkByName(name)
			if err == nil {
				err = fn(link)
			}
			if err != nil {
				return fmt.Errorf("wire %s: %w", name, err)
			}
		}
		return nil
	})
}

// Separate has two nodes not reach each other by the addresses that tunnels end at.
func (l *Lab) Separate(ctx context.Context, a, b *Node) error {
	var rules strings.Builder
	for f := range l.options.Families.Each {
		ip := map[Family]string{IPv4: "ip", IPv6: "ip6"}[f]
		for _, pair := range [][2]*Node{{a, b}, {b, a}} {
			fmt.Fprintf(&rules, "%s saddr %s %s daddr %s drop; ", ip, pair[0].Address(f), ip, pair[1].Address(f))
		}
	}
	_, err := l.fabric.Run(ctx, "nft", "table bridge lab { chain forward { type filter hook forward priority 0; "+
		rules.String()+"}; }")
	return err
}
