// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Attributes of IFLA_AF_SPEC that package unix lacks.
const (
	inetConf          = 1  // IFLA_INET_CONF of linux/if_link.h
	devconfARPIgnore  = 19 // IPV4_DEVCONF_ARP_IGNORE of linux/ip.h
	addrGenModeNone   = 1  // IN6_ADDR_GEN_MODE_NONE of linux/if_link.h
	ignoreAllRequests = 8  // of arp_ignore, Documentation/networking/ip-sysctl
)

// rawSocket returns what requests that package netlink has no call for are sent on.
func rawSocket() (map[int]*nl.SocketHandle, error) {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}, nil
}

// silence keeps the host's kernel off the wire to a pod, before the host's end is set up.
// A userspace datapath reads what the pod sends beside the kernel, not instead of it: the
// kernel would answer ARP requests for any address of the host with the MAC of this end.
// And it would send neighbor and router solicitations from a link-local address. Both
// settings are made by netlink, because /proc/sys may be read-only in a container.
//
// IPv6 is off altogether where that can be written: the kernel would make a multicast route for the
// interface, and on every change of routes a userspace datapath drops the routes of its tunnels and
// reads them again, which can cost a packet to another node.
func (p *Plumber) silence(link netlink.Link) error {
	index := link.Attrs().Index
	_ = p.writeSysctl(link.Attrs().Name, "disable_ipv6", "1")
	arp := nl.NewRtAttr(devconfARPIgnore, nl.Uint32Attr(ignoreAllRequests))
	inet := nl.NewRtAttr(unix.AF_INET, nl.NewRtAttr(inetConf, arp.Serialize()).Serialize())
	if err := p.setFamily(index, inet); err != nil {
		return fmt.Errorf("arp_ignore: %w", err)
	}
	mode := nl.NewRtAttr(unix.IFLA_INET6_ADDR_GEN_MODE, nl.Uint8Attr(addrGenModeNone))
	err := p.setFamily(index, nl.NewRtAttr(unix.AF_INET6, mode.Serialize()))
	if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EOPNOTSUPP) {
		// A kernel without IPv6.
		return fmt.Errorf("address generation mode: %w", err)
	}
	return nil
}

// setFamily changes settings of one address family of an interface.
func (p *Plumber) setFamily(index int, family *nl.RtAttr) error {
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	req.Sockets = p.raw
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFLA_AF_SPEC, family.Serialize()))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
