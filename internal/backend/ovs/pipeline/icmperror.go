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

// icmpErrorsOf match ICMP errors of the family of an address.
func icmpErrorsOf(like netip.Addr) (list []openflow.FieldValue) {
	if like.Is4() {
		for _, t := range icmpErrorTypes {
			list = append(list, openflow.ICMPv4Type(t))
		}
		return list
	}
	for _, t := range icmp6ErrorTypes {
		list = append(list, openflow.ICMPv6Type(t))
	}
	return list
}

// quotes has the agent write into ICMP errors, while the pipeline waits for it: the packet that
// such an error quotes has the address that is about to be written over as well, and Open vSwitch
// cannot write there.
func (r *rules) quotes(n intent.Network, uplink uint32) {
	for _, family := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		for _, e := range icmpErrorsOf(family) {
			r.on(fromExternal, 200, inNetwork(n), e).do(pauseForQuote(quoteIn, uplink)).goTo(floatingIP)
			r.on(toExternal, 200, inNetwork(n), e).do(pauseForQuote(quoteOut, uplink)).goTo(externalSource)
		}
	}
}

// QuoteUserdata is the kind of ICMP errors that quote an address which is being written over.
const QuoteUserdata = "coelan/quote"

// The places where an address is written over, which the agent is told.
const (
	quoteIn       = "in"        // the floating IP, by the Port's address in the cluster
	quoteOut      = "out"       // and the other way round
	quoteToPort   = "to-port"   // the Port's address in the cluster, by its own
	quoteFromPort = "from-port" // and the other way round
)

func pauseForQuote(place string, uplink uint32) openflow.Action {
	return openflow.Controller{
		Userdata: QuoteUserdata + detailMark + place, Pause: true, Meter: uplinkMeter(uplink, icmpErrors),
	}
}

// detailMark ends the kind in userdata with a detail.
const detailMark = "\x00"

// Kind cuts userdata into the kind of packet and what it says beside.
func Kind(userdata []byte) (kind, detail string) {
	kind, detail, _ = strings.Cut(string(userdata), detailMark)
	return kind, detail
}

// Quoted is the address that an ICMP error quotes, and the one that is to be there: for an error
// from source to destination; false if nothing is to be translated.
func Quoted(in Input, p *openflow.PacketIn2, source, destination netip.Addr) (was, is netip.Addr, ok bool) {
	s := in.State
	_, place := Kind(p.Userdata)
	if place == quoteIn {
		network, _ := NetworkOf(in.State, p)
		for f := range s.FloatingIPsAt(destination) {
			if t, ok := askFor(in).translation(f); ok && f.Network == network {
				return t.address, t.known, true
			}
		}
		return was, is, false
	}
	number := p.InPort()
	if place == quoteToPort {
		out, _ := p.Metadata.Get(regOutput)
		number = uint32(out) //nolint:gosec // of 32 bits
	}
	id, _ := in.Numbers.PortAt(number)
	port, _ := s.Ports().Get(id)
	if place != quoteOut {
		own, ok := firstOf(port.Addresses, source)
		known, inCluster := firstOf(askFor(in).clusterAddresses(port), source)
		if place == quoteToPort {
			return known, own, ok && inCluster
		}
		return own, known, ok && inCluster
	}
	for f := range s.FloatingIPsOf(port.ObjectKey()) {
		if t, ok := askFor(in).translation(f); ok && f.Address.Is4() == source.Is4() {
			return t.known, t.address, true
		}
	}
	return was, is, false
}

// askFor makes rules that are only asked for the translation of a floating IP, which needs no index
// of a snapshot.
func askFor(in Input) *rules {
	return &rules{
		state: &snapshot{State: in.State}, numbers: in.Numbers, local: in.State.Local(), feature: floatingIPFeature,
	}
}
