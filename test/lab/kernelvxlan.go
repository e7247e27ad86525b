// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
)

// kernelVXLAN is the device of ConnectByKernel.
const kernelVXLAN = "vxlan1"

// ConnectByKernel has the kernels of the nodes, which have no agents, forward packets between each
// other's pods of IPv4, as flannel's VXLAN backend does: a device, and a route, a neighbor and a
// forwarding entry for each other node. Pods are made by AddKernelPod.
func (l *Lab) ConnectByKernel(ctx context.Context) error {
	macs := map[*Node]string{}
	for _, n := range l.Nodes {
		if err := n.Sysctl("net/ipv4/ip_forward", "1"); err != nil {
			return err
		}
		// Without checksums, as Open vSwitch's tunnels are.
		if err := n.ips(ctx,
			fmt.Sprintf("link add %s type vxlan id 1 local %s dev eth0 dstport 8472 nolearning noudpcsum",
				kernelVXLAN, n.Address(IPv4)),
			fmt.Sprintf("address add %s/32 dev %s", n.PodCIDRs[0].Addr(), kernelVXLAN),
			fmt.Sprintf("link set %s mtu %d up", kernelVXLAN, referenceMTU),
		); err != nil {
			return err
		}
		if err := n.withLink(kernelVXLAN, func(link netlink.Link) error {
			macs[n] = link.Attrs().HardwareAddr.String()
			return nil
		}); err != nil {
			return err
		}
	}
	for _, n := range l.Nodes {
		for _, other := range l.Nodes {
			if other == n {
				continue
			}
			first := other.PodCIDRs[0].Addr()
			if err := n.ips(ctx,
				fmt.Sprintf("neighbour add %s lladdr %s dev %s", first, macs[other], kernelVXLAN),
				fmt.Sprintf("route add %s via %s dev %s onlink", other.PodCIDRs[0], first, kernelVXLAN),
			); err != nil {
				return err
			}
			if _, err := n.Run(ctx, "bridge", "fdb", "append", macs[other], "dev", kernelVXLAN,
				"dst", other.Address(IPv4).String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// AddKernelPod makes a host that the node's kernel has a route to, by a wire between the two.
func (n *Node) AddKernelPod(ctx context.Context, name string, address netip.Addr) (*Host, error) {
	h, err := newHost(name, []netip.Prefix{netip.PrefixFrom(address, address.BitLen())})
	if err != nil {
		return nil, err
	}
	n.onStop(h.close)
	wire, gateway := "pod-"+name, n.Gateway(IPv4)
	if err := connect(n.Host, wire, h, "eth0"); err != nil {
		return nil, err
	}
	if err := n.ips(ctx,
		fmt.Sprintf("address add %s/32 dev %s", gateway, wire),
		fmt.Sprintf("route add %s/32 dev %s", address, wire),
	); err != nil {
		return nil, err
	}
	return h, h.ips(ctx,
		fmt.Sprintf("link set eth0 mtu %d", referenceMTU),
		fmt.Sprintf("address add %s/32 dev eth0", address),
		fmt.Sprintf("route add %s dev eth0", gateway),
		fmt.Sprintf("route add default via %s", gateway),
	)
}

// MasqueradeByKernel has the node's kernel masquerade what pods of IPv4 send out of the cluster.
func (n *Node) MasqueradeByKernel(ctx context.Context) error {
	_, err := n.Run(ctx, "nft", `table ip reference { chain out { type nat hook postrouting priority srcnat;
		ip saddr 10.244.0.0/16 ip daddr != 10.244.0.0/16 masquerade; }; }`)
	return err
}

// ips runs ip with each of these lines of arguments.
func (h *Host) ips(ctx context.Context, lines ...string) error {
	for _, line := range lines {
		if _, err := h.Run(ctx, "ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}
