// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
)

// connect makes a wire: a veth pair with an end in each host, both up.
func connect(a *Host, aName string, b *Host, bName string) error {
	ns, err := os.Open(b.Netns())
	if err != nil {
		return err
	}
	defer ns.Close()
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: aName, MTU: fabricMTU},
		PeerName:  bName, PeerMTU: fabricMTU, PeerNamespace: netlink.NsFd(int(ns.Fd())),
	}
	if err := a.Do(func() error { return netlink.LinkAdd(veth) }); err != nil {
		return fmt.Errorf("wire %s %s to %s %s: %w", a.Name, aName, b.Name, bName, err)
	}
	if err := a.linkUp(aName); err != nil {
		return err
	}
	return b.linkUp(bName)
}

func (h *Host) linkUp(name string) error {
	return h.withLink(name, netlink.LinkSetUp)
}

// withLink runs fn in the host's namespace with the link of that name.
func (h *Host) withLink(name string, fn func(netlink.Link) error) error {
	return h.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = fn(link)
		}
		if err != nil {
			return fmt.Errorf("host %s: link %s: %w", h.Name, name, err)
		}
		return nil
	})
}

// joinTimeout bounds the wait for the kernel to join the multicast group of an address.
const joinTimeout = 10 * time.Second

// addAddresses gives a link addresses that can be used at once. Of an IPv6 address the kernel joins
// the solicited-node multicast group a little later, and announces the address after that: a
// neighbor solicitation in between would have no answer.
func (h *Host) addAddresses(link string, addresses ...netip.Prefix) error {
	return h.withLink(link, func(l netlink.Link) error {
		done, updates := make(chan struct{}), make(chan netlink.AddrUpdate, 16)
		defer close(done)
		if err := netlink.AddrSubscribe(updates, done); err != nil {
			return fmt.Errorf("follow addresses: %w", err)
		}
		joining := map[netip.Addr]bool{}
		for _, p := range addresses {
			addr := &netlink.Addr{IPNet: ipNet(p)}
			if p.Addr().Is6() {
				addr.Flags = 0x02 // IFA_F_NODAD: no wait for duplicates
				joining[p.Addr()] = true
			}
			if err := netlink.AddrAdd(l, addr); err != nil {
				return fmt.Errorf("address %s: %w", p, err)
			}
		}
		over := time.After(joinTimeout)
		for len(joining) > 0 {
			select {
			case u, ok := <-updates:
				if !ok {
					return fmt.Errorf("addresses %v: the kernel ended the subscription", addresses)
				}
				if a, _ := netip.AddrFromSlice(u.LinkAddress.IP); u.NewAddr {
					delete(joining, a)
				}
			case <-over:
				return fmt.Errorf("addresses %v: the kernel has not announced them within %s", addresses, joinTimeout)
			}
		}
		return nil
	})
}

// AddRoute adds a route by way of a neighbor.
func (h *Host) AddRoute(dst netip.Prefix, via netip.Addr) error {
	return h.Do(func() error {
		if err := netlink.RouteAdd(&netlink.Route{Dst: ipNet(dst), Gw: via.AsSlice()}); err != nil {
			return fmt.Errorf("host %s: route %s via %s: %w", h.Name, dst, via, err)
		}
		return nil
	})
}

// checksumInSoftware makes the sender of a wire compute its checksums: the
// userspace datapath at the other end takes packets as they are.
func (h *Host) checksumInSoftware(link string) error {
	return h.Do(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		if err := e.Change(link, map[string]bool{"tx-checksum-ip-generic": false}); err != nil {
			return fmt.Errorf("host %s: link %s: tx checksums: %w", h.Name, link, err)
		}
		return nil
	})
}

// Sysctl writes a kernel setting of the host, such as net/ipv4/ip_forward.
func (h *Host) Sysctl(name, value string) error {
	return h.Do(func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0o644) })
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
