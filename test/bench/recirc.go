// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// recircPackets is how many packets go there and back on each way.
const recircPackets = 200

// measureRecirculations sends packets on each way and counts, from the flows of
// the datapath, how often a packet was looked up again and what was done with it.
func measureRecirculations(ctx context.Context) ([]Result, error) {
	l, err := lab.Start(ctx, lab.Options{})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	var pods [3]*lab.Pod
	for i, n := range []*lab.Node{l.Nodes[0], l.Nodes[0], l.Nodes[1]} {
		if pods[i], err = n.AddPod(ctx, fmt.Sprintf("pod-%d", i)); err != nil {
			return nil, err
		}
	}
	var results []Result
	for _, way := range []struct {
		name     string
		from, to *lab.Host
		dst      netip.Addr
	}{
		{"same-node", pods[0].Host, pods[1].Host, pods[1].Address(lab.IPv4)},
		{"cross-node", pods[0].Host, pods[2].Host, pods[2].Address(lab.IPv4)},
		{"node-to-pod", l.Nodes[0].Host, pods[0].Host, pods[0].Address(lab.IPv4)},
		{"outside", pods[0].Host, l.Outside, lab.Internet(lab.IPv4)},
	} {
		c, err := count(ctx, l, way.from, way.to, netip.AddrPortFrom(way.dst, 5002))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		results = append(results,
			absolute("recirc-"+way.name, "per packet", c.recirculations),
			absolute("actions-"+way.name, "per packet", c.actions))
	}
	return results, nil
}

// counts are of one packet that goes one way, over all nodes.
type counts struct{ recirculations, actions float64 }

func count(ctx context.Context, l *lab.Lab, from, to *lab.Host, at netip.AddrPort) (counts, error) {
	s, err := probe.StartUDP(from, to, at, at, time.Millisecond)
	if err != nil {
		return counts{}, err
	}
	// The connection is established before the counting begins.
	if err = s.Wait(ctx, recircPackets); err == nil {
		for _, n := range l.Nodes {
			if _, err = n.OVS.Appctl(ctx, "revalidator/purge"); err != nil {
				break
			}
		}
	}
	if err == nil {
		err = s.Wait(ctx, recircPackets)
	}
	var dumps strings.Builder
	for _, n := range l.Nodes {
		var dump string
		if err == nil {
			dump, err = n.OVS.Appctl(ctx, "dpctl/dump-flows")
		}
		dumps.WriteString(dump + "\n")
	}
	s.Stop()
	return parseFlows(dumps.String()), err
}

var flowPackets = regexp.MustCompile(`packets:(\d+)`)

// parseFlows reads what dpctl/dump-flows prints and weighs each flow by its
// packets; those of few packets are not of the stream. As many packets go back
// as there, so the flow with the most packets has half of them.
func parseFlows(dump string) counts {
	var c counts
	var most float64
	eachFlow(dump, func(packets float64, match, actions string) {
		if packets < recircPackets/2 || !strings.Contains(match, "eth_type(0x0800)") {
			return
		}
		most = max(most, packets)
		c.recirculations += packets * float64(strings.Count(actions, "recirc("))
		c.actions += packets * float64(actionCount(actions))
	})
	if most == 0 {
		return counts{}
	}
	return counts{roundToHalf(c.recirculations / most / 2), roundToHalf(c.actions / most / 2)}
}

// eachFlow reads the flows that dpctl/dump-flows prints.
func eachFlow(dump string, each func(packets float64, match, actions string)) {
	for line := range strings.Lines(dump) {
		m := flowPackets.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		packets, _ := strconv.ParseFloat(m[1], 64)
		match, actions, _ := strings.Cut(line, "actions:")
		each(packets, match, actions)
	}
}

// roundToHalf evens out that a flow was looked at a packet earlier than another.
func roundToHalf(v float64) float64 { return math.Round(2*v) / 2 }

// actionCount counts the outermost actions of a list.
func actionCount(list string) int {
	depth, n := 0, 1
	for _, r := range strings.TrimSpace(list) {
		switch r {
		case '(', '{':
			depth++
		case ')', '}':
			depth--
		case ',':
			if depth == 0 {
				n++
			}
		}
	}
	return n
}
