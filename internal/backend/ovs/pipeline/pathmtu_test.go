// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

func TestPathMTU(t *testing.T) {
	local := intent.Local{Node: "n1", Encapsulation: intent.VXLAN, MTU: 1450}
	for _, tc := range []struct {
		name    string
		node    intent.Node
		portMTU int
		want    int
		narrow  bool
	}{
		{"the same", intent.Node{Name: "n2", MTU: 1450}, 0, 1450, false},
		{"smaller", intent.Node{Name: "n2", MTU: 1449}, 0, 1449, true},
		{"larger", intent.Node{Name: "n2", MTU: 8950}, 0, 1450, false},
		{"not known", intent.Node{Name: "n2"}, 0, 1450, false},
		{"smaller than links may be", intent.Node{Name: "n2", MTU: 1}, 0, 1280, true},
		{"this node", intent.Node{Name: "n1", MTU: 1300}, 0, 1450, false},
		{"a larger Port, the same", intent.Node{Name: "n2", MTU: 1450}, 8950, 1450, true},
		{"a larger Port, not known", intent.Node{Name: "n2"}, 8950, 1450, true},
		{"a larger Port, this node", intent.Node{Name: "n1", MTU: 1450}, 8950, 1450, false},
	} {
		l := local
		l.PortMTU = tc.portMTU
		if got := PathMTU(l, tc.node); got != tc.want || narrow(l, tc.node) != tc.narrow {
			t.Errorf("%s: %d, narrow %v", tc.name, got, narrow(l, tc.node))
		}
	}
}

func TestNarrowPort(t *testing.T) {
	for _, tc := range []struct {
		name    string
		port    intent.Port
		portMTU int
		want    bool
	}{
		{"the node's", intent.Port{Node: "n1", MTU: 1450}, 0, false},
		{"smaller", intent.Port{Node: "n1", MTU: 1449}, 0, true},
		{"larger", intent.Port{Node: "n1", MTU: 8950}, 8950, false},
		{"the node's, others are larger", intent.Port{Node: "n1", MTU: 1450}, 8950, true},
		{"not known", intent.Port{Node: "n1"}, 8950, false},
		{"another node's", intent.Port{Node: "n2", MTU: 1300}, 0, false},
	} {
		if got := narrowPort(intent.Local{Node: "n1", MTU: 1450, PortMTU: tc.portMTU}, tc.port); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestTooBig(t *testing.T) {
	four, six := make([]byte, 60), make([]byte, 60)
	four[12], four[13], six[12], six[13] = 0x08, 0x00, 0x86, 0xdd
	remote := netip.MustParseAddr("192.168.33.12")
	known := []openflow.FieldValue{
		openflow.InPort(17), regPathMTU.Value(1300), tooBig, toPort(datapath.TunnelPort), openflow.TunDst(remote), openflow.TunnelID(7),
	}
	tracked := []openflow.FieldValue{
		openflow.CTState(openflow.CTTrk|openflow.CTEst, 0), openflow.FieldCTNWProto.Value(17),
		openflow.CTIPSrc(netip.MustParseAddr("10.244.1.2")), openflow.CTIPDst(netip.MustParseAddr("10.96.0.1")),
		openflow.FieldCTTPSrc.Value(40000), openflow.FieldCTTPDst.Value(80),
	}
	ip4 := openflow.EthType(openflow.EthTypeIPv4)
	for _, tc := range []struct {
		name        string
		frame       []byte
		fields      []openflow.FieldValue
		destination string
		sourcePort  uint16
	}{
		{"no Service", four, nil, "invalid AddrPort", 0},
		{"a connection that is no Service's", four, append(tracked, ip4), "invalid AddrPort", 0},
		{"a Service's", four, append(tracked, ip4, ofService), "10.96.0.1:80", 40000},
		{"a Service's first", four, []openflow.FieldValue{ofService, chosen, regAddress4.Value(0x0a600002), regPort.Value(443)}, "10.96.0.2:443", 0},
		{"a Service's first, IPv6", six, []openflow.FieldValue{ofService, chosen, regAddress6.Value128(0xfd00<<48, 9), regPort.Value(443)}, "[fd00::9]:443", 0},
	} {
		m := &openflow.PacketIn2{
			Packet: tc.frame, FullLen: uint32(len(tc.frame)), Userdata: []byte(TooBigUserdata),
			Metadata: openflow.NewMatch(append(tc.fields, known...)...),
		}
		got, ok := TooBig(m)
		want := Oversize{Frame: tc.frame, InPort: 17, OutPort: datapath.TunnelPort, MTU: 1300, TunnelDst: remote, TunnelID: 7, SourcePort: tc.sourcePort}
		ignore := cmpopts.IgnoreFields(Oversize{}, "Destination", "TunnelDst", "TunnelSrc")
		if diff := cmp.Diff(want, got, ignore); !ok || diff != "" || got.TunnelDst != remote || got.Destination.String() != tc.destination {
			t.Errorf("%s: %v %s %s\n%s", tc.name, ok, got.TunnelDst, got.Destination, diff)
		}
		if m.Userdata = []byte(AuditUserdata); ok {
			if _, ok := TooBig(m); ok {
				t.Errorf("%s: a packet that a policy has denied is taken for too big", tc.name)
			}
		}
	}
	local := []openflow.FieldValue{
		openflow.InPort(datapath.TunnelPort), regPathMTU.Value(1300), toPort(18), openflow.TunSrc(remote), openflow.TunnelID(7),
		ofService, openflow.CTState(openflow.CTTrk|openflow.CTRpl, 0), openflow.EthType(openflow.EthTypeIPv4),
	}
	o, ok := TooBig(&openflow.PacketIn2{
		Packet: four, FullLen: 60, Userdata: []byte(TooBigUserdata), Metadata: openflow.NewMatch(local...),
	})
	if !ok || o.InPort != datapath.TunnelPort || o.OutPort != 18 || o.TunnelSrc != remote || o.TunnelDst.IsValid() || !o.Reply {
		t.Errorf("for a port of this node: %v %+v", ok, o)
	}
	if _, ok := TooBig(&openflow.PacketIn2{Packet: four[:20], FullLen: 60, Userdata: []byte(TooBigUserdata), Metadata: openflow.NewMatch(known...)}); ok {
		t.Error("a packet that has been cut is taken")
	}
}
