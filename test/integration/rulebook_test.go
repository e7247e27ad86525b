// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// rulebook is what the agents of a lab are told: a test changes it and has it published.
type rulebook struct {
	w        *world
	rules    map[string]intent.Rule
	subjects map[*lab.Pod]intent.Subject
	peers    map[string]intent.Peer
}

// policed makes a world of pods that let everything pass at first.
func policed(t *testing.T, o lab.Options) (*world, *rulebook) {
	t.Helper()
	o.Policies = true
	w := start(t, o)
	return w, newRulebook(w, w.a, w.b, w.c, w.d)
}

// newRulebook lets everything pass to and from pods.
func newRulebook(w *world, pods ...*lab.Pod) *rulebook {
	b := &rulebook{w, map[string]intent.Rule{}, map[*lab.Pod]intent.Subject{}, map[string]intent.Peer{}}
	for _, p := range pods {
		b.open(p)
	}
	return b
}

// publish tells every node what it needs to know, and waits until that is in effect.
func (b *rulebook) publish(t *testing.T) {
	t.Helper()
	views := map[string]lab.PolicyView{}
	for _, n := range b.w.Nodes {
		var v lab.PolicyView
		used := map[string]bool{}
		for p, s := range b.subjects {
			if p.Node != n {
				continue
			}
			v.Subjects = append(v.Subjects, s)
			for _, id := range s.Rules {
				used[id] = true
			}
		}
		groups := map[string]bool{}
		for id := range used {
			v.Rules = append(v.Rules, b.rules[id])
			for _, g := range b.rules[id].Groups {
				groups[g] = true
			}
		}
		for _, p := range b.peers {
			p.Groups = slices.DeleteFunc(slices.Clone(p.Groups), func(g string) bool { return !groups[g] })
			if len(p.Groups) > 0 {
				v.Peers = append(v.Peers, p)
			}
		}
		views[n.Name] = v
	}
	if err := b.w.PublishPolicies(within(t, 15*time.Second), views); err != nil {
		t.Fatal(err)
	}
}

// denyAll is the policy that isolates.
var denyAll = intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "lab", Name: "web-deny"}

// isolate has a policy isolate the pod in a direction, and allow by these rules only.
func (b *rulebook) isolate(p *lab.Pod, d intent.Direction, rules ...intent.Rule) {
	s, direction := intent.Subject{Key: intent.PodSubject(p.UID)}, "ingress"
	if d == intent.Ingress {
		s.IngressIsolation = []intent.PolicyRef{denyAll}
	} else {
		s.EgressIsolation, direction = []intent.PolicyRef{denyAll}, "egress"
	}
	for i, r := range rules {
		r.ID = fmt.Sprintf("%s/%s/%s/%s/%d", denyAll.Kind, denyAll.Namespace, denyAll.Name, direction, i+1)
		r.Policy, r.Number, r.Direction = denyAll, i+1, d
		r.Tier, r.Action = intent.NetworkPolicyTier, intent.Allow
		b.rules[r.ID] = r
		s.Rules = append(s.Rules, r.ID)
	}
	b.subjects[p] = s
}

// open lets everything pass to and from the pod.
func (b *rulebook) open(p *lab.Pod) { b.subjects[p] = intent.Subject{Key: intent.PodSubject(p.UID)} }

// group has pods be peers.
func (b *rulebook) group(name string, pods ...*lab.Pod) []string {
	for key, p := range b.peers {
		p.Groups = slices.DeleteFunc(slices.Clone(p.Groups), func(g string) bool { return g == name })
		b.peers[key] = p
	}
	for _, pod := range pods {
		for f := range lab.Dual.Each {
			peer := intent.Peer{Space: intent.DefaultRouterName, Address: pod.Address(f)}
			key := intent.PeerKey(peer.Space, peer.Address)
			if known, ok := b.peers[key]; ok {
				peer = known
			}
			peer.Groups = append(slices.Clone(peer.Groups), name)
			slices.Sort(peer.Groups)
			b.peers[key] = peer
		}
	}
	maps.DeleteFunc(b.peers, func(_ string, p intent.Peer) bool { return len(p.Groups) == 0 })
	return []string{name}
}

func tcpPort(first, last uint16) []intent.PortRange {
	return []intent.PortRange{{Protocol: uint8(intent.TCP), First: first, Last: last}}
}

// unreached says that a TCP connection gets no answer. It is not asked for longer than a first
// packet and its repetition take.
func unreached(from probe.Netns, at netip.AddrPort) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if _, err := probe.Seen(ctx, from, at); err == nil {
			return fmt.Errorf("%s answers", at)
		}
		return nil
	}
}

// from finds packets of a pod.
func from(p *lab.Pod, f lab.Family) func(probe.Frame) bool {
	return func(frame probe.Frame) bool {
		src, _ := frame.IPs()
		return src == p.Address(f)
	}
}
