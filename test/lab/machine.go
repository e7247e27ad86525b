// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"

	"github.com/vishvananda/netlink"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/ovstest"
)

// Machine says how a machine of OpenStack that is a node is plugged.
type Machine struct {
	// On is the node with the OVN that has its card, under the UUID Port of Neutron.
	On      *Node
	Port    string
	MAC     net.HardwareAddr
	Address netip.Prefix
	// Gateway leads its own packets out; MTU is that of its card.
	Gateway netip.Addr
	MTU     int
	// Bare has the agent make the bridge: the machine is as OpenStack boots it, with its address on
	// the card.
	Bare bool
}

// AddMachine adds a node to the cluster that is a machine of OpenStack on another node, and starts
// its agent. OVN is not on it. It cannot be rebooted.
func (l *Lab) AddMachine(ctx context.Context, m Machine) (*Node, error) {
	i := len(l.Nodes) + 1
	n := &Node{
		lab: l, index: i, dir: filepath.Join(l.dir, fmt.Sprintf("n%d", i)), pods: map[*Pod]struct{}{},
		bare:     m.Bare,
		PodCIDRs: l.options.Families.pick(fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:10:244:%d::/64", i)),
	}
	l.Nodes = append(l.Nodes, n)
	if err := n.bootMachine(ctx, m); err != nil {
		return nil, fmt.Errorf("machine n%d: %w", i, err)
	}
	l.API.setNode(n, map[string]string{v1alpha1.AnnotationTrunkPort: m.Port})
	return n, n.StartAgent(ctx)
}

// bootMachine is boot for a machine. Unless the agent does, it makes the bridge of the agent as its
// administrator would, with the machine's card as a port and its address.
func (n *Node) bootMachine(ctx context.Context, m Machine) (err error) {
	if n.Host, err = newHost(fmt.Sprintf("n%d", n.index), []netip.Prefix{m.Address}); err != nil {
		return err
	}
	g := &Guest{Host: n.Host, Port: "tap-" + n.Name, node: m.On, mac: m.MAC}
	if err := connect(m.On.Host, g.Port, n.Host, "eth0"); err != nil {
		return err
	}
	if err := n.withLink("eth0", func(l netlink.Link) error { return netlink.LinkSetMTU(l, m.MTU) }); err != nil {
		return err
	}
	n.OVS, err = ovstest.New(ctx, ovstest.Options{
		Dir: n.ovsDir(), Netns: n.Netns(), Datapath: string(n.lab.options.Datapath),
	})
	if err != nil {
		return err
	}
	link := "eth0"
	if m.Bare {
		if err := n.checksumInSoftware(link); err != nil { // its wire has no card that would do it
			return err
		}
		err = n.withLink(link, func(l netlink.Link) error { return netlink.LinkSetHardwareAddr(l, m.MAC) })
	} else {
		link, err = bridge, n.addUplinkBridge(ctx, bridge, m.MAC)
	}
	if err != nil {
		return err
	}
	if err := n.linkUp(link); err != nil {
		return err
	}
	if err := n.addAddresses(link, m.Address); err != nil {
		return err
	}
	if err := n.AddRoute(netip.PrefixFrom(m.Gateway, 0).Masked(), m.Gateway); err != nil {
		return err
	}
	if err := g.Plug(ctx, m.Port); err != nil {
		return err
	}
	return n.lab.API.listen(n)
}
