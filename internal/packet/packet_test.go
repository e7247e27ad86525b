// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

func fromHex(text string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

const (
	macs   = "0a0000000001 0a0000000002"
	over4  = macs + "0800 4500003c00004000 40060000 0a000001 0a000002"
	over6  = macs + "86dd 60000000 0018 00 40 fd000000000000000000000000000001 fd000000000000000000000000000002"
	ports  = "1f90 0050 00000000"
	hopUDP = "1100000000000000" // hop-by-hop options, then UDP
)

func TestParse(t *testing.T) {
	for _, tc := range []struct{ name, frame, want string }{
		{"IPv4", over4 + ports, "10.0.0.1 > 10.0.0.2, 6 at 20, ports 8080 80"},
		{"IPv4 with options", strings.Replace(over4, "4500003c", "4600003c", 1) + "00000000" + ports, "10.0.0.1 > 10.0.0.2, 6 at 24, ports 8080 80"},
		{"IPv4, the first fragment", strings.Replace(over4, "4000 40", "2000 40", 1) + ports, "10.0.0.1 > 10.0.0.2, 6 at 20, ports 8080 80"},
		{"IPv4, a later fragment", strings.Replace(over4, "4000 40", "0010 40", 1) + ports, "10.0.0.1 > 10.0.0.2, 6 at 20, not the first"},
		{"IPv4, cut in the ports", over4 + ports[:4], "10.0.0.1 > 10.0.0.2, 6 at 20, no ports"},
		{"IPv4, of a protocol without ports", strings.Replace(over4, "4006", "4001", 1) + ports, "10.0.0.1 > 10.0.0.2, 1 at 20, no ports"},
		{"VLAN", macs + "8100 0005" + over4[len(macs):] + ports, "10.0.0.1 > 10.0.0.2, 6 at 20, ports 8080 80"},
		{"IPv6 with options", over6 + hopUDP + ports, "fd00::1 > fd00::2, 17 at 48, ports 8080 80"},
		{"IPv6, cut in the options", over6 + hopUDP[:8], "fd00::1 > fd00::2, 0 at 40, no ports"},
		{"IPv6, options that are longer than the packet", over6 + "11ff000000000000" + ports, "fd00::1 > fd00::2, 17 at 2088, no ports"},
		{"IPv6, the first fragment", strings.Replace(over6, "0018 00", "0018 2c", 1) + "1100 0001 00000007" + ports, "fd00::1 > fd00::2, 17 at 48, ports 8080 80"},
		{"IPv6, a later fragment", strings.Replace(over6, "0018 00", "0018 2c", 1) + "1100 0100 00000007" + ports, "fd00::1 > fd00::2, 17 at 48, not the first"},
		{"no header", over4[:len(over4)-8], ""},
		{"IPv4 whose header is too short", strings.Replace(over4, "4500003c", "4400003c", 1), ""},
		{"IPv6 that calls itself IPv4", strings.Replace(over6, "86dd", "0800", 1), ""},
		{"ARP", strings.Replace(over4, "0800", "0806", 1), ""},
		{"short", macs, ""},
		{"nothing", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, ok := Parse(fromHex(tc.frame))
			if got := describe(p, ok); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func describe(p IP, ok bool) string {
	if !ok {
		return ""
	}
	protocol, at, first := p.Transport()
	text := fmt.Sprintf("%s > %s, %d at %d", p.Source(), p.Destination(), protocol, at)
	from, to, ok := p.Ports()
	switch {
	case ok:
		return fmt.Sprintf("%s, ports %d %d", text, from, to)
	case first:
		return text + ", no ports"
	}
	return text + ", not the first"
}

// FuzzParse expects that no frame does harm, and that what is read lies within it.
func FuzzParse(f *testing.F) {
	for _, text := range []string{over4 + ports, over6 + hopUDP + ports, macs + "8100 0005" + over4[len(macs):]} {
		f.Add(fromHex(text))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		p, ok := Parse(frame)
		if !ok {
			return
		}
		_, at, _ := p.Transport()
		if _, _, ok := p.Ports(); ok && at+4 > len(p) || at < p.HeaderLen() {
			t.Errorf("%x: transport at %d", frame, at)
		}
		if p.Source().Is6() != p.Is6() || p.Destination().Is6() != p.Is6() {
			t.Errorf("%x: %s > %s", frame, p.Source(), p.Destination())
		}
		if whole, ok := p.Whole(); ok && !bytes.HasPrefix(frame[len(frame)-len(p):], whole) {
			t.Errorf("%x: %x", frame, whole)
		}
	})
}

func TestWhole(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	p := Header{Source: a, Destination: b, Protocol: UDP, HopLimit: 64}.Packet([]byte{1, 2, 3})
	// up to 60 bytes.
	frame := Ethernet(nil, nil, p.Type(), append(bytes.Clone(p), make([]byte, 23)...))
	got, _ := Parse(frame)
	if whole, ok := got.Whole(); !ok || !bytes.Equal(whole, p) {
		t.Errorf("padded: %x, %v", whole, ok)
	}
	if _, ok := p[:22].Whole(); ok {
		t.Error("a packet that has been cut is whole")
	}
}

// What is made is what other implementations read.
func TestMade(t *testing.T) {
	for _, ends := range [][2]string{{"10.0.0.1:5000", "10.0.0.2:53"}, {"[fd00::1]:5000", "[fd00::2]:53"}} {
		src, dst := netip.MustParseAddrPort(ends[0]), netip.MustParseAddrPort(ends[1])
		header := Header{Source: src.Addr(), Destination: dst.Addr(), Protocol: UDP, HopLimit: 7, TrafficClass: 0xb8, DontFragment: true}
		p := header.Packet(UDPFrom(src, dst, []byte("odd"))) // an odd length
		if want := fmt.Sprintf("%s > %s, 17 at %d, ports 5000 53", src.Addr(), dst.Addr(), p.HeaderLen()); describe(p, true) != want {
			t.Errorf("%s, want %s", describe(p, true), want)
		}
		data := p[p.HeaderLen():]
		if sum := Checksum(PseudoHeader(src.Addr(), dst.Addr(), UDP, len(data)), data); sum != 0 {
			t.Errorf("%s: the checksum is wrong by %#x", src, sum)
		}
		if p.Is6() {
			h, err := ipv6.ParseHeader(p)
			if err != nil || h.NextHeader != UDP || h.HopLimit != 7 || h.TrafficClass != 0xb8 || h.PayloadLen != 11 {
				t.Errorf("%v, %v", h, err)
			}
			continue
		}
		h, err := ipv4.ParseHeader(p)
		if err != nil || h.Protocol != UDP || h.TTL != 7 || h.TOS != 0xb8 || h.TotalLen != 31 || h.Flags != ipv4.DontFragment || Checksum(0, p[:20]) != 0 {
			t.Errorf("%v, %v", h, err)
		}
	}
}

// A checksum of 0 would say that there is none.
func TestUDPAlwaysHasAChecksum(t *testing.T) {
	dst, all := netip.MustParseAddrPort("10.0.0.2:53"), 0
	for port := range 1 << 16 {
		b := UDPFrom(netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(port)), dst, nil)
		switch be.Uint16(b[6:]) {
		case 0:
			t.Fatalf("port %d: no checksum", port)
		case 0xffff:
			all++
		}
	}
	if all == 0 {
		t.Error("no port has the sum 0: the case was not met")
	}
}

func TestICMP(t *testing.T) {
	a, b := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	six := ICMPv6From(a, b, 2, 0, 1280, []byte{1, 2, 3})
	if sum := Checksum(PseudoHeader(a, b, ICMPv6, len(six)), six); sum != 0 {
		t.Errorf("ICMPv6: the checksum is wrong by %#x", sum)
	}
	m, err := icmp.ParseMessage(ICMPv6, six)
	if body, ok := m.Body.(*icmp.PacketTooBig); err != nil || !ok || body.MTU != 1280 || !bytes.Equal(body.Data, []byte{1, 2, 3}) {
		t.Errorf("ICMPv6: %+v, %v", m, err)
	}
	four := ICMPv4(8, 0, 5<<16|6, []byte("ping"))
	m, err = icmp.ParseMessage(ICMP, four)
	if body, ok := m.Body.(*icmp.Echo); err != nil || !ok || body.ID != 5 || body.Seq != 6 || string(body.Data) != "ping" || Checksum(0, four) != 0 {
		t.Errorf("ICMP: %+v, %v", m, err)
	}
}

func TestNeighbours(t *testing.T) {
	mac := net.HardwareAddr{0x0a, 0, 0, 0, 0, 1}
	arp := Ethernet(mac, nil, TypeARP, ARP(ARPRequest, mac, netip.MustParseAddr("10.0.0.1"), nil, netip.MustParseAddr("10.0.0.2")))
	if want := fromHex("0a0000000001 000000000000 0806 0001 0800 06 04 0001 0a0000000001 0a000001 000000000000 0a000002"); !bytes.Equal(arp, want) {
		t.Errorf("ARP: %x\nwant %x", arp, want)
	}
	p := NeighbourAdvertisement(netip.MustParseAddr("fe80::1"), netip.MustParseAddr("ff02::1"), Override, netip.MustParseAddr("fd00::9"), mac)
	m, err := icmp.ParseMessage(ICMPv6, p[IPv6Len:])
	body, ok := m.Body.(*icmp.RawBody)
	if err != nil || !ok || m.Type != ipv6.ICMPTypeNeighborAdvertisement || p[7] != 255 {
		t.Fatalf("advertisement: %+v, %v", m, err)
	}
	if want := fromHex("20000000 fd000000000000000000000000000009 0201 0a0000000001"); !bytes.Equal(body.Data, want) {
		t.Errorf("advertisement: %x\nwant %x", body.Data, want)
	}
	if sum := Checksum(PseudoHeader(p.Source(), p.Destination(), ICMPv6, len(p)-IPv6Len), p[IPv6Len:]); sum != 0 {
		t.Errorf("advertisement: the checksum is wrong by %#x", sum)
	}
}

func BenchmarkPorts(b *testing.B) {
	frame := fromHex(over6 + hopUDP + ports)
	b.ReportAllocs()
	for b.Loop() {
		p, _ := Parse(frame)
		if _, _, ok := p.Ports(); !ok {
			b.Fatal("no ports")
		}
	}
}
