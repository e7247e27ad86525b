// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The interfaces of these tests.
var (
	eth0   = iface{3, "eth0"}
	office = iface{8, "br-office"}
)

func attribute(typ uint16, data []byte) netlink.Attribute {
	return netlink.Attribute{Type: typ, Data: data}
}

func bytesOf(s string) []byte { return netip.MustParseAddr(s).AsSlice() }

func familyOf(s string) byte {
	if netip.MustParseAddr(s).Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// words are a route's ends, in any order, and other things of an object.
type words struct {
	to, via      string
	bits         byte
	device       uint32
	table        byte
	protocol     byte
	scope        byte
	kind         byte
	flags        uint32
	state        uint16
	metric       uint32
	expires      uint32 // seconds
	hops         []byte
	more         []netlink.Attribute
	neighbour    byte // flags
	addressFlags uint32
}

func (w words) address(t *testing.T) netlink.Message {
	header := make([]byte, unix.SizeofIfAddrmsg)
	header[0], header[1], header[2] = familyOf(w.to), w.bits, byte(w.addressFlags)
	binary.NativeEndian.PutUint32(header[4:], w.device)
	list := append([]netlink.Attribute{
		attribute(unix.IFA_ADDRESS, bytesOf(w.to)), number(unix.IFA_FLAGS, w.addressFlags),
	}, w.more...)
	lifetime := forever
	if w.expires != 0 {
		lifetime = w.expires
	}
	info := binary.NativeEndian.AppendUint32(nil, lifetime)
	info = binary.NativeEndian.AppendUint32(info, lifetime)
	return message(t, unix.RTM_NEWADDR, header, append(list, attribute(unix.IFA_CACHEINFO, append(info, 1, 2, 3, 4, 5, 6, 7, 8)))...)
}

func (w words) route(t *testing.T) netlink.Message {
	header := make([]byte, unix.SizeofRtMsg)
	header[0], header[1], header[4], header[5], header[6], header[7] = familyOf(w.to), w.bits, w.table, w.protocol, w.scope, unix.RTN_UNICAST
	if w.table == 0 {
		header[4] = unix.RT_TABLE_MAIN
	}
	if w.kind != 0 {
		header[7] = w.kind
	}
	binary.NativeEndian.PutUint32(header[8:], w.flags)
	list := w.more
	if w.bits != 0 {
		list = append(list, attribute(unix.RTA_DST, bytesOf(w.to)))
	}
	if w.via != "" {
		list = append(list, attribute(unix.RTA_GATEWAY, bytesOf(w.via)))
	}
	if w.device != 0 {
		list = append(list, number(unix.RTA_OIF, w.device))
	}
	if w.metric != 0 {
		list = append(list, number(unix.RTA_PRIORITY, w.metric))
	}
	if w.hops != nil {
		list = append(list, attribute(unix.RTA_MULTIPATH, w.hops))
	}
	info := make([]byte, 32)
	binary.NativeEndian.PutUint32(info[8:], w.expires*clockTicks)
	return message(t, unix.RTM_NEWROUTE, header, append(list, attribute(unix.RTA_CACHEINFO, info))...)
}

func (w words) rule(t *testing.T, names ...netlink.Attribute) netlink.Message {
	header := make([]byte, unix.SizeofRtMsg)
	header[0] = unix.AF_INET
	binary.NativeEndian.PutUint32(header[8:], w.flags)
	return message(t, unix.RTM_NEWRULE, header, append(names, number(6, w.metric))...)
}

func (w words) neigh(t *testing.T) netlink.Message {
	header := make([]byte, unix.SizeofNdMsg)
	header[0], header[10], header[11] = familyOf(w.to), w.neighbour, unix.RTN_UNICAST
	binary.NativeEndian.PutUint32(header[4:], w.device)
	binary.NativeEndian.PutUint16(header[8:], w.state)
	return message(t, unix.RTM_NEWNEIGH, header, attribute(unix.NDA_DST, bytesOf(w.to)), attribute(unix.NDA_CACHEINFO, make([]byte, 16)),
		attribute(unix.NDA_LLADDR, []byte{2, 0, 0, 0, 0, 9}))
}

// hop is a next hop of a route with several.
func nextHop(device uint32, flags byte, via string) []byte {
	data, _ := netlink.MarshalAttributes([]netlink.Attribute{attribute(unix.RTA_GATEWAY, bytesOf(via))})
	h := binary.NativeEndian.AppendUint16(nil, uint16(nexthopLength+len(data))) //nolint:gosec // short
	h = append(h, flags, 0)
	return append(binary.NativeEndian.AppendUint32(h, device), data...)
}

func addressObject(t *testing.T, p string) object {
	t.Helper()
	at := netip.MustParsePrefix(p)
	list := parseObjects(words{to: at.Addr().String(), bits: byte(at.Bits()), device: 3}.address(t), eth0)
	if len(list) != 1 {
		t.Fatalf("address %s is %v", p, list)
	}
	return list[0]
}

// attributesOf shows an object's message on an interface: its attributes by type.
func attributesOf(o object, on iface) map[uint16][]byte {
	all := map[uint16][]byte{}
	list, _ := netlink.UnmarshalAttributes(o.on(on)[headers[o.Kind]:])
	for _, a := range list {
		all[a.Type] = a.Data
	}
	return all
}

// Of what an interface has, that is kept which was configured, and nothing of other interfaces or
// that comes by itself.
func TestObjectsThatAreKept(t *testing.T) {
	here := func(n uint32) netlink.Attribute { return number(unix.RTA_TABLE, n) }
	for name, tc := range map[string]struct {
		m    netlink.Message
		want []string
		on   string // of passing and configured
	}{
		"address":               {words{to: "192.0.2.1", bits: 24, device: 3}.address(t), []string{"address 192.0.2.1/24"}, "configured"},
		"address by DHCP":       {words{to: "192.0.2.1", bits: 24, device: 3, expires: 600}.address(t), []string{"address 192.0.2.1/24"}, "passing"},
		"another's address":     {words{to: "192.0.2.1", bits: 24, device: 4}.address(t), nil, ""},
		"link-local":            {words{to: "fe80::1", bits: 64, device: 3}.address(t), []string{"address fe80::1/64"}, ""},
		"IPv4's own link-local": {words{to: "169.254.7.7", bits: 16, device: 3}.address(t), []string{"address 169.254.7.7/16"}, "configured"},
		"route":                 {words{to: "0.0.0.0", via: "192.0.2.254", device: 3, protocol: unix.RTPROT_STATIC}.route(t), []string{"route 0.0.0.0/0"}, "configured"},
		"route of an address":   {words{to: "192.0.2.0", bits: 24, device: 3, protocol: unix.RTPROT_KERNEL}.route(t), []string{"route 192.0.2.0/24"}, "configured"},
		"route of Coelan's":     {words{to: "10.244.2.0", bits: 24, via: "192.0.2.2", device: 3, protocol: byte(Protocol)}.route(t), []string{"route 10.244.2.0/24"}, ""},
		"advertised route":      {words{to: "::", via: "fe80::9", device: 3, protocol: unix.RTPROT_RA, metric: 1024, expires: 1800}.route(t), []string{"route ::/0"}, "passing"},
		"a table of its own":    {words{to: "10.0.0.0", bits: 8, device: 3, more: []netlink.Attribute{here(77)}}.route(t), []string{"route 10.0.0.0/8"}, "configured"},
		"local table":           {words{to: "192.0.2.1", bits: 32, device: 3, table: unix.RT_TABLE_LOCAL}.route(t), nil, ""},
		"broadcast":             {words{to: "192.0.2.255", bits: 32, device: 3, kind: unix.RTN_BROADCAST}.route(t), nil, ""},
		"redirect":              {words{to: "198.51.100.1", bits: 32, device: 3, protocol: unix.RTPROT_REDIRECT}.route(t), nil, ""},
		"exception":             {words{to: "198.51.100.1", bits: 32, device: 3, flags: 0x200}.route(t), nil, ""},
		"another's route":       {words{to: "0.0.0.0", via: "192.0.2.254", device: 4}.route(t), nil, ""},
		"without an interface":  {words{to: "10.0.0.0", bits: 8}.route(t), nil, ""},
		"over two cards": {words{to: "0.0.0.0", hops: slices.Concat(nextHop(4, 0, "192.0.2.9"), nextHop(3, 16, "192.0.2.254"))}.route(t),
			[]string{"route 0.0.0.0/0"}, "configured"},
		"over two other cards": {words{to: "0.0.0.0", hops: slices.Concat(nextHop(4, 0, "192.0.2.9"), nextHop(5, 0, "192.0.2.8"))}.route(t), nil, ""},
		"two ways in IPv6": {words{to: "::", hops: slices.Concat(nextHop(3, 0, "fd00::9"), nextHop(4, 0, "fd00::a"), nextHop(3, 0, "fd00::b"))}.route(t),
			[]string{"route ::/0", "route ::/0"}, "configured"},
		"rule":                   {words{metric: 100}.rule(t, text(unix.FRA_IIFNAME, "eth0")), []string{"rule 100"}, "configured"},
		"rule of the way out":    {words{metric: 101}.rule(t, text(unix.FRA_OIFNAME, "eth0")), []string{"rule 101"}, "configured"},
		"another's rule":         {words{metric: 100}.rule(t, text(unix.FRA_IIFNAME, "eth01")), nil, ""},
		"rule for all":           {words{metric: 100}.rule(t), nil, ""},
		"neighbour":              {words{to: "192.0.2.9", device: 3, state: unix.NUD_PERMANENT}.neigh(t), []string{"neighbour 192.0.2.9"}, "configured"},
		"neighbour found":        {words{to: "fd00::9", device: 3, state: unix.NUD_REACHABLE}.neigh(t), []string{"neighbour fd00::9"}, "passing"},
		"neighbour not there":    {words{to: "192.0.2.9", device: 3, state: unix.NUD_FAILED}.neigh(t), nil, ""},
		"neighbour answered for": {words{to: "192.0.2.9", device: 3, state: unix.NUD_PERMANENT, neighbour: unix.NTF_PROXY}.neigh(t), nil, ""},
		"another's neighbour":    {words{to: "192.0.2.9", device: 4, state: unix.NUD_PERMANENT}.neigh(t), nil, ""},
		"a link":                 {linkMessage(t, "eth0"), nil, ""},
	} {
		list := parseObjects(tc.m, eth0)
		var got []string
		for _, o := range list {
			got = append(got, o.String())
			if passing := o.passing(); passing != (tc.on == "passing") {
				t.Errorf("%s: passing is %t", name, passing)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if kept := len(configured(list)) > 0; kept != (tc.on == "configured") {
			t.Errorf("%s: configured is %t", name, kept)
		}
	}
}

// An object is made on another interface with all its attributes, and without its state.
func TestObjectsOnAnotherInterface(t *testing.T) {
	one := func(m netlink.Message) object {
		t.Helper()
		list := parseObjects(m, eth0)
		if len(list) != 1 {
			t.Fatalf("objects %v", list)
		}
		return list[0]
	}
	metrics := []byte{8, 0, 2, 0, 0x78, 5, 0, 0}
	route := one(words{
		to: "10.9.0.0", bits: 16, via: "192.0.2.254", device: 3, metric: 50, flags: unix.RTNH_F_ONLINK | unix.RTNH_F_LINKDOWN,
		more: []netlink.Attribute{attribute(unix.RTA_METRICS, metrics), attribute(unix.RTA_PREFSRC, bytesOf("192.0.2.1")), number(rtaNextHop, 12)},
	}.route(t))
	got := attributesOf(route, office)
	want := map[uint16][]byte{
		unix.RTA_DST: bytesOf("10.9.0.0"), unix.RTA_GATEWAY: bytesOf("192.0.2.254"), unix.RTA_METRICS: metrics,
		unix.RTA_PREFSRC: bytesOf("192.0.2.1"), unix.RTA_OIF: number(0, 8).Data, unix.RTA_PRIORITY: number(0, 50).Data,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("route (-want +got):\n%s", diff)
	}
	if flags := number32(route.on(office)[8:]); flags != unix.RTNH_F_ONLINK {
		t.Errorf("flags %#x", flags)
	}
	if later := attributesOf(route.later(), office)[unix.RTA_PRIORITY]; number32(later) != 51 {
		t.Errorf("metric of the later route %v", later)
	}

	expiring := one(words{to: "::", via: "fe80::9", device: 3, protocol: unix.RTPROT_RA, metric: 1024, expires: 1800}.route(t))
	if left := number32(attributesOf(expiring, office)[unix.RTA_EXPIRES]); left != 1800 {
		t.Errorf("expires in %d s", left)
	}
	hops := slices.Concat(nextHop(4, 0, "192.0.2.9"), nextHop(3, 16, "192.0.2.254"))
	two := attributesOf(one(words{to: "0.0.0.0", hops: hops}.route(t)), office)
	if want := slices.Concat(nextHop(4, 0, "192.0.2.9"), nextHop(8, 0, "192.0.2.254")); !bytes.Equal(two[unix.RTA_MULTIPATH], want) {
		t.Errorf("next hops %v, want %v", two[unix.RTA_MULTIPATH], want)
	}
	six := parseObjects(words{to: "::", metric: 7, hops: slices.Concat(nextHop(3, 4, "fd00::9"), nextHop(4, 0, "fd00::a"))}.route(t), eth0)
	if len(six) != 1 || !bytes.Equal(attributesOf(six[0], office)[unix.RTA_GATEWAY], bytesOf("fd00::9")) ||
		number32(six[0].on(office)[8:]) != unix.RTNH_F_ONLINK {
		t.Errorf("ways %v", six)
	}

	address := one(words{
		to: "192.0.2.1", bits: 24, device: 3, addressFlags: unix.IFA_F_PERMANENT | unix.IFA_F_NOPREFIXROUTE,
		more: []netlink.Attribute{text(unix.IFA_LABEL, "eth0:1"), attribute(unix.IFA_BROADCAST, bytesOf("192.0.2.255"))},
	}.address(t))
	got = attributesOf(address, office)
	want = map[uint16][]byte{
		unix.IFA_ADDRESS: bytesOf("192.0.2.1"), unix.IFA_BROADCAST: bytesOf("192.0.2.255"),
		unix.IFA_LABEL: []byte("br-office:1\x00"), unix.IFA_FLAGS: number(0, unix.IFA_F_NOPREFIXROUTE).Data,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("address (-want +got):\n%s", diff)
	}
	if long := attributesOf(address, iface{9, strings.Repeat("x", 15)}); long[unix.IFA_LABEL] != nil {
		t.Errorf("a label that the kernel refuses: %q", long[unix.IFA_LABEL])
	}
	lease := attributesOf(one(words{to: "fd00::1", bits: 64, device: 3, expires: 600}.address(t)), office)
	if want := slices.Concat(number(0, 600).Data, number(0, 600).Data, make([]byte, 8)); !bytes.Equal(lease[unix.IFA_CACHEINFO], want) {
		t.Errorf("lifetimes %v", lease[unix.IFA_CACHEINFO])
	}
	if flags := number32(lease[unix.IFA_FLAGS]); flags != unix.IFA_F_NODAD {
		t.Errorf("flags %#x: the address would be checked for duplicates", flags)
	}

	rule := one(words{metric: 100, flags: ruleInvert | 8}.rule(t, text(unix.FRA_IIFNAME, "eth0"), text(unix.FRA_OIFNAME, "eth1")))
	got = attributesOf(rule, office)
	if string(got[unix.FRA_IIFNAME]) != "br-office\x00" || string(got[unix.FRA_OIFNAME]) != "eth1\x00" || number32(rule.on(office)[8:]) != ruleInvert {
		t.Errorf("rule %v", got)
	}
	found := one(words{to: "192.0.2.9", device: 3, state: unix.NUD_REACHABLE, neighbour: unix.NTF_ROUTER | unix.NTF_EXT_LEARNED}.neigh(t)).on(office)
	if number32(found[4:]) != 8 || binary.NativeEndian.Uint16(found[8:]) != unix.NUD_STALE || found[10] != unix.NTF_ROUTER || found[11] != 0 {
		t.Errorf("neighbour %v", found[:12])
	}
}

// What can be on the bridge before packets come that way is there, and nothing is taken from the
// card that is not on the bridge.
func TestMovePlan(t *testing.T) {
	var have []object
	for _, m := range []netlink.Message{
		words{to: "192.0.2.9", device: 3, state: unix.NUD_REACHABLE}.neigh(t),
		words{metric: 100}.rule(t, text(unix.FRA_IIFNAME, "eth0")),
		words{to: "0.0.0.0", via: "192.0.2.254", device: 3, protocol: unix.RTPROT_STATIC}.route(t),
		words{to: "192.0.2.254", bits: 32, device: 3, scope: unix.RT_SCOPE_LINK}.route(t),
		words{to: "::", via: "fe80::9", device: 3, protocol: unix.RTPROT_RA, metric: 1024, expires: 1800}.route(t),
		words{to: "fe80::9", device: 3, state: unix.NUD_STALE}.neigh(t),
		words{to: "192.0.2.1", bits: 24, device: 3}.address(t),
		words{to: "fd00::1", bits: 64, device: 3}.address(t),
		words{to: "fe80::1", bits: 64, device: 3}.address(t),
	} {
		have = append(have, parseObjects(m, eth0)...)
	}
	sortObjects(have)
	names := func(list []object) (all []string) {
		for _, o := range list {
			all = append(all, o.String())
		}
		return all
	}
	for shared, want := range map[bool][3][]string{
		false: {
			{"address 192.0.2.1/24", "neighbour 192.0.2.9", "neighbour fe80::9", "route 192.0.2.254/32", "route 0.0.0.0/0", "rule 100"},
			{"address fd00::1/64", "route ::/0"},
			{"rule 100", "route ::/0", "route 0.0.0.0/0", "route 192.0.2.254/32", "address 192.0.2.1/24"},
		},
		true: {
			{"address 192.0.2.1/24", "address fe80::1/64", "neighbour 192.0.2.9", "neighbour fe80::9", "route 192.0.2.254/32", "route 0.0.0.0/0", "rule 100"},
			{"address fd00::1/64", "route ::/0"},
			{"rule 100", "route ::/0", "route 0.0.0.0/0", "route 192.0.2.254/32", "address 192.0.2.1/24"},
		},
	} {
		m := planMove(have, shared)
		if diff := cmp.Diff(want, [3][]string{names(m.early), names(m.late), names(m.gone)}); diff != "" {
			t.Errorf("shared %t (-want +got):\n%s", shared, diff)
		}
		if metric := number32(attributesOf(m.late[1], office)[unix.RTA_PRIORITY]); metric != 1025 {
			t.Errorf("the advertised route has metric %d, and the kernel would not renew its own", metric)
		}
	}
}

// Whatever a message holds, what is read of it can be written.
func FuzzObjects(f *testing.F) {
	for _, m := range []netlink.Message{
		words{to: "192.0.2.1", bits: 24, device: 3}.address(&testing.T{}),
		words{to: "0.0.0.0", hops: slices.Concat(nextHop(4, 0, "192.0.2.9"), nextHop(3, 16, "192.0.2.254"))}.route(&testing.T{}),
		words{to: "::", hops: nextHop(3, 0, "fd00::9")}.route(&testing.T{}),
		words{metric: 100}.rule(&testing.T{}, text(unix.FRA_IIFNAME, "eth0")),
		words{to: "192.0.2.9", device: 3, state: unix.NUD_PERMANENT}.neigh(&testing.T{}),
	} {
		f.Add(uint16(m.Header.Type), m.Data)
	}
	f.Fuzz(func(t *testing.T, kind uint16, data []byte) {
		m := netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind)}, Data: data}
		for _, o := range parseObjects(m, eth0) {
			if !o.valid() {
				t.Fatalf("%v is not valid", o)
			}
			_, _ = o.String(), o.passing()
			if on := (object{o.Kind, o.on(office)}); !on.valid() || len(on.attributes()) > len(o.attributes()) {
				t.Fatalf("%v is written as %v", o, on)
			}
		}
	})
}
