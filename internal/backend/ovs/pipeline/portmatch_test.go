// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// The masked ports of a range are all of its ports, each once, and few.
func TestMaskedPorts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := intent.PortRange{Protocol: openflow.IPProtoTCP, First: rapid.Uint16().Draw(t, "first"), Last: rapid.Uint16().Draw(t, "last")}
		hits := map[uint16]int{}
		matches := matchesOf(p)
		for _, m := range matches {
			if m.Kind == allOfProtocol {
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
		rule intent.Rule
		want []portMatch
	}{
		"none":     {intent.Rule{Action: intent.Allow}, nil},
		"one port": {intent.Rule{Action: intent.Deny, Ports: []intent.PortRange{{Protocol: openflow.IPProtoTCP, First: 80, Last: 80}}}, []portMatch{{maskedPort, openflow.IPProtoTCP, 80, 0xffff}}},
		"range": {intent.Rule{Action: intent.Deny, Ports: []intent.PortRange{{Protocol: openflow.IPProtoUDP, First: 1, Last: 4}, {Protocol: openflow.IPProtoUDP, First: 2, Last: 3}}}, []portMatch{
			{maskedPort, openflow.IPProtoUDP, 1, 0xffff}, {maskedPort, openflow.IPProtoUDP, 2, 0xfffe}, {maskedPort, openflow.IPProtoUDP, 4, 0xffff},
		}},
		"all of TCP":           {intent.Rule{Action: intent.Pass, Ports: []intent.PortRange{{Protocol: openflow.IPProtoTCP, Last: 0xffff}}}, []portMatch{{Kind: allOfProtocol, Protocol: openflow.IPProtoTCP}}},
		"GRE":                  {intent.Rule{Action: intent.Deny, Ports: []intent.PortRange{{Protocol: 47, Last: 0xffff}}}, []portMatch{{Kind: allOfProtocol, Protocol: 47}}},
		"ping":                 {intent.Rule{Action: intent.Allow, Ports: []intent.PortRange{{Protocol: openflow.IPProtoICMP, First: 8, Last: intent.AnyICMPCode, ICMP: true}}}, []portMatch{{icmpType, openflow.IPProtoICMP, 8, intent.AnyICMPCode}}},
		"first after last":     {intent.Rule{Action: intent.Allow, Ports: []intent.PortRange{{Protocol: openflow.IPProtoTCP, First: 81, Last: 80}}}, nil},
		"ICMP of TCP":          {intent.Rule{Action: intent.Allow, Ports: []intent.PortRange{{Protocol: openflow.IPProtoTCP, First: 8, ICMP: true}}}, nil},
		"type that is too big": {intent.Rule{Action: intent.Allow, Ports: []intent.PortRange{{Protocol: openflow.IPProtoICMP, First: 256, ICMP: true}}}, nil},
	} {
		if diff := cmp.Diff(tc.want, portMatches(tc.rule)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for _, m := range tc.want {
			if got, err := parsePortMatch(m.String()); err != nil || got != m {
				t.Errorf("parsePortMatch(%s) = %v, %v", m, got, err)
			}
		}
	}
}

func TestClass(t *testing.T) {
	a, b, ab := classOf([]string{"a"}), classOf([]string{"b"}), classOf([]string{"a", "b"})
	if a == b || a == ab || ab == classOf([]string{"ab"}) || ab == classOf([]string{"a\x00b"}) {
		t.Error("other groups have the same class")
	}
	// Flows on a running switch have this value: another one would replace them all.
	if ab != 0x16275ef0f5d0eb9d {
		t.Errorf("class of a and b is %#x", ab)
	}
}
