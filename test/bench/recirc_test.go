// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// Flows of a connection through a tunnel, as ovs-vswitchd printed them.
const dump = `flow-dump from the main thread:
recirc_id(0),in_port(6),eth_type(0x0800),ipv4(src=10.244.1.2,ttl=64,frag=no), packets:210, bytes:1, used:0.001s, actions:set(eth(src=0a:c0:e1:00:00:01)),set(ipv4(ttl=63)),ct(zone=1),recirc(0x7)
ct_state(-rpl+trk),recirc_id(0x7),in_port(6),eth_type(0x0800),ipv4(frag=no), packets:210, bytes:1, used:0.001s, actions:tnl_push(tnl_port(4),header(size=50,type=4),out_port(2)),1
recirc_id(0),in_port(4),eth_type(0x0800),ipv4(dst=10.244.1.2,frag=no), packets:208, bytes:1, used:0.001s, actions:5
recirc_id(0),in_port(6),eth_type(0x86dd),ipv6(proto=58,frag=no), packets:300, bytes:1, used:0.001s, actions:drop
recirc_id(0),in_port(9),eth_type(0x0800),ipv4(frag=no), packets:3, bytes:1, used:never, actions:1,2,3,4,5,6
`

func TestParseFlows(t *testing.T) {
	want := counts{recirculations: 0.5, actions: 3.5}
	if got := parseFlows(dump); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

func TestPercentile(t *testing.T) {
	values := []float64{5, 1, 4, 2, 3}
	for p, want := range map[float64]float64{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := percentile(values, p); got != want {
			t.Errorf("percentile %g: %g, want %g", p, got, want)
		}
	}
}
