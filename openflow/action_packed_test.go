// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"net/netip"
	"strings"
	"testing"
)

// Packed actions are what they stand for.
func TestPack(t *testing.T) {
	actions := []Action{
		SetField(IPDst(netip.MustParseAddr("10.0.0.7"))), SetField(L4Dst(IPProtoTCP, 8080)),
		CT{Commit: true, Zone: 1, NAT: &NAT{DNAT: true, AddrMin: netip.MustParseAddr("10.0.0.7"), PortMin: 80}, Exec: []Action{Move(Reg(0).Bits(12, 14), FieldCTMark.Bits(0, 2))}},
		Resubmit(38),
	}
	match := NewMatch(EthType(EthTypeIPv4), IPProto(IPProtoTCP))
	plain, packed := Flow{Match: match, Actions: actions}, Flow{Match: match, Actions: []Action{Pack(actions...)}}
	if !plain.Equal(&packed) || plain.String() != packed.String() {
		t.Errorf("%s\nis not\n%s", packed, plain)
	}
	if err := packed.Validate(); err != nil {
		t.Error(err)
	}
	packed.Match = Match{}
	if err := packed.Validate(); err == nil || !strings.Contains(err.Error(), "set_field") {
		t.Errorf("without what its actions need: %v", err)
	}
	if Pack(actions...).Refers() || !Pack(actions[0], Pack(ToGroup(1))).Refers() {
		t.Error("it does not know whether its actions use a group")
	}
}
