// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"
)

// message is what a kernel sent about a UDP connection of zone 1, without the netlink header.
const message = "02000000" +
	"34000180" + "14000180" + "080001000a000005" + "080002000a000009" +
	"1c000280" + "0500010011000000" + "0600020003e80000" + "0600030000500000" +
	"34000280" + "14000180" + "080001000a000009" + "080002000a000005" +
	"1c000280" + "0500010011000000" + "0600020000500000" + "0600030003e80000" +
	"0800080000000007" + "0600120000010000"

func TestParse(t *testing.T) {
	data, err := hex.DecodeString(message)
	if err != nil {
		t.Fatal(err)
	}
	e, err := parse(data)
	if err != nil || e.Protocol != 17 || e.Zone != 1 || e.Mark != 7 || e.Orig.Src.String() != "10.0.0.5" || e.Orig.DstPort != 80 ||
		e.Reply.Src.String() != "10.0.0.9" || e.Reply.DstPort != 1000 {
		t.Errorf("got %+v, %v", e.Connection, err)
	}
	for n := range data {
		_, _ = parse(data[:n]) // does not panic
	}
	data[5] = 0xff // the first attribute's length
	if _, err := parse(data); err == nil {
		t.Error("an attribute beyond the message's end was read")
	}
}

func FuzzParse(f *testing.F) {
	data, err := hex.DecodeString(message)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := parse(data)
		if err == nil && len(data) < 4 {
			t.Errorf("%x: %+v", data, e)
		}
	})
}

// Messages of other protocols and families are read with what these have.
func TestParseOtherProtocols(t *testing.T) {
	const icmp = "02000000" + "3c000180" + "14000180" + "080001000a000005" + "080002000a000009" +
		"24000280" + "0500010001000000" + "0600040012340000" + "0500050008000000" + "0500060003000000"
	const udp6 = "0a000000" + "4c000180" + "2c000180" + "14000300" + "fd000000000000000000000000000005" +
		"14000400" + "fd000000000000000000000000000009" + "1c000280" + "0500010011000000" + "0600020003e80000" +
		"0600030000500000"
	for name, tc := range map[string]struct {
		message  string
		protocol uint8
		want     Tuple
	}{
		"ICMP": {icmp, 1, Tuple{
			Src: netip.MustParseAddr("10.0.0.5"), Dst: netip.MustParseAddr("10.0.0.9"), ICMPID: 0x1234, ICMPType: 8, ICMPCode: 3,
		}},
		"UDP over IPv6": {udp6, 17, Tuple{
			Src: netip.MustParseAddr("fd00::5"), Dst: netip.MustParseAddr("fd00::9"), SrcPort: 1000, DstPort: 80,
		}},
	} {
		data, err := hex.DecodeString(tc.message)
		if err != nil {
			t.Fatal(err)
		}
		if e, err := parse(data); err != nil || e.Protocol != tc.protocol || e.Orig != tc.want {
			t.Errorf("%s: got %+v, %v", name, e.Connection, err)
		}
	}
}

// Values that are too short for what they say they are make a message unreadable.
func TestParseShortValues(t *testing.T) {
	for name, message := range map[string]string{
		"a mark":        "02000000" + "0600080000070000",
		"a zone":        "02000000" + "0500120001000000",
		"an address":    "02000000" + "10000180" + "0c000180" + "0700010001020300",
		"a port":        "02000000" + "10000180" + "0c000280" + "0500020001000000",
		"a nested tail": "02000000" + "0c000180" + "ff000180" + "00000000",
		"the header":    "0200",
	} {
		data, err := hex.DecodeString(message)
		if err != nil {
			t.Fatal(err)
		}
		if e, err := parse(data); err == nil {
			t.Errorf("%s: read %+v", name, e.Connection)
		}
	}
}

// A flush forgets what an address began or answers, in the given zones; without any, everywhere but
// in the host's own zone.
func TestFlushedConnections(t *testing.T) {
	a, b, service := netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("10.96.0.1")
	connection := func(zone uint16, client, to, server netip.Addr) entry {
		return entry{Connection: Connection{
			Zone: zone, Orig: Tuple{Src: client, Dst: to}, Reply: Tuple{Src: server, Dst: client},
		}}
	}
	for name, tc := range map[string]struct {
		e     entry
		zones []uint16
		want  bool
	}{
		"begun by it":                 {connection(1, a, b, b), []uint16{2, 1}, true},
		"answered by it":              {connection(1, b, a, a), []uint16{1}, true},
		"answered by it as endpoint":  {connection(1, b, service, a), []uint16{1}, true},
		"to it, answered by another":  {connection(1, b, a, service), []uint16{1}, false},
		"of others":                   {connection(1, b, service, service), []uint16{1}, false},
		"in another zone":             {connection(3, a, b, b), []uint16{1, 2}, false},
		"in any zone":                 {connection(3, a, b, b), nil, true},
		"in the host's zone":          {connection(0, a, b, b), nil, false},
		"in the host's zone, by name": {connection(0, a, b, b), []uint16{0}, true},
	} {
		if got := tc.e.flushedWith(a, tc.zones); got != tc.want {
			t.Errorf("%s: flushed %v, want %v", name, got, tc.want)
		}
	}
}

// The kernel is asked for the part of its table that is needed, and to delete a connection by the
// very attributes that it has sent.
func TestRequests(t *testing.T) {
	for name, tc := range map[string]struct {
		f    filter
		want string
	}{
		"everything": {filter{family: 2}, ""},
		"a protocol": {filter{family: 2, protocol: 17}, "10000180" + "0c000280" + "0500010011000000" +
			"14001980" + "0800010008000000" + "0800020000000000"},
		"a client": {involving(netip.MustParseAddr("10.0.0.5"))[0], "10000180" + "0c000180" + "080001000a000005" +
			"14001980" + "0800010001000000" + "0800020000000000"},
		"a server": {involving(netip.MustParseAddr("fd00::5"))[1], "1c000280" + "18000180" + "14000300" +
			"fd000000000000000000000000000005" + "14001980" + "0800010000000000" + "0800020001000000"},
	} {
		got, err := tc.f.encode()
		if err != nil || hex.EncodeToString(got) != tc.want {
			t.Errorf("%s:\ngot  %x\nwant %s, %v", name, got, tc.want, err)
		}
	}
	for address, family := range map[string]uint8{"10.0.0.5": 2, "fd00::5": 10} {
		for _, f := range involving(netip.MustParseAddr(address)) {
			if f.family != family {
				t.Errorf("%s: family %d", address, f.family)
			}
		}
	}
	data, err := hex.DecodeString(message)
	if err != nil {
		t.Fatal(err)
	}
	e, err := parse(data)
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.encode()
	if want := append(bytes.Clone(data[4:4+0x34]), 6, 0, 18, 0, 0, 1, 0, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("to delete:\ngot  %x\nwant %x, %v", got, want, err)
	}
}
