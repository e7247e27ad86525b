// SPDX-License-Identifier: Apache-2.0

package appctl

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"coelan.io/coelan/internal/backend/ovs/conntrack"
)

// Connections lists those that conntrack knows in a zone.
func (c *Client) Connections(ctx context.Context, zone uint16) ([]conntrack.Connection, error) {
	text, err := c.Call(ctx, "dpctl/dump-conntrack", "zone="+strconv.Itoa(int(zone)))
	return parseConnections(text, zone), err
}

// CountConnections counts those of all zones that the userspace datapath's conntrack knows. It
// costs no search.
func (c *Client) CountConnections(ctx context.Context) (int, error) {
	return c.number(ctx, "dpctl/ct-get-nconns")
}

// number runs a command that answers with one.
func (c *Client) number(ctx context.Context, command string, args ...string) (int, error) {
	text, err := c.Call(ctx, command, args...)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return 0, fmt.Errorf("%s: %s: %.40q is no number", c.daemon, command, text)
	}
	return n, nil
}

// protocols are those that Open vSwitch names (ovs: lib/ct-dpif.c); others are numbers.
var protocols = map[string]uint8{"icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "dccp": 33, "icmpv6": 58, "sctp": 132,
	"udplite": 136}

// parseConnections reads lines such as
// "udp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1,dport=2),reply=(…),zone=1,mark=4,protoinfo=(…)". The
// zone 0 is not printed. Lines that are not understood are left out.
func parseConnections(text string, zone uint16) []conntrack.Connection {
	var list []conntrack.Connection
	for line := range strings.Lines(text) {
		c := conntrack.Connection{}
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
func parseTuple(text string) (t conntrack.Tuple) {
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
