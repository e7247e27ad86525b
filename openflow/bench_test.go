// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"net/netip"
	"testing"
)

// benchFlows makes n flows such as a node of a cluster has.
func benchFlows(n int) []Flow {
	flows := make([]Flow, n)
	router := MAC{0x0a, 0xc0, 0xe1, 0, 0, 1}
	for i := range flows {
		addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		flows[i] = Flow{
			Table: 20, Priority: 132, Cookie: uint64(i), Goto: 30,
			Match: NewMatch(FieldReg2.Value(1), IPDst(addr)),
			Actions: []Action{
				SetField(EthSrc(router)), SetField(EthDst(MAC{0x0a, 0xce, 10, 0, byte(i >> 8), byte(i)})),
				SetField(FieldReg3.Value(uint64(i))), DecTTL(),
			},
		}
	}
	return flows
}

func BenchmarkMakeFlows20k(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		benchFlows(20000)
	}
}

func BenchmarkEncodeFlowMods20k(b *testing.B) {
	flows := benchFlows(20000)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = buf[:0]
		for i := range flows {
			m := BundleAdd{BundleID: 1, Flags: BundleAtomic | BundleOrdered, Message: AddFlow(flows[i])}
			var err error
			if buf, err = AppendMessage(buf, uint32(i), &m); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkDecodeFlows20k(b *testing.B) {
	flows := benchFlows(20000)
	var messages [][]byte
	for len(flows) > 0 {
		n := min(300, len(flows))
		descs := make(FlowDescs, n)
		for i := range descs {
			descs[i].Flow = flows[i]
		}
		flows = flows[n:]
		m, err := AppendMessage(nil, 1, &MultipartReply{Body: descs})
		if err != nil {
			b.Fatal(err)
		}
		messages = append(messages, m)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, m := range messages {
			if _, _, err := Decode(m); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkDiffFlows20k(b *testing.B) {
	want, have := benchFlows(20000), benchFlows(20000)
	b.ReportAllocs()
	for b.Loop() {
		index := make(map[FlowKey]*Flow, len(have))
		for i := range have {
			index[have[i].Key()] = &have[i]
		}
		for i := range want {
			if f := index[want[i].Key()]; f == nil || !f.Equal(&want[i]) {
				b.Fatal("not equal")
			}
		}
	}
}
