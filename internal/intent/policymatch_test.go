// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The masked ports of a range are all of its ports, each once, and few.
func TestMaskedPorts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := PortRange{Protocol: protoTCP, First: rapid.Uint16().Draw(t, "first"), Last: rapid.Uint16().Draw(t, "last")}
		hits := map[uint16]int{}
		matches := p.matches()
		for _, m := range matches {
			if m.Kind == AllOfProtocol {
				return
			}
			for port := range 1 << 16 {
				if uint16(port)&m.Mask == m.Value {
					hits[uint16(port)]++
				}
			}
		}
		for port := range 1 << 16 {
			want := 0
			if uint16(port) >= p.First && uint16(port) <= p.Last {
				want = 1
			}
			if hits[uint16(port)] != want {
				t.Fatalf("port %d is matched %d times by %v", port, hits[uint16(port)], matches)
			}
		}
		if len(matches) > 30 {
			t.Fatalf("%d matches for %+v", len(matches), p)
		}
	})
}

func TestPortMatches(t *testing.T) {
	for name, tc := range map[string]struct {
		rule Rule
		want []PortMatch
	}{
		"none":     {Rule{Action: Allow}, nil},
		"one port": {Rule{Action: Deny, Ports: []PortRange{{Protocol: protoTCP, First: 80, Last: 80}}}, []PortMatch{{MaskedPort, protoTCP, 80, 0xffff}}},
		"range": {Rule{Action: Deny, Ports: []PortRange{{Protocol: protoUDP, First: 1, Last: 4}, {Protocol: protoUDP, First: 2, Last: 3}}}, []PortMatch{
			{MaskedPort, protoUDP, 1, 0xffff}, {MaskedPort, protoUDP, 2, 0xfffe}, {MaskedPort, protoUDP, 4, 0xffff},
		}},
		"all of TCP":           {Rule{Action: Pass, Ports: []PortRange{{Protocol: protoTCP, Last: 0xffff}}}, []PortMatch{{Kind: AllOfProtocol, Protocol: protoTCP}}},
		"GRE":                  {Rule{Action: Deny, Ports: []PortRange{{Protocol: 47, Last: 0xffff}}}, []PortMatch{{Kind: AllOfProtocol, Protocol: 47}}},
		"ping":                 {Rule{Action: Allow, Ports: []PortRange{{Protocol: protoICMP, First: 8, Last: AnyICMPCode, ICMP: true}}}, []PortMatch{{ICMPType, protoICMP, 8, AnyICMPCode}}},
		"first after last":     {Rule{Action: Allow, Ports: []PortRange{{Protocol: protoTCP, First: 81, Last: 80}}}, nil},
		"ICMP of TCP":          {Rule{Action: Allow, Ports: []PortRange{{Protocol: protoTCP, First: 8, ICMP: true}}}, nil},
		"type that is too big": {Rule{Action: Allow, Ports: []PortRange{{Protocol: protoICMP, First: 256, ICMP: true}}}, nil},
	} {
		if diff := cmp.Diff(tc.want, tc.rule.PortMatches()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for _, m := range tc.want {
			if got, err := ParsePortMatch(m.String()); err != nil || got != m {
				t.Errorf("ParsePortMatch(%s) = %v, %v", m, got, err)
			}
		}
	}
}

func TestClass(t *testing.T) {
	a, b, ab := Class([]string{"a"}), Class([]string{"b"}), Class([]string{"a", "b"})
	if a == b || a == ab || ab == Class([]string{"ab"}) || ab == Class([]string{"a\x00b"}) {
		t.Error("other groups have the same class")
	}
	// Flows on a running switch have this value: another one would replace them all.
	if ab != 0x16275ef0f5d0eb9d {
		t.Errorf("class of a and b is %#x", ab)
	}
}
