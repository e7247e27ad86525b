// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"testing"

	"coelan.io/coelan/test/lab"
)

func TestCrossNodeWays(t *testing.T) {
	host := func(address string) *lab.Host {
		return &lab.Host{Addresses: []netip.Prefix{netip.MustParsePrefix(address)}}
	}
	// Nodes without Open vSwitch's datapath: a flush of its connections would fail.
	l := &lab.Lab{Outside: host("192.168.33.1/24"), Nodes: []*lab.Node{{}}}
	c := &contender{name: flannelLike, lab: l, server: host("10.244.2.2/32"), kernelOnly: true}
	want := map[string]string{
		"pod": "10.244.2.2:5003", "service": "10.96.0.10:80", "outside": "192.168.33.1:5003",
	}
	for _, w := range crossNodeWays {
		got := w.of(c)
		if at := w.at(got).String(); at != want[w.name] {
			t.Errorf("%s: the client connects to %s, want %s", w.name, at, want[w.name])
		}
		if err := got.flush(t.Context()); err != nil {
			t.Errorf("%s: %v", w.name, err)
		}
	}
	if c.server == l.Outside {
		t.Error("the way to the outside has changed the others' server")
	}
}
