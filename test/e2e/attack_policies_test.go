// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"coelan.io/coelan/test/lab/probe"
)

// attackPolicies has a pod send packets of odd shapes to pods that a policy closes for it. The
// control is the same packet, byte for byte, while there is no policy; for shapes that never pass,
// a plain one.
func attackPolicies(t *testing.T) {
	ctx := within(t, 5*time.Minute)
	from := world.pod(ctx, t, "client1")
	mac, wire := macOf(t, from), wireOf(t, from)
	servers := []place{world.pod(ctx, t, "web1"), world.pod(ctx, t, "web2")}
	var attacks, passing []attack
	for _, to := range servers {
		at := wireOf(t, to)
		for _, f := range families {
			for _, s := range shapes(from.address(f), to.address(f)) {
				packets := shot{frames(wire, func(text []byte) []probe.Frame {
					var list []probe.Frame
					for _, p := range s.packets(text) {
						list = append(list, routed(mac, f, p))
					}
					return list
				}), at}
				a := attack{fmt.Sprintf("%s: %s from %s to %s", f, s.name, from.name, to.name), packets, packets}
				attacks = append(attacks, a)
				if !s.odd {
					passing = append(passing, a)
				}
			}
		}
	}
	open := func() {
		for _, to := range servers {
			for _, f := range families {
				web(to, f).answers(ctx, t, from)
			}
		}
	}
	open()
	arrive(ctx, t, passing, "before")
	t.Run("closed", func(t *testing.T) {
		policyIn(ctx, t, namespace, "closed", "podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]")
		for _, to := range servers {
			for _, f := range families {
				web(to, f).fails(ctx, t, from, silent)
			}
		}
		send(t, attacks)
		nothing(t, attacks)
	})
	open()
	arrive(ctx, t, passing, "after")
	nothing(t, attacks)
}

// shape is a way to write packets with a text in them.
type shape struct {
	name    string
	packets func(text []byte) [][]byte
	odd     bool // no switch or stack has to let it pass
}

const (
	flagRST = 1 << 2
	flagSYN = 1 << 1
	flagACK = 1 << 4
)

// shapes are ways to write packets from a pod to another.
func shapes(src, dst netip.Addr) []shape {
	one := func(make func(text []byte) []byte) func([]byte) [][]byte {
		return func(text []byte) [][]byte { return [][]byte{make(text)} }
	}
	ap := netip.AddrPortFrom
	udp := func(source, port uint16) func([]byte) []byte {
		return func(text []byte) []byte { return probe.UDP(ap(src, source), ap(dst, port), text) }
	}
	tcp := func(flags uint8) func([]byte) []byte {
		return func(text []byte) []byte { return probe.TCPSegment(ap(src, 1000), ap(dst, tcpPort), flags, text) }
	}
	// long is a datagram with text in both fragments.
	long := func(text []byte) []byte {
		return probe.UDP(ap(src, 1001), ap(dst, victimPort), append(append(append([]byte(nil), text...), make([]byte, 400)...), text...))
	}
	list := []shape{
		{name: "a plain datagram", packets: one(udp(1000, victimPort))},
		{name: "a datagram from the port of DNS", packets: one(udp(53, victimPort))},
		{name: "a datagram from the port of DHCP", packets: one(udp(67, 68))},
		{name: "a datagram from the tunnel's port", packets: one(udp(vxlanPort, vxlanPort))},
		{name: "a datagram with port 0", packets: one(udp(0, 0))},
		{name: "a SYN with data", packets: one(tcp(flagSYN))},
		{name: "a SYN and ACK that nothing asked for", packets: one(tcp(flagSYN | flagACK)), odd: true},
		{name: "an ACK without a connection", packets: one(tcp(flagACK)), odd: true},
		{name: "a RST without a connection", packets: one(tcp(flagRST)), odd: true},
		{name: "a segment without flags", packets: one(tcp(0)), odd: true},
		{name: "GRE", packets: one(func(text []byte) []byte { return probe.IP(src, dst, 47, 64, probe.GRE(udp(1000, victimPort)(text))) })},
		{name: "an unknown protocol", packets: one(func(text []byte) []byte { return probe.IP(src, dst, 253, 64, append([]byte(nil), text...)) })},
		{name: "fragments", packets: func(text []byte) [][]byte { return probe.Fragments(long(text), 77, 256, 0) }},
		{name: "fragments in reverse", packets: func(text []byte) [][]byte {
			f := probe.Fragments(long(text), 78, 256, 0)
			return [][]byte{f[1], f[0]}
		}},
		{name: "fragments that overlap", odd: true, packets: func(text []byte) [][]byte { return probe.Fragments(long(text), 79, 256, 64) }},
		{name: "a first fragment that ends within the UDP header", odd: true, packets: func(text []byte) [][]byte {
			return probe.Fragments(probe.TCPSegment(ap(src, 1002), ap(dst, tcpPort), flagSYN, text), 80, 8, 0)
		}},
		{name: "a second fragment alone", odd: true, packets: func(text []byte) [][]byte {
			return probe.Fragments(long(text), 81, 256, 0)[1:]
		}},
	}
	if src.Is4() {
		route := append([]byte{131, 7, 4}, dst.AsSlice()...) // loose source route (RFC 791)
		return append(list,
			shape{name: "no operation as an IP option", packets: one(func(text []byte) []byte {
				return probe.WithOptions(udp(1003, victimPort)(text), 0, []byte{1, 1, 1, 1})
			})},
			shape{name: "a source route", odd: true, packets: one(func(text []byte) []byte {
				return probe.WithOptions(udp(1004, victimPort)(text), 0, append(route, 0))
			})},
			shape{name: "an error about a connection that there is not", odd: true, packets: one(func(text []byte) []byte {
				about := probe.UDP(ap(dst, 1005), ap(src, victimPort), text)
				return probe.IP(src, dst, 1, 64, append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, about...))
			})},
			shape{name: "an echo request", packets: one(func(text []byte) []byte {
				return probe.IP(src, dst, 1, 64, append([]byte{8, 0, 0, 0, 1, 2, 0, 1}, text...))
			})},
			shape{name: "an echo reply that nothing asked for", odd: true, packets: one(func(text []byte) []byte {
				return probe.IP(src, dst, 1, 64, append([]byte{0, 0, 0, 0, 1, 3, 0, 1}, text...))
			})},
		)
	}
	padding := []byte{1, 4, 0, 0, 0, 0} // PadN (RFC 8200 section 4.2)
	return append(list,
		shape{name: "destination options", packets: one(func(text []byte) []byte {
			return probe.WithOptions(udp(1006, victimPort)(text), 60, padding)
		})},
		shape{name: "hop-by-hop options", packets: one(func(text []byte) []byte {
			return probe.WithOptions(udp(1007, victimPort)(text), 0, padding)
		})},
		shape{name: "a routing header", odd: true, packets: one(func(text []byte) []byte {
			m := append([]byte{0, 1, 0, 0, 0, 0}, src.AsSlice()...)
			return probe.WithOptions(udp(1008, victimPort)(text), 43, m)
		})},
		shape{name: "a fragment header of a packet that is whole", packets: func(text []byte) [][]byte {
			p := probe.Fragments(udp(1009, victimPort)(text), 82, 8, 0)[0]
			whole := append(append([]byte(nil), p[:48]...), udp(1009, victimPort)(text)[40:]...)
			binary.BigEndian.PutUint16(whole[42:], 0)
			binary.BigEndian.PutUint16(whole[4:], uint16(len(whole)-40))
			return [][]byte{whole}
		}, odd: true},
		shape{name: "an echo request", packets: one(func(text []byte) []byte {
			return probe.IP(src, dst, 58, 64, append([]byte{128, 0, 0, 0, 1, 2, 0, 1}, text...))
		})},
		shape{name: "an echo reply that nothing asked for", odd: true, packets: one(func(text []byte) []byte {
			return probe.IP(src, dst, 58, 64, append([]byte{129, 0, 0, 0, 1, 3, 0, 1}, text...))
		})},
	)
}
