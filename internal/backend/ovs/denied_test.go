// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
)

// Frames: Ethernet, IP, the first bytes of what follows.
const (
	ethernet  = "0a0000000001 0a0000000002"
	ipv4Frame = ethernet + "0800 4500003c00004000 40060000 0a000001 0a000002 c0001f90 00000000"
	ipv6Frame = ethernet + "86dd 6000000000103c40 fd000000000000000000000000000001 fd000000000000000000000000000002" +
		"1100000000000000 13880035 00080000"
)

func frame(text string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

func TestParseDenied(t *testing.T) {
	for name, tc := range map[string]struct{ frame, want string }{
		"IPv4":             {ipv4Frame, "tcp 10.0.0.1:49152 > 10.0.0.2:8080"},
		"IPv6, extension":  {ipv6Frame, "udp [fd00::1]:5000 > [fd00::2]:53"},
		"VLAN":             {ethernet + "8100 0005" + ipv4Frame[len(ethernet):], "tcp 10.0.0.1:49152 > 10.0.0.2:8080"},
		"a later fragment": {strings.Replace(ipv4Frame, "00004000", "00000010", 1), "tcp 10.0.0.1 > 10.0.0.2"},
		"IPv6, the first fragment": {
			strings.Replace(ipv6Frame, "103c40", "102c40", 1)[:len(ipv6Frame)-34] + "1100 0001 00000007 13880035 00080000", "udp [fd00::1]:5000 > [fd00::2]:53",
		},
		"IPv6, a later fragment": {
			strings.Replace(ipv6Frame, "103c40", "102c40", 1)[:len(ipv6Frame)-34] + "1100 0100 00000007 13880035 00080000", "udp fd00::1 > fd00::2",
		},
		"ICMP":    {strings.Replace(ipv4Frame, "4006", "4001", 1), "icmp 10.0.0.1 > 10.0.0.2"},
		"another": {strings.Replace(ipv4Frame, "4006", "4059", 1), "89 10.0.0.1 > 10.0.0.2"},
		"cut":     {ipv4Frame[:len(ipv4Frame)-18], "tcp 10.0.0.1 > 10.0.0.2"},
		"ARP":     {ethernet + "0806" + ipv4Frame[len(ethernet)+4:], ""},
		"short":   {ethernet, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d, ok := parseDenied(frame(tc.frame))
			got := ""
			if ok {
				got = d.protocol + " " + endText(d.source) + " > " + endText(d.destination)
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func FuzzParseDenied(f *testing.F) {
	f.Add(frame(ipv4Frame))
	f.Add(frame(ipv6Frame))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, ok := parseDenied(b); ok && (!d.source.IsValid() || !d.destination.IsValid()) {
			t.Errorf("%x: %+v", b, d)
		}
	})
}

// Two Ports may have the same address, where it means something else.
func TestNamesOfDenied(t *testing.T) {
	shared, own, node := addr("10.244.1.2"), addr("10.50.0.2"), addr("10.244.1.9")
	port := func(name, network, node string, a netip.Addr) intent.Port {
		return intent.Port{ID: name, Namespace: "lab", Pod: name, Interface: "eth0", Network: network, Node: node, Addresses: []netip.Addr{a}}
	}
	red := port("red", "red", "n1", own)
	red.NodeAddresses = []netip.Addr{node}
	store := intent.NewStore()
	s, err := store.Update(func(tx *intent.Tx) error {
		tx.Replace(intent.Objects{
			Local: intent.Local{Node: "n1"},
			Routers: []intent.Router{
				{Name: intent.DefaultRouterName, ID: intent.DefaultRouter, Shared: true}, {Name: "red", ID: 7}, {Name: "blue", ID: 8, Imports: []string{"red"}},
			},
			Networks: []intent.Network{
				{Name: intent.DefaultNetworkName, ID: 1, Router: intent.DefaultRouterName}, {Name: "red", ID: 2, Router: "red"}, {Name: "wire", ID: 3, Physical: "office"},
			},
			Ports: []intent.Port{port("web", intent.DefaultNetworkName, "n1", shared), red, port("vm", "wire", "n1", own), port("far", "red", "n2", addr("10.50.0.3"))},
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		zone intent.RouterID
		a    netip.Addr
		want string
	}{
		{1, shared, "lab/web/eth0"}, {7, shared, ""}, {7, own, "lab/red/eth0"}, {8, own, "lab/red/eth0"}, {1, own, ""}, {1, node, "lab/red/eth0"}, {7, node, ""},
		{datapath.PhysicalZone, own, "lab/vm/eth0"}, {datapath.PhysicalZone, shared, ""}, {7, addr("10.50.0.3"), ""},
	} {
		if got := nameOf(s, tc.zone, tc.a); got != tc.want {
			t.Errorf("%s in zone %d is %q, want %q", tc.a, tc.zone, got, tc.want)
		}
	}
}
