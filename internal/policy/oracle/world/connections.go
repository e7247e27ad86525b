// SPDX-License-Identifier: Apache-2.0

package world

import (
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/policy/oracle"
)

// DrawPackets draws protocols and ports that policies are about, without ends.
func DrawPackets(t *rapid.T) []oracle.Connection {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) oracle.Connection {
		switch p := pick(t, "protocol", oracle.TCP, oracle.TCP, oracle.TCP, oracle.UDP, oracle.UDP, oracle.SCTP,
			oracle.ICMP, oracle.ICMPv6, 47); p {
		case oracle.TCP, oracle.UDP, oracle.SCTP:
			return oracle.Connection{Protocol: uint8(p),
				Port: pick(t, "port", uint16(80), 80, 8080, 53, 443, 81, 1, 8081, 65535)}
		case oracle.ICMP, oracle.ICMPv6:
			return oracle.Connection{Protocol: uint8(p), Type: pick(t, "type", uint8(8), 128, 3),
				Code: pick(t, "code", uint8(0), 1)}
		default:
			return oracle.Connection{Protocol: uint8(p)}
		}
	}), 3, 6).Draw(t, "packets")
}

// Connections are all that the ends of a space may have with each other.
func (w *World) Connections(space string, packets []oracle.Connection, yield func(oracle.Connection)) {
	for _, from := range w.Ends[space] {
		for _, to := range w.Ends[space] {
			if !from.PoliciesApply() && !to.PoliciesApply() || from.Address == to.Address && !from.Same(to) ||
				to.Masked || from.Address.Is4() != to.Address.Is4() {
				continue
			}
			if from.Same(to) && from.Address != to.Address {
				continue // by two of its addresses: not what is meant by itself
			}
			for _, k := range packets {
				if k.Protocol == oracle.ICMP && !to.Address.Is4() || k.Protocol == oracle.ICMPv6 && to.Address.Is4() {
					continue
				}
				k.Source, k.Destination = from, to
				yield(k)
			}
		}
	}
}
