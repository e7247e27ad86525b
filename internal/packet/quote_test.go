// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"net"
	"net/netip"
	"testing"
)

// icmpError is a frame with the error that a router reports of a UDP packet.
func icmpError(src, dst, quotedSrc, quotedDst string) []byte {
	a := netip.MustParseAddr
	from, to := netip.AddrPortFrom(a(quotedSrc), 1000), netip.AddrPortFrom(a(quotedDst), 53)
	quoted := Header{Source: a(quotedSrc), Destination: a(quotedDst), Protocol: UDP, HopLimit: 60}.
		Packet(UDPFrom(from, to, []byte("question")))
	h := Header{Source: a(src), Destination: a(dst), Protocol: ICMP, HopLimit: 64}
	message := ICMPv4(3, 3, 0, quoted)
	if a(src).Is6() {
		h.Protocol, message = ICMPv6, ICMPv6From(a(src), a(dst), 1, 4, 0, quoted)
	}
	p := h.Packet(message)
	frame := Ethernet(net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}, p.Type(), p)
	return append(frame, 0, 0) // what cards fill short frames up with
}

func TestTranslateQuote(t *testing.T) {
	for _, tc := range []struct {
		name                 string
		src, dst, from, to   string
		was, is              string
		wantSource, wantDest string // "": the frame is left alone
	}{
		{"source", "198.51.100.1", "192.0.2.10", "192.0.2.10", "198.51.100.7", "192.0.2.10", "10.244.1.4", "10.244.1.4", "198.51.100.7"},
		{"destination", "10.244.1.4", "198.51.100.7", "198.51.100.7", "10.244.1.4", "10.244.1.4", "192.0.2.10", "198.51.100.7", "192.0.2.10"},
		{"IPv6", "2001:db8::1", "2001:db8:7::10", "2001:db8:7::10", "2001:db8::7", "2001:db8:7::10", "fd00:10::4", "fd00:10::4", "2001:db8::7"},
		{"another address", "198.51.100.1", "192.0.2.10", "192.0.2.11", "198.51.100.7", "192.0.2.10", "10.244.1.4", "", ""},
		{"another family", "198.51.100.1", "192.0.2.10", "192.0.2.10", "198.51.100.7", "2001:db8:7::10", "fd00:10::4", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			frame := icmpError(tc.src, tc.dst, tc.from, tc.to)
			before := string(frame)
			got, ok := TranslateQuote(frame, netip.MustParseAddr(tc.was), netip.MustParseAddr(tc.is))
			if string(frame) != before {
				t.Error("the frame that was given has changed")
			}
			if ok != (tc.wantSource != "") {
				t.Fatalf("translated: %t", ok)
			}
			if !ok {
				return
			}
			// The error that would be about the translated packet, checksums included, is the same
			// but for what UDP sums up.
			want := icmpError(tc.src, tc.dst, tc.wantSource, tc.wantDest)
			p, message, _ := icmpOf(got)
			_, wanted, _ := icmpOf(want)
			quoted, wantedQuote := IP(message[icmpHeaderLen:]), IP(wanted[icmpHeaderLen:])
			if quoted.Source() != wantedQuote.Source() || quoted.Destination() != wantedQuote.Destination() ||
				string(quoted[:quoted.HeaderLen()]) != string(wantedQuote[:wantedQuote.HeaderLen()]) {
				t.Errorf("it quotes a packet from %s to %s, header % x", quoted.Source(), quoted.Destination(), quoted[:quoted.HeaderLen()])
			}
			var sum uint32
			if p.Is6() {
				sum = PseudoHeader(p.Source(), p.Destination(), ICMPv6, len(message))
			}
			if Checksum(sum, message) != 0 {
				t.Error("the checksum of the ICMP message is wrong")
			}
			if len(got) != len(frame) {
				t.Errorf("the frame has %d bytes, and had %d", len(got), len(frame))
			}
		})
	}
}

func FuzzTranslateQuote(f *testing.F) {
	whole := icmpError("198.51.100.1", "192.0.2.10", "192.0.2.10", "198.51.100.7")
	f.Add(whole)
	f.Add(whole[:60])
	f.Add(icmpError("2001:db8::1", "2001:db8:7::10", "2001:db8:7::10", "2001:db8::7"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		for _, pair := range [][2]string{{"192.0.2.10", "10.244.1.4"}, {"2001:db8:7::10", "fd00:10::4"}} {
			was, is := netip.MustParseAddr(pair[0]), netip.MustParseAddr(pair[1])
			if got, ok := TranslateQuote(frame, was, is); ok && len(got) != len(frame) {
				t.Errorf("%d bytes became %d", len(frame), len(got))
			}
		}
	})
}
