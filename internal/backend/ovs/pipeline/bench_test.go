// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"net/netip"
	"testing"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// largeState has 450 ports on this node, and 1000 nodes, all dual-stack.
func largeState(t testing.TB) *intent.Store {
	t.Helper()
	o := intent.Objects{
		Local:    intent.Local{Node: "n0", Encapsulation: intent.VXLAN, TunnelIP: netip.MustParseAddr("192.168.0.1")},
		Routers:  []intent.Router{{Name: "default", ID: 1, VNI: 1}},
		Networks: []intent.Network{{Name: "default", ID: 1, VNI: 1, Router: "default"}},
	}
	for i := range 1000 {
		hi, lo := byte(i>>8), byte(i)
		v4 := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, hi, lo, 0}), 24)
		v6 := netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 6: hi, 7: lo}), 64)
		o.Nodes = append(o.Nodes, intent.Node{
			Name:      fmt.Sprint("n", i),
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 168, hi, lo})},
			Subnets: []intent.Subnet{
				{Network: "default", Prefix: v4, Gateway: v4.Addr().Next()},
				{Network: "default", Prefix: v6, Gateway: v6.Addr().Next()},
			},
		})
	}
	for i := range 450 {
		o.Ports = append(o.Ports, largePort(i))
	}
	return storeOf(t, o)
}

func storeOf(t testing.TB, o intent.Objects) *intent.Store {
	t.Helper()
	store := intent.NewStore()
	if _, err := store.Update(func(tx *intent.Tx) error { tx.Replace(o); return nil }); err != nil {
		t.Fatal(err)
	}
	return store
}

func largePort(i int) intent.Port {
	hi, lo := byte(i>>8), byte(i)
	p := intent.Port{
		ID: fmt.Sprintf("c%d/eth0", i), Namespace: "default", Pod: fmt.Sprint("web-", i), Interface: "eth0",
		Network: "default", Node: "n0",
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, hi, lo}), netip.AddrFrom16([16]byte{0: 0xfd, 14: hi, 15: lo})},
	}
	p.MAC = reserved.PodMAC(p.Addresses[0])
	return p
}

func BenchmarkCompileFromEmpty(b *testing.B) {
	state := largeState(b).State()
	b.ReportAllocs()
	for b.Loop() {
		New().Compile(inputOf(state))
	}
}

func BenchmarkOnePortChanges(b *testing.B) {
	store := largeState(b)
	c := New()
	c.Compile(inputOf(store.State()))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		p := largePort(7)
		p.MAC[5] = byte(i % 2)
		state, err := store.Update(func(tx *intent.Tx) error { tx.SetPort(p); return nil })
		if err != nil {
			b.Fatal(err)
		}
		c.Compile(inputOf(state))
	}
}
