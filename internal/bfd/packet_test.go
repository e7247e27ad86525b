// SPDX-License-Identifier: Apache-2.0

package bfd

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func fromHex(text string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

func TestPacket(t *testing.T) {
	for _, tc := range []struct {
		name, bytes string
		want        Packet
	}{
		{
			"first", "20 40 03 18 00000001 00000000 000f4240 0000c350 00000000",
			Packet{State: Down, DetectMult: 3, MyDiscriminator: 1, DesiredMinTxInterval: 1000000, RequiredMinRxInterval: 50000},
		},
		{
			"Up, with a poll", "20 e0 05 18 00000001 fffffffe 0000c350 0000c350 00000001",
			Packet{
				State: Up, Poll: true, DetectMult: 5, MyDiscriminator: 1, YourDiscriminator: 1<<32 - 2,
				DesiredMinTxInterval: 50000, RequiredMinRxInterval: 50000, RequiredMinEchoRxInterval: 1,
			},
		},
		{
			"Init, all other flags", "2f 9a ff 18 80000000 00000002 00000000 00000000 00000000",
			Packet{
				Diagnostic: 15, State: Init, Final: true, ControlPlaneIndependent: true, Demand: true, DetectMult: 255,
				MyDiscriminator: 1 << 31, YourDiscriminator: 2,
			},
		},
		{
			"AdminDown", "27 00 01 18 00000001 00000000 00000000 00000000 00000000",
			Packet{Diagnostic: 7, State: AdminDown, DetectMult: 1, MyDiscriminator: 1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := fromHex(tc.bytes)
			got, err := Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("packet (-want +got):\n%s", diff)
			}
			if back := got.Encode(); !bytes.Equal(back, b) {
				t.Errorf("%x, want %x", back, b)
			}
		})
	}
}

func TestBadPackets(t *testing.T) {
	const rest = "000f4240 0000c350 00000000"
	for _, tc := range []struct{ name, bytes, want string }{
		{"nothing", "", "at least 24 are needed"},
		{"cut", "20 40 03 18 00000001 00000000 000f4240 0000c350 000000", "at least 24 are needed"},
		{"version 0", "00 40 03 18 00000001 00000000" + rest, "only version 1"},
		{"version 2", "40 40 03 18 00000001 00000000" + rest, "only version 1"},
		{"short length", "20 40 03 17 00000001 00000000" + rest, "its length is 23"},
		{"length above the bytes", "20 40 03 19 00000001 00000000" + rest, "its length is 25"},
		{"Detect Mult", "20 40 00 18 00000001 00000000" + rest, "Detect Mult of 0"},
		{"multipoint", "20 41 03 18 00000001 00000000" + rest, "multipoint"},
		{"My Discriminator", "20 40 03 18 00000000 00000000" + rest, "My Discriminator of 0"},
		{"Init without Your Discriminator", "20 80 03 18 00000001 00000000" + rest, "in state Init"},
		{"Up without Your Discriminator", "20 c0 03 18 00000001 00000000" + rest, "in state Up"},
		{"authentication", "20 44 03 1a 00000001 00000000" + rest + "0102", "authentication"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if p, err := Decode(fromHex(tc.bytes)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%+v, %v, want an error with %q", p, err, tc.want)
			}
		})
	}
}

// Bytes behind the packet's length, and between its fields and its length, are ignored.
func TestLongPacket(t *testing.T) {
	want := Packet{State: Down, DetectMult: 3, MyDiscriminator: 1}
	for _, length := range []byte{24, 26, 30} {
		b := append(want.Encode(), 1, 2, 3, 4, 5, 6)
		b[3] = length
		if got, err := Decode(b); err != nil || got != want {
			t.Errorf("length %d: %+v, %v", length, got, err)
		}
	}
}

func TestDiagnosticNames(t *testing.T) {
	for d, want := range map[Diagnostic]string{
		NoDiagnostic: "none", DetectionExpired: "control detection time expired",
		NeighbourDown: "neighbor signaled session down", 8: "reverse concatenated path down", 9: "diagnostic 9", 31: "diagnostic 31",
	} {
		if got := d.String(); got != want {
			t.Errorf("%d is %q, want %q", uint8(d), got, want)
		}
	}
}

// FuzzDecode expects that what is decoded is what a session may use, and that it survives a round.
func FuzzDecode(f *testing.F) {
	f.Add(fromHex("20 40 03 18 00000001 00000000 000f4240 0000c350 00000000"))
	f.Add(fromHex("20 e0 05 18 00000001 fffffffe 0000c350 0000c350 00000001"))
	f.Add(fromHex("2f 9a ff 18 80000000 00000002 00000000 00000000 00000000"))
	f.Add(fromHex("20 44 03 1a 00000001 00000000 000f4240 0000c350 00000000 0102"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Decode(b)
		if err != nil {
			return
		}
		if p.DetectMult == 0 || p.MyDiscriminator == 0 || p.YourDiscriminator == 0 && p.State > Down || b[1]&5 != 0 || b[0]>>5 != 1 {
			t.Errorf("%x is accepted", b)
		}
		again := p.Encode()
		b[3] = packetLen
		if !bytes.Equal(again, b[:packetLen]) {
			t.Errorf("%x becomes %x", b, again)
		}
	})
}
