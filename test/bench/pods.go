// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// Rounds of the traffic measures, taken in turns with the reference, and the
// time of each.
const (
	trafficRounds = 5
	trafficTime   = 2 * time.Second
)

// traffic is one kind of load between two hosts.
type traffic struct {
	name, unit string
	handle     func(net.Conn)
	load       func(context.Context, probe.Netns, netip.AddrPort, time.Duration) (float64, error)
	scale      float64
}

var traffics = []traffic{
	{"stream", "Mbit/s", probe.Discard, probe.Stream, 8e-6},
	{"rr", "1/s", probe.Echo, probe.RequestResponse, 1},
	{"crr", "1/s", probe.Answer, probe.ConnectRequestResponse, 1},
}

// measurePods compares two pods of one node with two hosts on a plain switch of
// the same Open vSwitch.
func measurePods(ctx context.Context) ([]Result, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	n := l.Nodes[0]
	var pods, plain [2]*lab.Host
	for i := range pods {
		p, err := n.AddPod(ctx, fmt.Sprintf("pod-%d", i))
		if err != nil {
			return nil, err
		}
		pods[i] = p.Host
		address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 98, 0, byte(i + 1)}), 24)
		if plain[i], err = n.AddReferenceHost(ctx, fmt.Sprintf("plain-%d", i), address); err != nil {
			return nil, err
		}
	}
	var results []Result
	for _, tr := range traffics {
		var rates [2][]float64
		for range trafficRounds {
			for who, hosts := range [][2]*lab.Host{pods, plain} {
				rate, err := tr.run(ctx, hosts[0], hosts[1], netip.AddrPortFrom(hosts[1].Address(lab.IPv4), serverPort),
					trafficTime)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", tr.name, err)
				}
				rates[who] = append(rates[who], rate)
			}
		}
		results = append(results,
			compared("pod-"+tr.name, tr.unit, percentile(rates[0], 0.5), percentile(rates[1], 0.5), 0.8, 0.95, higher))
	}
	return results, nil
}

// serverPort is where the servers of all traffic are.
const serverPort = 5001

// run is the rate of one load from a host to a server on another one, which it knows at dst.
func (tr traffic) run(ctx context.Context, from, to *lab.Host, dst netip.AddrPort, d time.Duration) (float64, error) {
	server, err := probe.Serve(to, netip.AddrPortFrom(to.Address(lab.IPv4), serverPort), tr.handle)
	if err != nil {
		return 0, err
	}
	defer server.Close()
	rate, err := tr.load(ctx, from, dst, d)
	return rate * tr.scale, err
}
