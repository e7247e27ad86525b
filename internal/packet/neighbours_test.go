// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"testing"
)

var neighbourMAC = net.HardwareAddr{0x0a, 0, 0, 0, 0, 2}

func TestNeighbourRequest(t *testing.T) {
	mac := net.HardwareAddr{0x0a, 0, 0, 0, 0, 1}
	for _, tc := range []struct {
		name, target, source string
		to                   net.HardwareAddr
		want                 string
	}{
		{"ARP", "10.0.0.2", "10.0.0.1", nil,
			"ffffffffffff 0a0000000001 0806 0001 0800 06 04 0001 0a0000000001 0a000001 000000000000 0a000002"},
		{"ARP to a station", "10.0.0.2", "10.0.0.1", neighbourMAC,
			"0a0000000002 0a0000000001 0806 0001 0800 06 04 0001 0a0000000001 0a000001 0a0000000002 0a000002"},
		{"solicitation", "fd00::1:2345:6789", "fd00::1", nil,
			"3333ff456789 0a0000000001 86dd 60000000 0020 3a ff fd000000000000000000000000000001 ff0200000000000000000001ff456789" +
				"8700 3e88 00000000 fd000000000000000000000123456789 0101 0a0000000001"},
		{"solicitation to a station", "fd00::2", "fd00::1", neighbourMAC,
			"0a0000000002 0a0000000001 86dd 60000000 0020 3a ff fd000000000000000000000000000001 fd000000000000000000000000000002" +
				"8700 0000 00000000 fd000000000000000000000000000002 0101 0a0000000001"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := NeighbourRequest(netip.MustParseAddr(tc.target), tc.to, netip.MustParseAddr(tc.source), mac)
			want := fromHex(tc.want)
			if p, ok := Parse(got); ok {
				if sum := Checksum(PseudoHeader(p.Source(), p.Destination(), ICMPv6, len(p)-IPv6Len), p[IPv6Len:]); sum != 0 {
					t.Errorf("the checksum is wrong by %#x", sum)
				}
				copy(want[56:58], got[56:58])
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%x\nwant %x", got, want)
			}
		})
	}
}

// advertised is a frame with an advertisement of fd00::9 with options.
func advertised(dst string, flags uint32, options string) []byte {
	src, to, target := netip.MustParseAddr("fe80::1"), netip.MustParseAddr(dst), netip.MustParseAddr("fd00::9")
	m := ICMPv6From(src, to, 136, 0, flags, append(target.AsSlice(), fromHex(options)...))
	p := Header{Source: src, Destination: to, Protocol: ICMPv6, HopLimit: 255}.Packet(m)
	return Ethernet(nil, neighbourMAC, p.Type(), p)
}

const targetOptionHex = "0201 0a0000000002"

// claims are frames and what is read from them.
var claims = []struct {
	name  string
	frame []byte
	want  string
}{
	{"ARP reply", Ethernet(nil, nil, TypeARP, ARP(ARPReply, neighbourMAC, netip.MustParseAddr("10.0.0.2"), nil, netip.MustParseAddr("10.0.0.1"))),
		"10.0.0.2 0a:00:00:00:00:02 solicited false, override true"},
	{"ARP request, padded", append(Ethernet(nil, nil, TypeARP, ARP(ARPRequest, neighbourMAC, netip.MustParseAddr("10.0.0.2"), nil, netip.MustParseAddr("10.0.0.1"))), make([]byte, 18)...),
		"10.0.0.2 0a:00:00:00:00:02 solicited false, override true"},
	{"advertisement", advertised("fd00::1", Solicited|Override, targetOptionHex), "fd00::9 0a:00:00:00:00:02 solicited true, override true"},
	{"advertisement, padded", append(advertised("fd00::1", Solicited, targetOptionHex), 1, 2), "fd00::9 0a:00:00:00:00:02 solicited true, override false"},
	{"advertisement to all", advertised("ff02::1", Override, targetOptionHex), "fd00::9 0a:00:00:00:00:02 solicited false, override true"},
	{"advertisement without option", advertised("fd00::1", Solicited, ""), "fd00::9  solicited true, override false"},
	{"advertisement with other options", advertised("fd00::1", Override, "0e01 000000000000"+targetOptionHex), "fd00::9 0a:00:00:00:00:02 solicited false, override true"},
	{"solicited to all", advertised("ff02::1", Solicited|Override, targetOptionHex), ""},
	{"two MACs", advertised("fd00::1", Override, targetOptionHex+"0201 0a0000000003"), ""},
	{"long MAC", advertised("fd00::1", Override, "0202 0a0000000002 0000000000000000"), ""},
	{"option without length", advertised("fd00::1", Override, "0200 0a0000000002"), ""},
	{"option that is too long", advertised("fd00::1", Override, "0202 0a0000000002"), ""},
	{"half an option", advertised("fd00::1", Override, "02"), ""},
	{"solicitation", NeighbourRequest(netip.MustParseAddr("fd00::9"), nil, netip.MustParseAddr("fd00::2"), neighbourMAC), ""},
	{"no ICMPv6", fromHex(over6 + ports), ""},
	{"IPv4", fromHex(over4 + ports), ""},
	{"nothing", nil, ""},
}

func TestParseClaim(t *testing.T) {
	for _, tc := range claims {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if c, ok := ParseClaim(tc.frame); ok {
				got = fmt.Sprintf("%s %s solicited %v, override %v", c.Address, c.MAC, c.Solicited, c.Override)
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			for n := range tc.frame {
				cut := tc.frame[:n:n]
				if c, ok := ParseClaim(cut); ok && c.MAC != nil && !bytes.Contains(cut, c.MAC) {
					t.Errorf("%s: %v", hex.EncodeToString(cut), c)
				}
			}
		})
	}
}

// FuzzParseClaim expects that no frame does harm, and that what is read is in it.
func FuzzParseClaim(f *testing.F) {
	for _, tc := range claims {
		f.Add(tc.frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		c, ok := ParseClaim(frame)
		if !ok {
			return
		}
		if c.MAC != nil && (len(c.MAC) != 6 || !bytes.Contains(frame, c.MAC)) || !bytes.Contains(frame, c.Address.AsSlice()) {
			t.Errorf("%x: %+v", frame, c)
		}
		if c.Address.Is4() && (c.Solicited || !c.Override || c.MAC == nil) || c.Address.IsMulticast() && c.Address.Is6() {
			t.Errorf("%x: %+v", frame, c)
		}
	})
}
