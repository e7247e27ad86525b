// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

// solicitation is a router solicitation from an address.
func solicitation(from netip.Addr) []byte {
	to := addr("ff02::2")
	p := packet.Header{Source: from, Destination: to, Protocol: packet.ICMPv6, HopLimit: 255}.Packet(
		packet.ICMPv6From(from, to, routerSolicitation, 0, 0, nil))
	return packet.Ethernet(packet.Broadcast, machineMAC.HardwareAddr(), p.Type(), p)
}

// advertisedIn reads a router advertisement as text.
func advertisedIn(t *testing.T, frame []byte) string {
	t.Helper()
	mac, p, _ := opened(t, frame)
	m := p[packet.IPv6Len:]
	if mac != machineMAC || p.Source() != routerMAC.LinkLocal() || p[7] != 255 || m[0] != 134 || m[1] != 0 {
		t.Fatalf("no router advertisement: % x", frame)
	}
	parts := []string{
		"to " + p.Destination().String(), fmt.Sprintf("hops %d flags %#x lifetime %d", m[4], m[5], binary.BigEndian.Uint16(m[6:])),
	}
	for o := m[16:]; len(o) > 0; o = o[8*int(o[1]):] {
		switch o[0] {
		case optionSourceLink:
			parts = append(parts, fmt.Sprintf("mac %x", o[2:8]))
		case optionMTU:
			parts = append(parts, fmt.Sprintf("mtu %d", binary.BigEndian.Uint32(o[4:])))
		case optionPrefix:
			parts = append(parts, fmt.Sprintf("prefix %s/%d flags %#x", netip.AddrFrom16([16]byte(o[16:32])), o[2], o[3]))
		case optionDNSServers:
			parts = append(parts, "dns "+netip.AddrFrom16([16]byte(o[8:24])).String())
		case optionDNSSearch:
			parts = append(parts, fmt.Sprintf("search %q", bytes.TrimRight(o[8:8*int(o[1])], "\x00")))
		}
	}
	return strings.Join(parts, ", ")
}

func TestRouterAdvertisement(t *testing.T) {
	stateless := network()
	stateless.DHCP.IPv6 = intent.StatelessIPv6
	plain := network()
	plain.DNS = intent.DNS{}
	const (
		router = ", mac 0ac0e1000001, mtu 1400, prefix fd00:70::/64 flags "
		dns    = `, dns 2001:db8::53, search "\x03red\aexample\x00\aexample"`
		asked  = "to fe80::5054:ff:fe00:50, hops 64 flags "
	)
	for _, tc := range []struct {
		name    string
		network intent.Network
		address string
		from    netip.Addr
		want    string
	}{
		{"by DHCPv6", network(), "fd00:70::50", linkLocal, asked + "0xc0 lifetime 65535" + router + "0x80" + dns},
		{"without DNS", plain, "fd00:70::50", linkLocal, asked + "0xc0 lifetime 65535" + router + "0x80"},
		{"by itself", stateless, ownMade.String(), linkLocal, asked + "0x40 lifetime 65535" + router + "0xc0" + dns},
		{"not its own by itself", stateless, "fd00:70::50", linkLocal, asked + "0xc0 lifetime 65535" + router + "0x80" + dns},
		{"without an address yet", network(), "fd00:70::50", netip.IPv6Unspecified(), "to ff02::1, hops 64 flags 0xc0 lifetime 65535" + router + "0x80" + dns},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := leaseOf(t, tc.network, "10.70.0.50", tc.address)
			a := Handle(solicitation(tc.from), l)
			if a.Outcome != Answered || a.Protocol != Discovery {
				t.Fatal(a.Outcome)
			}
			if got := advertisedIn(t, a.Frame); got != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
	l := leaseOf(t, network(), "fd00:70::50")
	if got := advertisedIn(t, Advertisement(l)); !strings.HasPrefix(got, "to ff02::1, hops 64 flags 0xc0 lifetime 65535") {
		t.Errorf("unasked: %s", got)
	}
	if got := advertisedIn(t, Withdrawal(l)); !strings.HasPrefix(got, "to ff02::1, hops 64 flags 0xc0 lifetime 0") {
		t.Errorf("no router any more: %s", got)
	}
}

func TestNoAdvertisement(t *testing.T) {
	none := network()
	none.DHCP.IPv6 = intent.NoIPv6
	for name, l := range map[string]Lease{
		"IPv6 is left alone": leaseOf(t, none, "fd00:70::50"), "no IPv6 address": leaseOf(t, network(), "10.70.0.50"),
	} {
		if a := Handle(solicitation(linkLocal), l); a.Outcome != Ignored || Advertisement(l) != nil || Withdrawal(l) != nil {
			t.Errorf("%s: %s", name, a.Outcome)
		}
	}
	l := leaseOf(t, network(), "fd00:70::50")
	changed := func(at int, b byte) []byte {
		f := slices.Clone(solicitation(linkLocal))
		f[packet.EthernetLen+at] = b
		return f
	}
	for name, frame := range map[string][]byte{
		"from beyond a router": changed(7, 254),
		"an advertisement":     changed(packet.IPv6Len, 134),
		"of another code":      changed(packet.IPv6Len+1, 1),
		"with another's":       solicitation(addr("2001:db8::1")),
		"cut":                  solicitation(linkLocal)[:packet.EthernetLen+packet.IPv6Len+2],
	} {
		if a := Handle(frame, l); a.Outcome != Ignored || a.Frame != nil {
			t.Errorf("%s: %s", name, a.Outcome)
		}
	}
	long := network()
	for range 6 {
		long.DNS.Searches = append(long.DNS.Searches, strings.Repeat("a-long-label-of-a-domain.", 9)+"example")
	}
	if got := Advertisement(leaseOf(t, long, "fd00:70::50")); len(got) > 1280+packet.EthernetLen || strings.Contains(advertisedIn(t, got), "search") {
		t.Errorf("%d bytes with domains that do not fit", len(got))
	}
}

// A Network that is not to be answered, or is gone, gives no Lease; a MTU is never more than the
// node's network takes.
func TestLeaseOf(t *testing.T) {
	quiet, large := network(), network()
	quiet.DHCP = intent.DHCP{}
	large.MTU = 9000
	store := intent.NewStore()
	s, err := store.Update(func(tx *intent.Tx) error {
		tx.Replace(intent.Objects{Networks: []intent.Network{quiet}})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"red", "gone", ""} {
		if _, ok := LeaseOf(s, intent.Port{Network: name}, routerMAC); ok {
			t.Errorf("a Lease of Network %q", name)
		}
	}
	if l := leaseOf(t, large, "10.70.0.50"); l.MTU != 1450 {
		t.Errorf("MTU %d", l.MTU)
	}
	if got := HostName(strings.Repeat("a", 64)); got != "" {
		t.Errorf("a host name that is none: %s", got)
	}
}
