// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// As Open vSwitch printed them.
const (
	workFlows = `recirc_id(0),in_port(2),ct_state(0/0),eth_type(0x0800),ipv4(proto=6), packets:10, bytes:1, used:0.1s, actions:ct(zone=1,nat),recirc(0x2)
recirc_id(0x2),in_port(2),ct_state(+new-rpl-inv+trk),eth_type(0x0800),ipv4(dst=10.96.0.10,proto=6),tcp(dst=80), packets:2, bytes:1, used:0.1s, actions:set(eth(src=0a:c0:e1:00:00:01,dst=0a:ce:0a:f4:01:03)),ct(commit,zone=1,mark=0x6/0x7,nat(dst=10.244.1.3:5001)),3
recirc_id(0x2),in_port(2),eth_type(0x0800),ipv4(proto=6), packets:8, bytes:1, used:0.1s, actions:ct_clear,set(tunnel(tun_id=0x1,dst=192.168.33.12)),set(ipv4(ttl=63)),ct,4
recirc_id(0),in_port(9),eth_type(0x0806), packets:0, bytes:0, used:never, actions:drop
`
	workShow = `system@ovs-system:
  lookups: hit:4006 missed:24 lost:0
  flows: 18
  masks: hit:12385 total:8 hit/pkt:3.07
`
)

func TestParseWork(t *testing.T) {
	want := work{upcalls: 24, lookups: 20, masks: 12385, recircs: 10, tracked: 20, unknown: 2, commits: 2, natted: 12,
		rewrites: 10, tunneled: 8}
	got := parseWork(workFlows, workShow)
	if got != want {
		t.Errorf("work %+v, want %+v", got, want)
	}
	if none := got.minus(want); none != (work{}) {
		t.Errorf("the same work taken away: %+v is left", none)
	}
	results := profiled("x", traffic{counted: 4, scale: 1, perSecond: 1}, want, work{lookups: 8})
	if r := results[1]; r.Name != "x-lookups" || r.Ours != 5 || *r.Reference != 2 {
		t.Errorf("20 and 8 lookups for 4 units: %+v", r)
	}
}
