// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"

	"github.com/vishvananda/netlink"
)

// fabricMTU is the MTU of the wires between the nodes.
const fabricMTU = 1500

// fabric is the segment between the nodes: a bridge in a namespace of its own.
type fabric struct {
	*Host
	software bool // ends of the wires compute checksums in software
}

const fabricBridge = "fabric"

func newFabric(software bool) (*fabric, error) {
	h, err := newHost("fabric", nil)
	if err != nil {
		return nil, err
	}
	f := &fabric{Host: h, software: software}
	err = h.Do(func() error {
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: fabricBridge}})
	})
	if err == nil {
		err = h.linkUp(fabricBridge)
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return f, nil
}

// attach wires a host to the fabric, as its interface eth0.
func (f *fabric) attach(h *Host) error {
	if err := connect(f.Host, h.Name, h, "eth0"); err != nil {
		return err
	}
	if f.software {
		for _, end := range []struct {
			host *Host
			link string
		}{{f.Host, h.Name}, {h, "eth0"}} {
			if err := end.host.checksumInSoftware(end.link); err != nil {
				return err
			}
		}
	}
	return f.withLink(h.Name, func(port netlink.Link) error {
		bridge, err := netlink.LinkByName(fabricBridge)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(port, bridge)
	})
}

// detach takes the wire of the host of that name away.
func (f *fabric) detach(host string) error { return f.withLink(host, netlink.LinkDel) }

// The host outside: the nodes' default gateway, and an address behind it.
var (
	outsideAddresses  = []string{"192.168.33.1/24", "fd00:33::1/64"}
	internetAddresses = []string{"203.0.113.1/32", "2001:db8:113::1/128"}
)

// Internet is the address of the outside host that is not on the nodes' own segment.
func Internet(f Family) netip.Addr {
	return f.pick(internetAddresses...)[0].Addr()
}

func newOutside(f *fabric, families Family) (*Host, error) {
	h, err := newHost("outside", families.pick(outsideAddresses...))
	if err != nil {
		return nil, err
	}
	err = f.attach(h)
	if err == nil {
		err = h.addAddresses("eth0", h.Addresses...)
	}
	if err == nil {
		err = h.addAddresses("lo", families.pick(internetAddresses...)...)
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}
