// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/mdlayher/netlink"
	link "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/backend/ovs/hostnet"
)

// proxy is an entry of the kernel: on this interface, it answers for this address.
type proxy struct {
	index int
	addr  netip.Addr
}

// wire is an interface with other hosts behind it.
type wire struct {
	name     string
	index    int
	mac      net.HardwareAddr
	prefixes []netip.Prefix
	// local is the interface's link-local address; not valid: none.
	local netip.Addr
}

// wires are the interfaces that have addresses, and apart from them the one to the pods.
func wires(gateway string) (all, inside []wire, err error) {
	links, err := link.LinkList()
	if err != nil && !errors.Is(err, link.ErrDumpInterrupted) {
		return nil, nil, fmt.Errorf("list interfaces: %w", err)
	}
	addrs, err := link.AddrList(nil, link.FAMILY_ALL)
	if err != nil && !errors.Is(err, link.ErrDumpInterrupted) {
		return nil, nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, l := range links {
		a := l.Attrs()
		if a.Name == gateway {
			inside = []wire{{name: a.Name, index: a.Index, mac: a.HardwareAddr}}
			continue
		}
		if a.Flags&(net.FlagLoopback|net.FlagPointToPoint) != 0 || len(a.HardwareAddr) != 6 {
			continue
		}
		w := wire{name: a.Name, index: a.Index, mac: a.HardwareAddr}
		for _, x := range addrs {
			ip, ok := netip.AddrFromSlice(x.IP)
			if x.LinkIndex != a.Index || !ok {
				continue
			}
			ip = ip.Unmap()
			if ip.Is6() && ip.IsLinkLocalUnicast() {
				w.local = ip
				continue
			}
			ones, _ := x.Mask.Size()
			w.prefixes = append(w.prefixes, netip.PrefixFrom(ip, ones))
		}
		if len(w.prefixes) > 0 {
			all = append(all, w)
		}
	}
	return all, inside, nil
}

// Chosen are the addresses that this node's bridge answered for when an Announcer ran last.
func Chosen(gateway string) ([]netip.Addr, error) {
	i, err := link.LinkByName(gateway)
	if errors.As(err, &link.LinkNotFoundError{}) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("interface %s: %w", gateway, err)
	}
	k, err := newKernel()
	if err != nil {
		return nil, err
	}
	defer k.close()
	own, err := k.list()
	if err != nil {
		return nil, err
	}
	var list []netip.Addr
	for p := range own {
		if p.index == i.Attrs().Index {
			list = append(list, p.addr)
		}
	}
	return list, nil
}

// wiresOf are those with a subnet that contains the address; if there is none, the one with the
// node's own address, to which routers may send it.
func wiresOf(all []wire, a, node netip.Addr) []wire {
	var on, uplink []wire
	for _, w := range all {
		for _, p := range w.prefixes {
			if p.Contains(a) {
				on = append(on, w)
				break
			}
		}
		for _, p := range w.prefixes {
			if p.Addr() == node {
				uplink = append(uplink, w)
			}
		}
	}
	if len(on) > 0 {
		return on
	}
	return uplink
}

// prepare makes an interface answer by proxy entries at once, and in IPv6 at all.
func prepare(sysctlDir string, w wire, v6 bool) error {
	settings := map[string]string{filepath.Join("net/ipv4/neigh", w.name, "proxy_delay"): "0"}
	if v6 {
		settings = map[string]string{
			filepath.Join("net/ipv6/neigh", w.name, "proxy_delay"): "0",
			filepath.Join("net/ipv6/conf", w.name, "proxy_ndp"):    "1",
		}
	}
	for name, value := range settings {
		path := filepath.Join(sysctlDir, name)
		have, err := os.ReadFile(path)
		if err == nil && strings.TrimSpace(string(have)) == value {
			continue
		}
		if err == nil {
			err = os.WriteFile(path, []byte(value), 0o644)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s does not exist; is the address family turned off?", path)
		}
		if err != nil {
			return fmt.Errorf("kernel setting: %w", err)
		}
	}
	return nil
}

// kernel is a netlink socket for proxy entries.
type kernel struct{ conn *netlink.Conn }

func newKernel() (*kernel, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	return &kernel{conn}, nil
}

func (k *kernel) close() { _ = k.conn.Close() }

// ndmsg is the header of a neighbor message (struct ndmsg).
func ndmsg(family byte, index int, state uint16, flags byte) []byte {
	b := make([]byte, unix.SizeofNdMsg)
	b[0] = family
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint16(b[8:], state)
	b[10] = flags
	return b
}

const ndaProtocol = 12

// list gives all proxy entries that carry Coelan's protocol number. Others are other programs'.
func (k *kernel) list() (map[proxy]bool, error) {
	own := map[proxy]bool{}
	for _, f := range []byte{unix.AF_INET, unix.AF_INET6} {
		messages, err := k.conn.Execute(netlink.Message{
			Header: netlink.Header{Type: unix.RTM_GETNEIGH, Flags: netlink.Request | netlink.Dump},
			Data:   ndmsg(f, 0, 0, unix.NTF_PROXY),
		})
		if err != nil {
			return nil, fmt.Errorf("list proxy entries: %w", err)
		}
		for _, m := range messages {
			if p, ok := parse(m.Data); ok {
				own[p] = true
			}
		}
	}
	return own, nil
}

func parse(b []byte) (proxy, bool) {
	if len(b) < unix.SizeofNdMsg || b[10]&unix.NTF_PROXY == 0 {
		return proxy{}, false
	}
	p := proxy{index: int(binary.NativeEndian.Uint32(b[4:]))}
	ad, err := netlink.NewAttributeDecoder(b[unix.SizeofNdMsg:])
	if err != nil {
		return proxy{}, false
	}
	var protocol byte
	for ad.Next() {
		switch ad.Type() {
		case unix.NDA_DST:
			p.addr, _ = netip.AddrFromSlice(ad.Bytes())
		case ndaProtocol:
			protocol = ad.Uint8()
		}
	}
	return p, p.addr.IsValid() && protocol == byte(hostnet.Protocol)
}

// add makes an entry. It is permanent, so that a carrier that goes for a moment does not take it.
func (k *kernel) add(p proxy) error {
	return k.write(unix.RTM_NEWNEIGH, netlink.Create|netlink.Replace, p)
}

// remove deletes one; that it has gone already, with its interface, is fine.
func (k *kernel) remove(p proxy) error {
	err := k.write(unix.RTM_DELNEIGH, 0, p)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

func (k *kernel) write(typ netlink.HeaderType, flags netlink.HeaderFlags, p proxy) error {
	family := byte(unix.AF_INET)
	if p.addr.Is6() {
		family = unix.AF_INET6
	}
	ae := netlink.NewAttributeEncoder()
	ae.Bytes(unix.NDA_DST, p.addr.AsSlice())
	ae.Uint8(ndaProtocol, byte(hostnet.Protocol))
	attributes, err := ae.Encode()
	if err != nil {
		return err
	}
	_, err = k.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Acknowledge | flags},
		Data:   append(ndmsg(family, p.index, unix.NUD_PERMANENT, unix.NTF_PROXY), attributes...),
	})
	return err
}

// Remove deletes all proxy entries of Coelan.
func Remove() error {
	k, err := newKernel()
	if err != nil {
		return err
	}
	defer k.close()
	own, err := k.list()
	if err != nil {
		return err
	}
	var errs []error
	for p := range own {
		if err := k.remove(p); err != nil {
			errs = append(errs, fmt.Errorf("proxy entry %s: %w", p.addr, err))
		}
	}
	return errors.Join(errs...)
}
