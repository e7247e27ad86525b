// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// object is something that an interface of the kernel has: an address, a route, a rule or a
// neighbor. It is kept as the message that makes it, so that every attribute survives, with a
// placeholder for the interface: the index 0, or an empty name.
type object struct {
	// Kind is RTM_NEWADDR, RTM_NEWROUTE, RTM_NEWRULE or RTM_NEWNEIGH.
	Kind uint16 `json:"kind"`
	// Data is the kind's header, then attributes.
	Data []byte `json:"data"`
}

// iface is an interface that an object is on.
type iface struct {
	index int
	name  string
}

// Attributes that x/sys/unix does not name.
const (
	ifaProto    = 11
	rtaNextHop  = 30 // RTA_NH_ID
	ndaProtocol = 12
	ndaFlagsExt = 15
)

// Parts of the kernel's structures.
const (
	ruleInvert    = 2          // FIB_RULE_INVERT
	ruleFindSrc   = 0x00010000 // FIB_RULE_FIND_SADDR
	clockTicks    = 100        // USER_HZ
	forever       = ^uint32(0)
	nexthopLength = 8 // struct rtnexthop
)

// headers are the sizes of the kinds' headers.
var headers = map[uint16]int{
	unix.RTM_NEWADDR: unix.SizeofIfAddrmsg, unix.RTM_NEWROUTE: unix.SizeofRtMsg,
	unix.RTM_NEWRULE: unix.SizeofRtMsg, unix.RTM_NEWNEIGH: unix.SizeofNdMsg,
}

// parseObjects reads what a message of the kernel says that the interface from has. It leaves out
// the state of objects, which is not configured, and objects that come by themselves. A route with
// several next hops is several objects in IPv6, where each is added alone.
func parseObjects(m netlink.Message, from iface) []object {
	kind := uint16(m.Header.Type)
	size, ok := headers[kind]
	if !ok || len(m.Data) < size {
		return nil
	}
	attributes, err := netlink.UnmarshalAttributes(m.Data[size:])
	if err != nil {
		return nil
	}
	header := bytes.Clone(m.Data[:size])
	switch kind {
	case unix.RTM_NEWADDR:
		return parseAddress(header, attributes, from)
	case unix.RTM_NEWROUTE:
		return parseRoute(header, attributes, from)
	case unix.RTM_NEWRULE:
		return parseRule(header, attributes, from)
	}
	return parseNeighbour(header, attributes, from)
}

func newObject(kind uint16, header []byte, attributes []netlink.Attribute) []object {
	data, err := netlink.MarshalAttributes(attributes)
	if err != nil {
		return nil // an attribute longer than the kernel's own messages can be
	}
	return []object{{Kind: kind, Data: append(header, data...)}}
}

// keptFlags of an address are those that are configured; the others are its state.
const keptFlags = unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_NODAD | unix.IFA_F_HOMEADDRESS | unix.IFA_F_MANAGETEMPADDR

func parseAddress(header []byte, attributes []netlink.Attribute, from iface) []object {
	const flags, index = 2, 4
	if binary.NativeEndian.Uint32(header[index:]) != uint32(from.index) {
		return nil
	}
	kept := uint32(header[flags])
	for _, a := range attributes {
		if a.Type == unix.IFA_FLAGS {
			kept = number32(a.Data)
		}
	}
	kept &= keptFlags
	if header[0] == unix.AF_INET6 {
		// It was this node's a moment ago; the check for duplicates would cost a second.
		kept |= unix.IFA_F_NODAD
	}
	var list []netlink.Attribute
	for _, a := range attributes {
		switch a.Type {
		case unix.IFA_ADDRESS, unix.IFA_LOCAL, unix.IFA_BROADCAST, unix.IFA_RT_PRIORITY, ifaProto:
			list = append(list, a)
		case unix.IFA_LABEL:
			// eth0:1 is the label of an alias.
			label, ours := strings.CutPrefix(nameIn(a), from.name)
			if ours && label != "" {
				list = append(list, stringOf(unix.IFA_LABEL, label))
			}
		case unix.IFA_CACHEINFO:
			if len(a.Data) >= 16 && (number32(a.Data) != forever || number32(a.Data[4:]) != forever) {
				data := append(bytes.Clone(a.Data[:8]), make([]byte, 8)...)
				list = append(list, netlink.Attribute{Type: a.Type, Data: data})
			}
		}
	}
	header[flags] = 0
	clear(header[index:])
	return newObject(unix.RTM_NEWADDR, header, append(list, uint32Of(unix.IFA_FLAGS, kept)))
}

func parseRoute(header []byte, attributes []netlink.Attribute, from iface) []object {
	const protocol, table, kind, flags = 5, 4, 7, 8
	if header[table] == unix.RT_TABLE_LOCAL || header[kind] != unix.RTN_UNICAST ||
		header[protocol] == unix.RTPROT_REDIRECT {
		return nil
	}
	const cloned = 0x200 // RTM_F_CLONED: a cached exception
	if binary.NativeEndian.Uint32(header[flags:])&cloned != 0 {
		return nil
	}
	binary.NativeEndian.PutUint32(header[flags:], binary.NativeEndian.Uint32(header[flags:])&unix.RTNH_F_ONLINK)
	var ours bool
	var list []netlink.Attribute
	var hops []netlink.Attribute // of IPv6
	for _, a := range attributes {
		switch a.Type {
		case unix.RTA_OIF:
			if number32(a.Data) != uint32(from.index) {
				return nil
			}
			ours = true
			list = append(list, uint32Of(unix.RTA_OIF, 0))
		case unix.RTA_CACHEINFO:
			const expires = 8
			if len(a.Data) >= expires+4 && int32(number32(a.Data[expires:])) > 0 {
				list = append(list, uint32Of(unix.RTA_EXPIRES, max(number32(a.Data[expires:])/clockTicks, 1)))
			}
		case unix.RTA_MULTIPATH:
			data, found := renumber(a.Data, from.index, 0)
			if !found {
				return nil
			}
			if header[0] == unix.AF_INET6 {
				hops = append(hops, a)
				continue
			}
			ours = true
			list = append(list, netlink.Attribute{Type: a.Type, Data: data})
		case rtaNextHop, unix.RTA_EXPIRES, unix.RTA_UID:
			// The way itself is there, too; an object of the kernel's for next hops cannot move.
		default:
			list = append(list, a)
		}
	}
	if ours {
		return newObject(unix.RTM_NEWROUTE, header, list)
	}
	var all []object
	for _, a := range hops {
		all = append(all, splitHops(header, list, a.Data, from)...)
	}
	return all
}

// renumber replaces an interface in a list of next hops (struct rtnexthop, then attributes), and
// takes their state away. It says whether the interface is among them.
func renumber(hops []byte, from, to int) (changed []byte, found bool) {
	changed = bytes.Clone(hops)
	eachHop(changed, func(hop []byte) {
		const flags, index = 2, 4
		hop[flags] &= unix.RTNH_F_ONLINK
		if binary.NativeEndian.Uint32(hop[index:]) == uint32(from) {
			binary.NativeEndian.PutUint32(hop[index:], uint32(to))
			found = true
		}
	})
	return changed, found
}

// eachHop calls f with each next hop and its attributes.
func eachHop(hops []byte, f func(hop []byte)) {
	for len(hops) >= nexthopLength {
		length := int(binary.NativeEndian.Uint16(hops))
		if length < nexthopLength || length > len(hops) {
			return
		}
		f(hops[:length])
		hops = hops[min((length+3)&^3, len(hops)):]
	}
}

// splitHops makes a route of each next hop that is on the interface.
func splitHops(header []byte, attributes []netlink.Attribute, hops []byte, from iface) []object {
	var all []object
	eachHop(hops, func(hop []byte) {
		const flags, index, routeFlags = 2, 4, 8
		if binary.NativeEndian.Uint32(hop[index:]) != uint32(from.index) {
			return
		}
		way, err := netlink.UnmarshalAttributes(hop[nexthopLength:])
		if err != nil {
			return
		}
		h := bytes.Clone(header)
		binary.NativeEndian.PutUint32(h[routeFlags:], uint32(hop[flags])&unix.RTNH_F_ONLINK)
		all = append(all, newObject(unix.RTM_NEWROUTE, h,
			slices.Concat(attributes, way, []netlink.Attribute{uint32Of(unix.RTA_OIF, 0)}))...)
	})
	return all
}

func parseRule(header []byte, attributes []netlink.Attribute, from iface) []object {
	const flags = 8
	var ours bool
	for i, a := range attributes {
		if namesInterface(a) && nameIn(a) == from.name {
			attributes[i] = stringOf(a.Type, "")
			ours = true
		}
	}
	if !ours {
		return nil
	}
	binary.NativeEndian.PutUint32(header[flags:],
		binary.NativeEndian.Uint32(header[flags:])&(ruleInvert|ruleFindSrc))
	return newObject(unix.RTM_NEWRULE, header, attributes)
}

// parseNeighbour keeps what the kernel has found, to be asked again when it is used.
func parseNeighbour(header []byte, attributes []netlink.Attribute, from iface) []object {
	const index, state, flags, kind = 4, 8, 10, 11
	if binary.NativeEndian.Uint32(header[index:]) != uint32(from.index) || header[flags]&unix.NTF_PROXY != 0 {
		return nil
	}
	const found = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE
	switch s := binary.NativeEndian.Uint16(header[state:]); {
	case s&unix.NUD_PERMANENT != 0:
		binary.NativeEndian.PutUint16(header[state:], unix.NUD_PERMANENT)
	case s&found != 0:
		binary.NativeEndian.PutUint16(header[state:], unix.NUD_STALE)
	default:
		return nil
	}
	clear(header[index : index+4])
	header[flags] &= unix.NTF_ROUTER
	header[kind] = 0
	list := slices.DeleteFunc(attributes, func(a netlink.Attribute) bool {
		return !slices.Contains([]uint16{unix.NDA_DST, unix.NDA_LLADDR, ndaProtocol, ndaFlagsExt}, a.Type)
	})
	return newObject(unix.RTM_NEWNEIGH, header, list)
}

// on is the message's data with an interface in place of the placeholder.
func (o object) on(i iface) []byte {
	size := headers[o.Kind]
	header, attributes := bytes.Clone(o.Data[:size]), o.attributes()
	const index = 4 // of struct ifaddrmsg and struct ndmsg
	if o.Kind == unix.RTM_NEWADDR || o.Kind == unix.RTM_NEWNEIGH {
		binary.NativeEndian.PutUint32(header[index:], uint32(i.index))
	}
	for n, a := range attributes {
		switch {
		case o.Kind == unix.RTM_NEWADDR && a.Type == unix.IFA_LABEL:
			attributes[n] = stringOf(a.Type, i.name+nameIn(a))
		case o.Kind == unix.RTM_NEWROUTE && a.Type == unix.RTA_OIF && number32(a.Data) == 0:
			attributes[n] = uint32Of(a.Type, uint32(i.index))
		case o.Kind == unix.RTM_NEWROUTE && a.Type == unix.RTA_MULTIPATH:
			attributes[n].Data, _ = renumber(a.Data, 0, i.index)
		case o.Kind == unix.RTM_NEWRULE && namesInterface(a) && nameIn(a) == "":
			attributes[n] = stringOf(a.Type, i.name)
		}
	}
	data, err := netlink.MarshalAttributes(slices.DeleteFunc(attributes, func(a netlink.Attribute) bool {
		return o.Kind == unix.RTM_NEWADDR && a.Type == unix.IFA_LABEL && len(a.Data) > unix.IFNAMSIZ
	}))
	if err != nil {
		return header // refused by the kernel
	}
	return append(header, data...)
}

// valid says that the object can have come from parseObjects.
func (o object) valid() bool {
	size, ok := headers[o.Kind]
	if !ok || len(o.Data) < size {
		return false
	}
	_, err := netlink.UnmarshalAttributes(o.Data[size:])
	return err == nil
}

func (o object) attributes() []netlink.Attribute {
	list, err := netlink.UnmarshalAttributes(o.Data[headers[o.Kind]:])
	if err != nil {
		return nil
	}
	return list
}

func (o object) attribute(typ uint16) []byte {
	for _, a := range o.attributes() {
		if a.Type == typ {
			return a.Data
		}
	}
	return nil
}

func (o object) family() uint8 { return o.Data[0] }

// address is that of an address or of a neighbor, or the destination of a route.
func (o object) address() netip.Addr {
	switch o.Kind {
	case unix.RTM_NEWADDR:
		if a := o.attribute(unix.IFA_LOCAL); a != nil {
			return addr(a)
		}
		return addr(o.attribute(unix.IFA_ADDRESS))
	case unix.RTM_NEWROUTE:
		if a := o.attribute(unix.RTA_DST); a != nil {
			return addr(a)
		}
	case unix.RTM_NEWNEIGH:
		return addr(o.attribute(unix.NDA_DST))
	}
	if o.family() == unix.AF_INET {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// String names the object in errors.
func (o object) String() string {
	const length, priority = 1, 6
	switch o.Kind {
	case unix.RTM_NEWADDR:
		return "address " + netip.PrefixFrom(o.address(), int(o.Data[length])).String()
	case unix.RTM_NEWROUTE:
		return "route " + netip.PrefixFrom(o.address(), int(o.Data[length])).String()
	case unix.RTM_NEWRULE:
		return fmt.Sprintf("rule %d", number32(o.attribute(priority)))
	}
	return "neighbour " + o.address().String()
}

// passing says that the object ends by itself: it has a lifetime, or the kernel found it out.
func (o object) passing() bool {
	switch o.Kind {
	case unix.RTM_NEWADDR:
		return o.attribute(unix.IFA_CACHEINFO) != nil
	case unix.RTM_NEWROUTE:
		return o.attribute(unix.RTA_EXPIRES) != nil
	case unix.RTM_NEWNEIGH:
		return binary.NativeEndian.Uint16(o.Data[8:]) != unix.NUD_PERMANENT
	}
	return false
}

// linkLocal says that the object is an IPv6 address that every interface has by itself.
func (o object) linkLocal() bool {
	return o.Kind == unix.RTM_NEWADDR && o.family() == unix.AF_INET6 && o.address().IsLinkLocalUnicast()
}

// isDefault says that the object is a default route.
func (o object) isDefault() bool { return o.Kind == unix.RTM_NEWROUTE && o.Data[1] == 0 }

// protocol of a route.
func (o object) protocol() uint8 {
	if o.Kind != unix.RTM_NEWROUTE {
		return 0
	}
	return o.Data[5]
}

// later is a route that is used when there is no other.
func (o object) later() object {
	size := headers[o.Kind]
	attributes := o.attributes()
	for i, a := range attributes {
		if a.Type == unix.RTA_PRIORITY {
			attributes[i] = uint32Of(unix.RTA_PRIORITY, number32(a.Data)+1)
		}
	}
	data, err := netlink.MarshalAttributes(attributes)
	if err != nil {
		return o
	}
	return object{Kind: o.Kind, Data: append(bytes.Clone(o.Data[:size]), data...)}
}

func (o object) equal(p object) bool { return o.Kind == p.Kind && bytes.Equal(o.Data, p.Data) }

// sortObjects orders them so that each can be added after those before it: addresses first, and a
// route through a gateway after the one that leads to the gateway, which has a narrower scope.
// Neighbors come before the routes by which packets go to them.
func sortObjects(list []object) {
	order := []uint16{unix.RTM_NEWADDR, unix.RTM_NEWNEIGH, unix.RTM_NEWROUTE, unix.RTM_NEWRULE}
	const scope = 6
	slices.SortStableFunc(list, func(a, b object) int {
		if a.Kind != b.Kind || a.Kind != unix.RTM_NEWROUTE {
			return slices.Index(order, a.Kind) - slices.Index(order, b.Kind)
		}
		if a.Data[scope] != b.Data[scope] {
			return int(b.Data[scope]) - int(a.Data[scope])
		}
		return gateways(a) - gateways(b)
	})
}

// gateways is 1 for a route through a gateway. In IPv6 scopes do not tell.
func gateways(o object) int {
	if o.attribute(unix.RTA_GATEWAY) == nil && o.attribute(unix.RTA_MULTIPATH) == nil {
		return 0
	}
	return 1
}

// namesInterface says so of an attribute of a rule.
func namesInterface(a netlink.Attribute) bool {
	return a.Type == unix.FRA_IIFNAME || a.Type == unix.FRA_OIFNAME
}

// nameIn is the string in an attribute.
func nameIn(a netlink.Attribute) string { return string(bytes.TrimRight(a.Data, "\x00")) }

func number32(data []byte) uint32 {
	if len(data) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(data)
}

func uint32Of(typ uint16, v uint32) netlink.Attribute {
	return netlink.Attribute{Type: typ, Data: binary.NativeEndian.AppendUint32(nil, v)}
}

func stringOf(typ uint16, s string) netlink.Attribute {
	return netlink.Attribute{Type: typ, Data: append([]byte(s), 0)}
}

// objectSocket reads and writes objects.
type objectSocket struct{ conn *netlink.Conn }

func openObjects() (objectSocket, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return objectSocket{}, fmt.Errorf("netlink socket: %w", err)
	}
	// With strict checks the kernel filters a dump itself; old kernels know none of it and send
	// everything.
	_ = conn.SetOption(netlink.GetStrictCheck, true)
	return objectSocket{conn}, nil
}

func (s objectSocket) close() { _ = s.conn.Close() }

// list reads all objects of an interface.
func (s objectSocket) list(from iface) ([]object, error) {
	var all []object
	for _, kind := range []uint16{unix.RTM_NEWADDR, unix.RTM_NEWROUTE, unix.RTM_NEWRULE, unix.RTM_NEWNEIGH} {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			list, err := dump(func() ([]object, error) { return s.dump(kind, family, from) })
			if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
				return nil, fmt.Errorf("list of kind %d: %w", kind, err)
			}
			all = append(all, list...)
		}
	}
	sortObjects(all)
	return all, nil
}

// rules are those that name an interface, which need not be there.
func (s objectSocket) rules(name string) ([]object, error) {
	var all []object
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		list, err := dump(func() ([]object, error) { return s.dump(unix.RTM_NEWRULE, family, iface{name: name}) })
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return nil, fmt.Errorf("list of rules: %w", err)
		}
		all = append(all, list...)
	}
	return all, nil
}

func (s objectSocket) dump(kind uint16, family uint8, from iface) ([]object, error) {
	header := make([]byte, headers[kind])
	header[0] = family
	const index = 4
	var filter []netlink.Attribute
	switch kind {
	case unix.RTM_NEWADDR:
		binary.NativeEndian.PutUint32(header[index:], uint32(from.index))
	case unix.RTM_NEWROUTE:
		filter = append(filter, uint32Of(unix.RTA_OIF, uint32(from.index)))
	case unix.RTM_NEWNEIGH:
		filter = append(filter, uint32Of(unix.NDA_IFINDEX, uint32(from.index)))
	}
	data, err := netlink.MarshalAttributes(filter)
	if err != nil {
		return nil, err
	}
	const get = 2 // RTM_GETADDR - RTM_NEWADDR, and so on
	messages, err := s.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(kind + get), Flags: netlink.Request | netlink.Dump},
		Data:   append(header, data...),
	})
	if err != nil {
		return nil, err
	}
	var list []object
	for _, m := range messages {
		if m.Header.Flags&netlink.DumpInterrupted != 0 {
			return nil, nl.ErrDumpInterrupted
		}
		list = append(list, parseObjects(m, from)...)
	}
	return list, nil
}

// add makes an object of an interface. One that is there already is no error.
func (s objectSocket) add(o object, to iface) error {
	flags := netlink.Request | netlink.Acknowledge | netlink.Create
	switch o.Kind {
	case unix.RTM_NEWROUTE:
		// Beside a route of another interface to the same destination.
		flags |= netlink.Append
	case unix.RTM_NEWNEIGH:
		// The kernel may be looking for it already.
		flags |= netlink.Replace
	default:
		flags |= netlink.Excl
	}
	_, err := s.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(o.Kind), Flags: flags}, Data: o.on(to),
	})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("interface %s: add %s: %w", to.name, o, err)
	}
	return nil
}

// goneAlready are the kernel's words for an object that is not there: routes and IPv4's secondary
// addresses go with an address.
var goneAlready = []error{unix.ESRCH, unix.EADDRNOTAVAIL, unix.ENOENT, unix.ENODEV}

// remove takes an object from an interface.
func (s objectSocket) remove(o object, from iface) error {
	_, err := s.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(o.Kind + 1), Flags: netlink.Request | netlink.Acknowledge},
		Data:   o.on(from),
	})
	if err != nil && !slices.ContainsFunc(goneAlready, func(e error) bool { return errors.Is(err, e) }) {
		return fmt.Errorf("interface %s: remove %s: %w", from.name, o, err)
	}
	return nil
}
