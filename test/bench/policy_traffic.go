// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
)

const (
	manyRules    = 1000
	peersOfRule  = 10
	policyRounds = 7
)

const throughputBar, throughputAim = 0.98, 1

// measurePolicyTraffic compares what two pods of a node can send each other when 1,000 rules are for each of them, of which the
// last allows it, with what they can when no policy is for them, on the same switch.
func measurePolicyTraffic(ctx context.Context) ([]Result, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1, Families: lab.IPv4, Policies: true})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	n := l.Nodes[0]
	var pods [2]*lab.Pod
	for i, name := range []string{"client", "server"} {
		if pods[i], err = n.AddPod(ctx, name); err != nil {
			return nil, err
		}
	}
	var open lab.PolicyView
	for _, p := range pods {
		open.Subjects = append(open.Subjects, intent.Subject{Key: intent.PodSubject(p.UID)})
	}
	views := []lab.PolicyView{ruled(pods[0], pods[1]), open}
	var results []Result
	for _, tr := range traffics {
		rates := make([][]float64, len(views))
		for range policyRounds {
			for i, v := range views {
				if err := l.Policies.Publish(ctx, map[string]lab.PolicyView{n.Name: v}); err != nil {
					return nil, err
				}
				rate, err := tr.run(ctx, pods[0].Host, pods[1].Host, netip.AddrPortFrom(pods[1].Address(lab.IPv4), serverPort), balancedTime)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", tr.name, err)
				}
				rates[i] = append(rates[i], rate)
			}
		}
		r := paired("policy-"+tr.name, tr.unit, rates[0], rates[1])
		if tr.name == "stream" {
			r = r.atLeast(throughputBar, throughputAim)
		}
		results = append(results, r)
	}
	if err := l.Policies.Publish(ctx, map[string]lab.PolicyView{n.Name: views[0]}); err != nil {
		return nil, err
	}
	flows, err := flowCount(ctx, n)
	return append(results, absolute("policy-flows-1000", "flows", flows)), err
}

// ruled is a view with policies of 1,000 rules for the client's egress, and of as many for the server's ingress. Half of
// the rules have blocks, half have groups of peers.
func ruled(client, server *lab.Pod) lab.PolicyView {
	ref := intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "bench", Name: "many"}
	var v lab.PolicyView
	groups := map[netip.Addr][]string{}
	from := netip.MustParseAddr("10.128.0.0")
	add := func(d intent.Direction, number int, r intent.Rule) string {
		r.ID, r.Policy, r.Number, r.Direction = fmt.Sprintf("many/%d/%d", d, number), ref, number, d
		r.Tier, r.Action = intent.NetworkPolicyTier, intent.Allow
		v.Rules = append(v.Rules, r)
		return r.ID
	}
	for d, p := range map[intent.Direction]*lab.Pod{intent.Egress: client, intent.Ingress: server} {
		s := intent.Subject{Key: intent.PodSubject(p.UID)}
		if d == intent.Egress {
			s.EgressIsolation = []intent.PolicyRef{ref}
		} else {
			s.IngressIsolation = []intent.PolicyRef{ref}
		}
		for i := range manyRules - 1 {
			port := uint16(10_000 + i)
			r := intent.Rule{Ports: []intent.PortRange{{Protocol: 6, First: port, Last: port}}}
			if i%2 == 0 {
				r.Blocks = []netip.Prefix{netip.PrefixFrom(nth(from, i*peersOfRule), 32)}
			} else {
				r.Groups = []string{fmt.Sprintf("group-%d", i)}
				for j := range peersOfRule {
					a := nth(from, i*peersOfRule+j)
					if d == intent.Ingress { // the same for both
						groups[a] = append(groups[a], r.Groups...)
					}
				}
			}
			s.Rules = append(s.Rules, add(d, i+1, r))
		}
		last := intent.Rule{Groups: []string{"pods"}, Ports: []intent.PortRange{{Protocol: 6, First: serverPort, Last: serverPort}}}
		s.Rules = append(s.Rules, add(d, manyRules, last))
		slices.Sort(s.Rules)
		v.Subjects = append(v.Subjects, s)
		groups[p.Address(lab.IPv4)] = []string{"pods"}
	}
	for a, in := range groups {
		v.Peers = append(v.Peers, intent.Peer{Space: intent.DefaultRouterName, Address: a, Groups: in})
	}
	slices.SortFunc(v.Rules, func(a, b intent.Rule) int { return strings.Compare(a.ID, b.ID) })
	return v
}
