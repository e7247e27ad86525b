// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// TestNoFlooding has pods send unicast, to unknown addresses and broadcast, and checks that a third
// pod on each node receives nothing of it.
func TestNoFlooding(t *testing.T) {
	w := sharedWorld(t)
	e, err := w.n2.AddPod(t.Context(), "e")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Delete(t.Context()) })
	third := []*lab.Pod{w.d, e}
	wires := []*probe.Wire{wire(t, third[0].Host), wire(t, third[1].Host)}
	for f := range lab.Dual.Each {
		reach(t, w, true, f)
	}
	a := wire(t, w.a.Host)
	nobody := net.HardwareAddr{0x0a, 0xce, 9, 9, 9, 9}
	src4, src6 := netip.AddrPortFrom(w.a.Address(lab.IPv4), 5353), netip.AddrPortFrom(w.a.Address(lab.IPv6), 5353)
	for _, frame := range []probe.Frame{
		probe.Ethernet(w.a.MAC, probe.Broadcast, probe.EtherIPv4, probe.UDP(src4, netip.MustParseAddrPort("255.255.255.255:67"), nil)),
		probe.Ethernet(w.a.MAC, probe.Broadcast, probe.EtherIPv4, probe.UDP(src4, netip.MustParseAddrPort("10.244.1.255:67"), nil)),
		probe.Ethernet(w.a.MAC, net.HardwareAddr{1, 0, 0x5e, 0, 0, 0xfb}, probe.EtherIPv4, probe.UDP(src4, netip.MustParseAddrPort("224.0.0.251:5353"), nil)),
		probe.Ethernet(w.a.MAC, net.HardwareAddr{0x33, 0x33, 0, 0, 0, 0xfb}, probe.EtherIPv6, probe.UDP(src6, netip.MustParseAddrPort("[ff02::fb]:5353"), nil)),
		probe.Ethernet(w.a.MAC, nobody, probe.EtherIPv4, probe.UDP(src4, netip.MustParseAddrPort("10.244.1.99:9"), nil)),
		probe.Ethernet(w.a.MAC, nobody, 0x88b5, []byte("an unknown protocol")),
	} {
		if err := a.Send(frame); err != nil {
			t.Fatal(err)
		}
	}
	for i, heard := range wires {
		if err := heard.Quiet(quiet, func(f probe.Frame) bool { return !bytes.Equal(f.Dst(), third[i].MAC) }); err != nil {
			t.Errorf("pod %s: %v", third[i].Name, err)
		}
	}
}
