// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
)

// fabricBridge is the name of the bridge that joins the nodes.
const fabricBridge = "fabric"

// fabricMAC is fixed: a bridge else takes one of its ports' addresses, and another when that port goes.
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
	listener, err := net.FileListener(os.NewFile(fabricFD, "forward"))
	if err != nil {
		return fmt.Errorf("listener to forward: %w", err)
	}
	go forward(listener, f.Forward.String())
	return nil
}

// forward joins each connection of the listener, which is in the network namespace of whoever booted the fabric,
// to one to the address in this one.
func forward(listener net.Listener, address string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			slog.Error("forwarding ends", "err", err)
			return
		}
		go func() {
			defer conn.Close()
			far, err := net.DialTimeout("tcp", address, 5*time.Second)
			if err != nil {
				return // the client sees its connection closed and tries again
			}
			defer far.Close()
			go func() {
				_, _ = io.Copy(far, conn)
				_ = far.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(conn, far)
		}()
	}
}
