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
	policyRounds = 9
)

const throughputBar, throughputAim = 0.98, 1

// measurePolicyTraffic compares what two pods can send each other that 1,000 rules are for, of
// which the last allows it, with what two others on the same node can that no policy is for.
func measurePolicyTraffic(ctx context.Context) ([]Result, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1, Families: lab.IPv4, Policies: true})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	n := l.Nodes[0]
	var pairs [2][2]*lab.Pod
	for i := range pairs {
		for j, name := range []string{"client", "server"} {
			if pairs[i][j], err = n.AddPod(ctx, fmt.Sprintf("%s-%d", name, i)); err != nil {
				return nil, err
			}
		}
	}
	view := ruled(pairs[0][0], pairs[0][1])
	for _, p := range pairs[1] {
		view.Subjects = append(view.Subjects, intent.Subject{Key: intent.PodSubject(p.UID)})
	}
	if err := l.Policies.Publish(ctx, map[string]lab.PolicyView{n.Name: view}); err != nil {
		return nil, err
	}
	flows, err := flowCount(ctx, n)
	if err != nil {
		return nil, err
	}
	var results []Result
	for _, tr := range traffics {
		var rates [2][]float64
		for range policyRounds {
			for i, p := range pairs {
				to := netip.AddrPortFrom(p[1].Address(lab.IPv4), serverPort)
				rate, err := tr.run(ctx, p[0].Host, p[1].Host, to, balancedTime)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", tr.name, err)
				}
				rates[i] = append(rates[i], rate)
			}
		}
		r := tr.turns("policy-"+tr.name, rates[0], rates[1])
		if tr.name == "stream" {
			r = r.atLeast(throughputBar, throughputAim)
		}
		results = append(results, r)
	}
	return append(results, absolute("policy-flows-1000", "flows", flows)), nil
}

// ruled is a view with policies of 1,000 rules for the client's egress, and of as many for the
// server's ingress. Half of the rules have blocks, half have groups of peers.
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
		last := intent.Rule{Groups: []string{"pods"},
			Ports: []intent.PortRange{{Protocol: 6, First: serverPort, Last: serverPort}}}
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
