// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// Flows that match other values of the same bits have one mask.
func TestParseSize(t *testing.T) {
	const dump = `flow-dump from the main thread:
recirc_id(0),in_port(2),packet_type(ns=0,id=0),eth(src=0a:ce:0a:f4:01:02,dst=0a:ce:00:00:00:01),eth_type(0x0800),ipv4(src=10.244.1.2,dst=10.96.0.0/255.255.0.0,proto=6,frag=no),tcp(dst=80), packets:3, bytes:222, used:0.1s, flags:SFP., actions:ct,recirc(0x1)
recirc_id(0),in_port(3),packet_type(ns=0,id=0),eth(src=0a:ce:0a:f4:01:03,dst=0a:ce:00:00:00:01),eth_type(0x0800),ipv4(src=10.244.1.3,dst=10.97.0.0/255.255.0.0,proto=6,frag=no),tcp(dst=443), packets:3, bytes:222, used:0.1s, flags:SFP., actions:ct,recirc(0x2)
recirc_id(0x1),in_port(3),packet_type(ns=0,id=0),eth(src=0a:ce:0a:f4:01:03,dst=0a:ce:00:00:00:01),eth_type(0x0800),ipv4(src=10.244.1.3,dst=10.97.0.0/255.255.255.0,proto=6,frag=no),tcp(dst=443), packets:0, bytes:0, used:never, actions:drop
`
	if got, want := parseSize(dump), (datapathSize{flows: 3, masks: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
