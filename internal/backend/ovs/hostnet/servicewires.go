// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"fmt"

	"github.com/google/nftables/expr"

	"coelan.io/coelan/internal/reserved"
)

// Clients on the wires of physical networks come from the bridge. Where that balances by address
// alone, the kernel translates what they send as what others outside send, to another address of
// the Service, such as its node port. What answers has that one when it is routed: it goes back to
// the bridge by a mark, which conntrack keeps.

// fromWire picks what comes from the wire of a physical network.
func (f serviceFamily) fromWire(gateway string) (clients []expr.Any, text string) {
	text = fmt.Sprintf("iifname %s %s daddr @floating%s %s saddr != @cluster%s ", gateway, f.ip, f.name, f.ip, f.name)
	clients = device(expr.MetaKeyIIFNAME, expr.CmpOpEq, gateway)
	clients = append(append(append(clients, f.load(f.dst, 0)...), f.in("floating")...), f.load(f.src, 0)...)
	return append(clients, lookup(expr.Lookup{SetName: "cluster" + f.name, Invert: true})...), text
}

// ofWire picks what comes from the bridge of a connection that has come from a wire.
func (serviceFamily) ofWire(gateway string) (clients []expr.Any, text string) {
	clients = append(device(expr.MetaKeyIIFNAME, expr.CmpOpEq, gateway), wireConnection()...)
	return clients, fmt.Sprintf("iifname %s ct mark and 0x%x != 0 ", gateway, reserved.WireMark)
}

// wireConnection says that a connection has come from a wire.
func wireConnection() []expr.Any {
	return append(one(&expr.Ct{Key: expr.CtKeyMARK, Register: register(0)}), hasBits(reserved.WireMark)...)
}

// wireRules translate what comes from a wire, before the rules for what else comes from the bridge.
func (f serviceFamily) wireRules(gateway string) []rule {
	clients, when := f.fromWire(gateway)
	return append(f.hostRules("outside", when, clients, false),
		f.externalRule(when, clients), f.wholeRule(when, clients))
}

// markWire has conntrack know connections that come from a wire, and markAnswer marks what answers
// in them.
func (f serviceFamily) markWire(gateway string) rule {
	clients, when := f.fromWire(gateway)
	return f.rule(fmt.Sprintf("%sct mark set ct mark or 0x%x", when, reserved.WireMark), clients,
		[]expr.Any{
			&expr.Ct{Key: expr.CtKeyMARK, Register: register(0)}, setBits(^uint32(0), reserved.WireMark),
			&expr.Ct{Key: expr.CtKeyMARK, Register: register(0), SourceRegister: true},
		})
}

func (f serviceFamily) markAnswer() rule {
	const reply = 1
	return f.rule(fmt.Sprintf("ct direction reply ct mark and 0x%[1]x != 0 meta mark set meta mark or 0x%[1]x",
		reserved.WireMark),
		[]expr.Any{
			&expr.Ct{Key: expr.CtKeyDIRECTION, Register: register(0)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: []byte{reply}},
		},
		wireConnection(),
		setMark(^uint32(0), reserved.WireMark))
}
