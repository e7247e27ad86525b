// SPDX-License-Identifier: Apache-2.0

package unixctl

import (
	"context"
	"net/netip"
	"strconv"
	"strings"
)

// Connection is one that conntrack knows.
type Connection struct {
	Protocol uint8
	// Orig is the direction in which it began, Reply the other, as seen before either is translated back.
	Orig, Reply Tuple
	Zone        uint16
	Mark        uint32
}

// Tuple is one direction of a Connection. Ports are those of TCP, UDP and SCTP, the ICMP values those of ICMP.
type Tuple struct {
	Src, Dst           netip.Addr
	SrcPort, DstPort   uint16
	ICMPID             uint16
	ICMPType, ICMPCode uint8
}

// Connections lists those that conntrack knows in a zone.
func (c *Client) Connections(ctx context.Context, zone uint16) ([]Connection, error) {
	text, err := c.Call(ctx, "dpctl/dump-conntrack", "zone="+strconv.Itoa(int(zone)))
	return parseConnections(text, zone), err
}

// protocols are those that Open vSwitch names (ovs: lib/ct-dpif.c); others are numbers.
var protocols = map[string]uint8{"icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "dccp": 33, "icmpv6": 58, "sctp": 132, "udplite": 136}

// parseConnections reads lines such as
// "udp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1,dport=2),reply=(…),zone=1,mark=4,protoinfo=(…)". The zone 0 is not printed.
// Lines that are not understood are left out.
func parseConnections(text string, zone uint16) []Connection {
	var list []Connection
	for line := range strings.Lines(text) {
		c := Connection{}
		known := false
		for i, field := range splitFields(strings.TrimSpace(line)) {
			name, value, _ := strings.Cut(field, "=")
			switch {
			case i == 0:
				c.Protocol, known = parseProtocol(field)
			case name == "orig":
				c.Orig = parseTuple(value)
			case name == "reply":
				c.Reply = parseTuple(value)
			case name == "zone":
				c.Zone = uint16(number(value, 16)) //nolint:gosec // of 16 bits
			case name == "mark":
				c.Mark = uint32(number(value, 32)) //nolint:gosec // of 32 bits
			}
		}
		if known && c.Orig.Src.IsValid() && c.Orig.Dst.IsValid() && c.Zone == zone {
			list = append(list, c)
		}
	}
	return list
}

func parseProtocol(name string) (uint8, bool) {
	if p, ok := protocols[name]; ok {
		return p, true
	}
	p, err := strconv.ParseUint(name, 10, 8)
	return uint8(p), err == nil
}

// parseTuple reads "(src=…,dst=…,sport=…,dport=…)" or "(src=…,dst=…,id=…,type=…,code=…)".
func parseTuple(text string) (t Tuple) {
	for _, field := range strings.Split(strings.Trim(text, "()"), ",") {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "src":
			t.Src, _ = netip.ParseAddr(value)
		case "dst":
			t.Dst, _ = netip.ParseAddr(value)
		case "sport":
			t.SrcPort = uint16(number(value, 16)) //nolint:gosec // of 16 bits
		case "dport":
			t.DstPort = uint16(number(value, 16)) //nolint:gosec // of 16 bits
		case "id":
			t.ICMPID = uint16(number(value, 16)) //nolint:gosec // of 16 bits
		case "type":
			t.ICMPType = uint8(number(value, 8)) //nolint:gosec // of 8 bits
		case "code":
			t.ICMPCode = uint8(number(value, 8)) //nolint:gosec // of 8 bits
		}
	}
	return t
}

func number(text string, bits int) uint64 {
	n, err := strconv.ParseUint(text, 0, bits)
	if err != nil {
		return 0
	}
	return n
}

// splitFields splits at commas that are in no brackets.
func splitFields(line string) []string {
	var fields []string
	depth, start := 0, 0
	for i, c := range line {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				fields = append(fields, line[start:i])
				start = i + 1
			}
		}
	}
	return append(fields, line[start:])
}
