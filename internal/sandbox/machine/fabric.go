// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
)

// fabricBridge is the name of the bridge that joins the nodes.
const fabricBridge = "fabric"

// fabricMAC is fixed: a bridge else takes one of its ports' addresses, and another
// when that port goes.
var fabricMAC = net.HardwareAddr{0x02, 0xc0, 0xe1, 0, 0, 1}

func (f Fabric) setup(lo netlink.Link) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = fabricBridge, fabricMAC
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make bridge %s: %w", fabricBridge, err)
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("set %s up: %w", fabricBridge, err)
	}
	for _, a := range f.Addresses {
		if err := addAddress(bridge, a); err != nil {
			return err
		}
	}
	for _, a := range f.Outside {
		if err := addAddress(lo, netip.PrefixFrom(a, a.BitLen())); err != nil {
			return err
		}
	}
	listener, err := net.FileListener(os.NewFile(outerFD, "forward"))
	if err != nil {
		return fmt.Errorf("listener to forward: %w", err)
	}
	balancer := newBalancer(f.Servers)
	go balancer.serve(listener)
	for _, address := range f.Balancers {
		// IPv6 addresses are tentative for a moment after they have been added.
		config := net.ListenConfig{Control: bindAnyway}
		listener, err := config.Listen(context.Background(), "tcp", address.String())
		if err != nil {
			return fmt.Errorf("load balancer: %w", err)
		}
		go balancer.serve(listener)
	}
	return nil
}
