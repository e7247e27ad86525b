// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// ReferenceBridge is a bridge with the single flow NORMAL: what Open vSwitch
// does without a controller, to compare with. It may be given other flows.
const ReferenceBridge = "br-ref"

// referenceMTU is the MTU of pods behind VXLAN over an ordinary Ethernet.
const referenceMTU = 1450

// AddReferenceHost makes a host that is no pod of Coelan's: its eth0 is a port
// of a bridge of the node's Open vSwitch that does what a plain switch does.
func (n *Node) AddReferenceHost(ctx context.Context, name string, addresses ...netip.Prefix) (*Host, error) {
	if _, err := n.OVS.Vsctl(ctx, "--may-exist", "add-br", ReferenceBridge, "--",
		"set", "bridge", ReferenceBridge, "datapath_type="+n.OVS.Datapath, "fail_mode=standalone"); err != nil {
		return nil, err
	}
	h, err := newHost(name, addresses)
	if err != nil {
		return nil, err
	}
	n.onStop(h.close)
	port := "ref-" + name
	if err := connect(n.Host, port, h, "eth0"); err != nil {
		return nil, err
	}
	if n.OVS.Datapath == "netdev" {
		if err := h.checksumInSoftware("eth0"); err != nil {
			return nil, err
		}
	}
	if err := h.withLink("eth0", func(l netlink.Link) error {
		return netlink.LinkSetMTU(l, referenceMTU)
	}); err != nil {
		return nil, err
	}
	if err := h.addAddresses("eth0", addresses...); err != nil {
		return nil, err
	}
	if _, err := n.OVS.Vsctl(ctx, "add-port", ReferenceBridge, port); err != nil {
		return nil, fmt.Errorf("host %s: %w", name, err)
	}
	return h, nil
}

// AddReferenceRouter makes a router that is in place of a node, without Open vSwitch, with a client
// on a wire like those between nodes, and a server on one like those of pods.
func (l *Lab) AddReferenceRouter(clientAddress, serverAddress netip.Prefix) (router, client, server *Host, err error) {
	for _, h := range []struct {
		made      **Host
		name      string
		addresses []netip.Prefix
	}{
		{&router, "router", nil},
		{&client, "client", []netip.Prefix{clientAddress}},
		{&server, "server", []netip.Prefix{serverAddress}},
	} {
		if *h.made, err = newHost(h.name, h.addresses); err != nil {
			return nil, nil, nil, err
		}
		l.beyond = append(l.beyond, *h.made)
	}
	if err := l.wireBehind(router, client, fabricMTU); err != nil {
		return nil, nil, nil, err
	}
	if err := l.wireBehind(router, server, referenceMTU); err != nil {
		return nil, nil, nil, err
	}
	return router, client, server, server.withLink("eth0", func(link netlink.Link) error {
		return netlink.LinkSetMTU(link, referenceMTU)
	})
}
