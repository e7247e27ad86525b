// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"encoding/hex"
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
