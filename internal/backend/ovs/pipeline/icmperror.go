// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"
	"strings"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// ICMP messages that quote a packet: of IPv4 unreachable, time exceeded and parameter problem (RFC
// 792), of IPv6 unreachable, too big, time exceeded and parameter problem (RFC 4443, section 2.1).
var (
	icmpErrorTypes  = []uint8{3, 11, 12}
	icmp6ErrorTypes = []uint8{1, 2, 3, 4}
)

// quotes has the agent write into ICMP errors, while the pipeline waits for it: the packet that
// such an error quotes has the address that is about to be written over as well, and Open vSwitch
// cannot write there.
func (r *rules) quotes(n intent.Network, uplink uint32) {
	var errors []openflow.FieldValue
	for _, t := range icmpErrorTypes {
		errors = append(errors, openflow.ICMPv4Type(t))
	}
	for _, t := range icmp6ErrorTypes {
		errors = append(errors, openflow.ICMPv6Type(t))
	}
	pause := openflow.Controller{Userdata: QuoteUserdata, Pause: true, Meter: uplinkMeter(uplink, icmpErrors)}
	for _, e := range errors {
		r.on(fromExternal, 200, inNetwork(n), e).do(pause).goTo(floatingIP)
		r.on(toExternal, 200, inNetwork(n), e).do(pause).goTo(externalSource)
	}
}

// QuoteUserdata is what ICMP errors bring along that quote an address which is being written over.
const QuoteUserdata = "coelan/quote"

// detailMark ends the kind in userdata with an address.
const detailMark = "\x00"

// Kind cuts userdata into the kind of packet and what it says beside.
func Kind(userdata []byte) (kind, detail string) {
	kind, detail, _ = strings.Cut(string(userdata), detailMark)
	return kind, detail
}

// Quoted is the address that an ICMP error quotes, and the one that is to be there: for one from
// source to destination that comes to a floating IP, or leaves by one; false if nothing is to be
// translated.
func Quoted(in Input, p *openflow.PacketIn2, source, destination netip.Addr) (was, is netip.Addr, ok bool) {
	network, ok := NetworkOf(in.State, p)
	if !ok {
		return was, is, false
	}
	s := emptySnapshot().at(in.State)
	for f := range s.FloatingIPsAt(destination) {
		if t, ok := askFor(s, in.Numbers).translation(f); ok && f.Network == network {
			return t.address, t.known, true
		}
	}
	id, ok := in.Numbers.PortAt(p.InPort())
	if !ok {
		return was, is, false
	}
	port, _ := s.Ports().Get(id)
	for f := range s.FloatingIPsOf(port.ObjectKey()) {
		t, ok := askFor(s, in.Numbers).translation(f)
		if ok && f.Network == network && t.known == source {
			return t.known, t.address, true
		}
	}
	return was, is, false
}

// askFor makes rules that are only asked.
func askFor(s *snapshot, numbers *Numbers) *rules {
	return &rules{state: s, numbers: numbers, local: s.Local(), feature: floatingIPFeature}
}
