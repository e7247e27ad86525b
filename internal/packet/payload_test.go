// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"net/netip"
	"testing"
)

// header is from .1 to .2, or from ::1 to ::2.
func header(family int, protocol uint8) Header {
	h := Header{Source: netip.MustParseAddr("198.51.100.1"), Destination: netip.MustParseAddr("198.51.100.2"), Protocol: protocol, HopLimit: 255}
	if family == 6 {
		h.Source, h.Destination = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	}
	return h
}

func udpPacket(family int, text string) IP {
	h := header(family, UDP)
	return h.Packet(UDPFrom(netip.AddrPortFrom(h.Source, 50000), netip.AddrPortFrom(h.Destination, 3784), []byte(text)))
}

func icmpPacket(family int, text string) IP {
	if family == 6 {
		h := header(6, ICMPv6)
		return h.Packet(ICMPv6From(h.Source, h.Destination, 129, 0, 1<<16|2, []byte(text)))
	}
	return header(4, ICMP).Packet(ICMPv4(0, 0, 1<<16|2, []byte(text)))
}

// edited is a packet with some bytes changed, and the checksum of IPv4's header made right.
func edited(p IP, at int, b ...byte) IP {
	p = bytes.Clone(p)
	copy(p[at:], b)
	if !p.Is6() {
		p.SumHeader()
	}
	return p
}

func TestHopLimit(t *testing.T) {
	for _, family := range []int{4, 6} {
		if got := udpPacket(family, "").HopLimit(); got != 255 {
			t.Errorf("IPv%d: %d", family, got)
		}
	}
}

func TestDatagram(t *testing.T) {
	for _, family := range []int{4, 6} {
		for _, padding := range []int{0, 18} {
			p := append(udpPacket(family, "text"), make([]byte, padding)...)
			if src, dst, data, ok := p.Datagram(); !ok || src != 50000 || dst != 3784 || string(data) != "text" {
				t.Errorf("IPv%d: %d, %d, %q, %v", family, src, dst, data, ok)
			}
		}
	}
	if _, _, data, ok := edited(udpPacket(4, "text"), 26, 0, 0).Datagram(); !ok || string(data) != "text" {
		t.Errorf("without checksum: %q, %v", data, ok)
	}
	four, six := udpPacket(4, "text"), udpPacket(6, "text")
	for name, p := range map[string]IP{
		"bad checksum": edited(four, 28, 'T'), "bad checksum of IPv6": edited(six, 48, 'T'),
		"no checksum of IPv6": edited(six, 46, 0, 0), "cut": four[:len(four)-1], "cut, of IPv6": six[:len(six)-1],
		"first fragment": edited(four, 6, 0x20), "later fragment": edited(four, 7, 1),
		"other protocol": edited(four, 9, TCP), "other protocol of IPv6": edited(six, 6, TCP),
		"length below the header": edited(four, 24, 0, 7), "length above the packet": edited(four, 24, 0, 13),
		"no room for a header": header(4, UDP).Packet([]byte{1, 2, 3, 4, 5, 6, 7}), "ICMP": icmpPacket(4, "text"),
	} {
		if _, _, data, ok := p.Datagram(); ok {
			t.Errorf("%s: %q", name, data)
		}
	}
}

func TestICMPMessage(t *testing.T) {
	for _, family := range []int{4, 6} {
		p := append(icmpPacket(family, "text"), 0, 0, 0)
		if m, ok := p.ICMPMessage(); !ok || string(m[8:]) != "text" {
			t.Errorf("IPv%d: %x, %v", family, m, ok)
		}
	}
	four, six := icmpPacket(4, "text"), icmpPacket(6, "text")
	for name, p := range map[string]IP{
		"bad checksum": edited(four, 28, 'T'), "bad checksum of IPv6": edited(six, 48, 'T'),
		"cut": four[:len(four)-1], "first fragment": edited(four, 6, 0x20), "later fragment": edited(four, 7, 1),
		"ICMPv6 over IPv4": edited(four, 9, ICMPv6), "ICMP over IPv6": edited(six, 6, ICMP),
		"no room for a header": header(4, ICMP).Packet([]byte{0, 0, 255, 255}), "UDP": udpPacket(4, "text"),
	} {
		if m, ok := p.ICMPMessage(); ok {
			t.Errorf("%s: %x", name, m)
		}
	}
}

// FuzzPayload expects that nothing in a frame leads out of it.
func FuzzPayload(f *testing.F) {
	for _, family := range []int{4, 6} {
		for _, p := range []IP{udpPacket(family, "text"), icmpPacket(family, "text")} {
			f.Add(Ethernet(nil, nil, p.Type(), p))
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		p, ok := Parse(frame)
		if !ok {
			return
		}
		m, isICMP := p.ICMPMessage()
		_, _, data, isUDP := p.Datagram()
		if isICMP && isUDP || isICMP && !bytes.Contains(frame, m) || isUDP && !bytes.Contains(frame, data) {
			t.Errorf("%x: %x, %x", frame, m, data)
		}
	})
}
