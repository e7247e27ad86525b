// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"coelan.io/coelan/internal/intent"
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
	load       func(context.Context, probe.Netns, netip.AddrPort, probe.Extent) (float64, error)
	scale      float64
	// A rate of 1 is perSecond times the costUnit in a second.
	costUnit  string
	perSecond float64
	// counted is how many units of the load there are in a turn where instructions are counted.
	counted int
}

const perTransaction = "per transaction"

var traffics = []traffic{
	{"stream", "Mbit/s", probe.Discard, probe.Stream, 8e-6, "per KiB", 1e6 / 8 / 1024, 16 << 20},
	{"rr", "1/s", probe.Echo, probe.RequestResponse, 1, perTransaction, 1, 1200},
	{"crr", "1/s", probe.Answer, probe.ConnectRequestResponse, 1, perTransaction, 1, 160},
}

// measurePods compares two pods of one node with two hosts on a plain switch of the same Open
// vSwitch: where policies are off, where they are enforced and none is for the pods, and where the
// server has one. Where instructions are counted, it also says what is left without any network,
// and what the floors take.
func measurePods(ctx context.Context) ([]Result, error) {
	all, err := podContenders(ctx)
	defer func() { closeAll(all) }()
	if err != nil {
		return nil, err
	}
	floors, err := podFloorContenders(ctx)
	if all = append(all, floors...); err != nil {
		return nil, err
	}
	var results []Result
	for _, tr := range traffics {
		rates := map[string][]float64{}
		for range trafficRounds {
			for _, c := range all {
				rate, err := c.direct(ctx, tr, trafficTime)
				if err != nil {
					return nil, fmt.Errorf("%s %s: %w", c.name, tr.name, err)
				}
				rates[c.name] = append(rates[c.name], rate)
			}
		}
		plain := best(rates[plainSwitch])
		for _, c := range all {
			name, ours := c.name+"-"+tr.name, best(rates[c.name])
			if c.pods != nil {
				results = append(results, compared(name, tr.unit, ours, plain, 0.8, 0.95, higher))
			}
			if c.name != plainSwitch {
				results = append(results, tr.costs(name, ours, plain)...)
			}
		}
	}
	return results, nil
}

// What is no Coelan: two hosts on a plain switch, and one that is its own server.
const (
	plainSwitch = "plain"
	loopback    = "loopback"
)

// admit gives the pod of the view's last Subject a NetworkPolicy that lets all pods of the lab
// connect to it.
func admit(view *lab.PolicyView, p *lab.Pod) {
	ref := intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: p.Namespace, Name: "admit"}
	rule := intent.Rule{ID: "admit", Policy: ref, Number: 1, Direction: intent.Ingress, Tier: intent.NetworkPolicyTier,
		Action: intent.Allow, Blocks: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
		Ports: []intent.PortRange{{Protocol: 6, First: serverPort, Last: serverPort}}}
	view.Rules = append(view.Rules, rule)
	s := &view.Subjects[len(view.Subjects)-1]
	s.Rules, s.IngressIsolation = []string{rule.ID}, []intent.PolicyRef{ref}
}

// podContenders are pairs of pods and what they are compared with. They are to be closed also if
// there is an error.
func podContenders(ctx context.Context) ([]*contender, error) {
	off, err := lab.Start(ctx, lab.Options{Nodes: 1})
	all := []*contender{{name: "pod", lab: off}}
	if err != nil {
		return all, err
	}
	enforced, err := lab.Start(ctx, lab.Options{Nodes: 1, Policies: true})
	free, judged := &contender{name: "pod-enforced", lab: enforced}, &contender{name: "pod-policy", lab: enforced}
	if all = append(all, free); err != nil {
		return all, err
	}
	if err := all[0].addPods(ctx, off.Nodes[0]); err != nil {
		return all, err
	}
	var view lab.PolicyView
	for _, c := range []*contender{free, judged} {
		if err := c.addPods(ctx, enforced.Nodes[0]); err != nil {
			return all, err
		}
		for _, p := range c.pods {
			view.Subjects = append(view.Subjects, intent.Subject{Key: intent.PodSubject(p.UID)})
		}
	}
	admit(&view, judged.pods[1])
	if err := enforced.Policies.Publish(ctx, map[string]lab.PolicyView{enforced.Nodes[0].Name: view}); err != nil {
		return all, err
	}
	plain, err := plainContender(ctx, off.Nodes[0])
	if err != nil {
		return all, err
	}
	return append(all, judged, plain, &contender{name: loopback, client: plain.client, server: plain.client}), nil
}

// plainContender has two hosts on a plain switch.
func plainContender(ctx context.Context, n *lab.Node) (*contender, error) {
	plain := &contender{name: plainSwitch}
	return plain, plain.addReferenceHosts(ctx, n)
}

// addReferenceHosts makes a client and a server on a bridge with one flow, NORMAL.
func (c *contender) addReferenceHosts(ctx context.Context, n *lab.Node) (err error) {
	for i, h := range []**lab.Host{&c.client, &c.server} {
		address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 98, 2, byte(i + 1)}), 24)
		if *h, err = n.AddReferenceHost(ctx, fmt.Sprintf("plain-%d", i), address); err != nil {
			return err
		}
	}
	return nil
}

// serverPort is where the servers of all traffic are. Where a server has connections by a Service
// too, directPort is for those to its own address. A server keeps a connection for a minute after
// its end, and takes another one from the same client's port, by the other address, for an old one.
const (
	serverPort = 5001
	directPort = 5003
)

// listening is where a server listens that a client knows at dst.
func listening(server *lab.Host, dst netip.AddrPort) netip.AddrPort {
	if own := server.Address(lab.IPv4); dst.Addr() != own {
		return netip.AddrPortFrom(own, serverPort)
	}
	return dst
}

// run is the rate of one load from a host to a server on another one, which it knows at dst. Where
// instructions are counted, the load has a fixed extent in place of the time.
func (tr traffic) run(ctx context.Context, from, to *lab.Host, dst netip.AddrPort, d time.Duration) (float64, error) {
	server, err := probe.Serve(to, listening(to, dst), tr.handle)
	if err != nil {
		return 0, err
	}
	defer server.Close()
	load := func(e probe.Extent) (float64, error) { return tr.load(ctx, from, dst, e) }
	rate, err := tr.paced(load, d)
	return rate * tr.scale, err
}
