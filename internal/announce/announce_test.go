// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"encoding/hex"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFrames(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	for _, tc := range []struct {
		name, address string
		want          []string
	}{
		{"ARP request and answer", "192.0.2.1", []string{
			"ffffffffffff" + "020000000001" + "0806" + "0001" + "0800" + "06" + "04" + "0001" + "020000000001" + "c0000201" + "000000000000" + "c0000201",
			"ffffffffffff" + "020000000001" + "0806" + "0001" + "0800" + "06" + "04" + "0002" + "020000000001" + "c0000201" + "ffffffffffff" + "c0000201",
		}},
		{"neighbour advertisement", "2001:db8::1", []string{
			"333300000001" + "020000000001" + "86dd" + "60000000" + "0020" + "3a" + "ff" +
				"fe80000000000000000000000000000a" + "ff020000000000000000000000000001" +
				"88" + "00" + "a859" + "a0000000" + "20010db8000000000000000000000001" + "02" + "01" + "020000000001",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, f := range frames(netip.MustParseAddr(tc.address), mac, netip.MustParseAddr("fe80::a")) {
				got = append(got, hex.EncodeToString(f))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("frames (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWiresOf(t *testing.T) {
	wireWith := func(name string, prefixes ...string) wire {
		w := wire{name: name}
		for _, p := range prefixes {
			w.prefixes = append(w.prefixes, netip.MustParsePrefix(p))
		}
		return w
	}
	all := []wire{
		wireWith("eth0", "192.0.2.11/24", "2001:db8::11/64"), wireWith("eth1", "198.51.100.11/24"), wireWith("bond0", "198.51.100.12/25"),
	}
	for address, want := range map[string][]string{
		"192.0.2.40": {"eth0"}, "198.51.100.40": {"eth1", "bond0"}, "198.51.100.200": {"eth1"}, "2001:db8::40": {"eth0"},
		// A router sends these to the node.
		"203.0.113.1": {"eth0"}, "2001:db8:1::1": {"eth0"},
	} {
		var got []string
		for _, w := range wiresOf(all, netip.MustParseAddr(address), netip.MustParseAddr("192.0.2.11")) {
			got = append(got, w.name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", address, diff)
		}
	}
}

// TestDesiredEqual has a node decide anew whenever anything that it decides by is different.
func TestDesiredEqual(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.1")
	d := func(change func(*Desired)) Desired {
		d := Desired{Peers: []Peer{{Name: "n1", Addr: a}}, Addresses: []Address{{Addr: a, Nodes: []string{"n1", "n2"}}}}
		change(&d)
		return d
	}
	same := d(func(*Desired) {})
	for _, tc := range []struct {
		name string
		with Desired
		want bool
	}{
		{"itself", same, true},
		{"another peer", d(func(d *Desired) { d.Peers[0].Name = "n2" }), false},
		{"another address", d(func(d *Desired) { d.Addresses[0].Addr = a.Next() }), false},
		{"fewer nodes", d(func(d *Desired) { d.Addresses[0].Nodes = []string{"n1"} }), false},
		{"the bridge in place of the kernel", d(func(d *Desired) { d.Addresses[0].Bridge = true }), false},
		{"one more address", d(func(d *Desired) { d.Addresses = append(d.Addresses, Address{Addr: a.Next()}) }), false},
	} {
		if got := same.equal(tc.with); got != tc.want {
			t.Errorf("%s: equal: %v, want %v", tc.name, got, tc.want)
		}
	}
}
