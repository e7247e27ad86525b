// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"bytes"
	"fmt"
	"runtime/metrics"
	"strings"
	"testing"
)

// maxAmplification bounds how many bytes a decoder may allocate for each byte of a message,
// beside a fixed part.
const (
	maxAmplification = 150
	fixedAllocation  = 64 << 10
)

// allocated returns how many bytes have been allocated so far.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// decodeAllocates returns how many bytes decoding b allocates: the least of some tries, since
// others allocate too.
func decodeAllocates(b []byte) uint64 {
	least := uint64(1 << 62)
	for range 5 {
		before := allocated()
		_, _, _ = Decode(b)
		if least = min(least, allocated()-before); least <= fixedAllocation {
			break
		}
	}
	return least
}

// FuzzDecode feeds bytes to the decoder. It must not panic and not allocate much more than it
// was given; what it accepts must survive encoding, decoding and printing.
func FuzzDecode(f *testing.F) {
	for _, file := range goldenFiles {
		for _, c := range readGolden(f, file) {
			f.Add(c.wire)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > MaxMessageLen {
			return
		}
		if len(b) >= HeaderLen { // so that the fuzzer need not find out
			b = bytes.Clone(b)
			b[0] = Version
			be.PutUint16(b[2:], uint16(len(b)))
		}
		xid, m, err := Decode(b)
		if n := decodeAllocates(b); n > fixedAllocation+maxAmplification*uint64(len(b)) {
			t.Errorf("%d bytes allocated for a message of %d", n, len(b))
		}
		if err != nil {
			return
		}
		print(m)
		once, err := AppendMessage(nil, xid, m)
		if err != nil {
			return // it can become longer than a message may be: properties are added
		}
		_, again, err := Decode(once)
		if err != nil {
			t.Fatalf("%T does not decode after encoding: %v\n%x\n%x", m, err, b, once)
		}
		twice, err := AppendMessage(nil, xid, again)
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%T is not stable, %v:\n%x\n%x", m, err, once, twice)
		}
	})
}

// print calls the text forms of what m holds.
func print(m Message) (n int) {
	flows := func(list ...Flow) {
		for i := range list {
			n += len(list[i].String())
			if list[i].Validate() == nil {
				n++
			}
		}
	}
	switch m := m.(type) {
	case *BundleAdd:
		return print(m.Message)
	case *FlowMod:
		flows(m.Flow)
	case *FlowRemoved:
		flows(m.Flow)
	case *GroupMod:
		n += len(m.Group.String())
	case *MeterMod:
		n += len(m.Meter.String())
	case *PacketOut:
		n += len(ActionsString(m.Actions))
	case *PacketIn2:
		n += len(m.Metadata.String())
	case *Error:
		n += len(m.Error())
	case *MultipartReply:
		if l, ok := m.Body.(FlowDescs); ok {
			for i := range l {
				flows(l[i].Flow)
			}
		}
	}
	return n
}

// FuzzParseFlow feeds text to the parser. What it accepts must be printed and parsed to the same.
func FuzzParseFlow(f *testing.F) {
	for _, file := range []string{"matches", "actions"} {
		for _, c := range readGolden(f, file) {
			if _, m, err := Decode(c.wire); err == nil {
				f.Add(m.(*FlowMod).Flow.String())
			}
		}
	}
	f.Fuzz(func(t *testing.T, s string) {
		flow, err := ParseFlow(s)
		if err != nil || flow.Validate() != nil || strings.Contains(s, "tun_metadata") || strings.Contains(s, "TUN_METADATA") {
			return // text does not tell the length of a tunnel option
		}
		again, err := ParseFlow(flow.String())
		if err != nil || !flow.Equal(&again) {
			t.Errorf("%q: %v\n%s\n%s", s, err, &flow, &again)
		}
	})
}

// TestHostileMessages decodes messages that are made to cost much.
func TestHostileMessages(t *testing.T) {
	nested := Output(1)
	for range 1000 {
		nested = Clone(nested)
	}
	wide := make([]Action, 8000)
	for i := range wide {
		wide[i] = DecTTL()
	}
	updates := make(FlowUpdates, 8000)
	for i := range updates {
		updates[i].Event = FlowEventAbbrev
	}
	for name, m := range map[string]Message{
		"actions within actions": AddFlow(Flow{Actions: []Action{nested}}),
		"many actions":           AddFlow(Flow{Actions: wide}),
		"many buckets":           AddGroup(Group{Buckets: make([]Bucket, 7000)}),
		"many updates":           &MultipartReply{Body: updates},
		"many ports":             &MultipartReply{Body: make(PortDescs, 1600)},
	} {
		b, err := AppendMessage(nil, 1, m)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, got, err := Decode(b)
		n := decodeAllocates(b)
		t.Logf("%s: %d bytes, %d allocated, %v", name, len(b), n, err)
		if n > fixedAllocation+maxAmplification*uint64(len(b)) {
			t.Errorf("%s: %d bytes allocated for a message of %d", name, n, len(b))
		}
		if name == "actions within actions" && err == nil {
			t.Errorf("%s: accepted %.40s", name, fmt.Sprint(got))
		}
	}
}
