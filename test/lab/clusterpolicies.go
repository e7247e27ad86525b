// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"slices"
	"sync"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
)

// PublishPolicies gives each node, by name, what it has to know of policies, or OVN's controller
// all of it. Agents have it in effect on return; OVN has it in effect later.
func (l *Lab) PublishPolicies(ctx context.Context, views map[string]PolicyView) error {
	if l.OVN == nil {
		return l.Policies.Publish(ctx, views)
	}
	l.OVN.policies.publish(union(views))
	return nil
}

// union is what the nodes together have to know.
func union(views map[string]PolicyView) (all PolicyView) {
	rules, peers := map[string]intent.Rule{}, map[string]intent.Peer{}
	for _, v := range views {
		all.Subjects = append(all.Subjects, v.Subjects...)
		for _, r := range v.Rules {
			rules[r.ID] = r
		}
		for _, p := range v.Peers {
			key := intent.PeerKey(p.Space, p.Address)
			p.Groups = slices.Concat(p.Groups, peers[key].Groups)
			slices.Sort(p.Groups)
			p.Groups = slices.Compact(p.Groups)
			peers[key] = p
		}
	}
	for _, r := range rules {
		all.Rules = append(all.Rules, r)
	}
	for _, p := range peers {
		all.Peers = append(all.Peers, p)
	}
	return all
}

// policyMode is that of a controller's half of a backend. Policies are known, if they are enforced.
func (l *Lab) policyMode() (mode intent.PolicyMode, known chan struct{}) {
	known = make(chan struct{})
	if !l.options.Policies {
		return intent.UnenforcedPolicies, known
	}
	close(known)
	return intent.EnforcedPolicies, known
}

// clusterPolicies are what OVN's controller has to know. It has one subscriber at a time.
type clusterPolicies struct {
	mu         sync.Mutex
	view       PolicyView
	subscriber policy.Subscriber
}

// Subscribe implements clusterintent.Policies.
func (p *clusterPolicies) Subscribe(_ string, s policy.Subscriber) (cancel func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subscriber = s
	s.Begin(p.view, nil)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.subscriber = nil
	}
}

// Published implements clusterintent.Policies: tests say what policies are, whatever objects there
// are.
func (*clusterPolicies) Published() policy.Basis { return nil }

// publish replaces all.
func (p *clusterPolicies) publish(v PolicyView) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.view
	p.view = v
	if p.subscriber != nil {
		p.subscriber.Change(policy.Delta{
			View:            v,
			RemovedRules:    gone(was.Rules, v.Rules, func(r intent.Rule) string { return r.ID }),
			RemovedSubjects: gone(was.Subjects, v.Subjects, func(s intent.Subject) string { return s.Key }),
			RemovedPeers: gone(was.Peers, v.Peers, func(p intent.Peer) string {
				return intent.PeerKey(p.Space, p.Address)
			}),
		}, nil)
	}
}

// gone are the sorted keys of before that now lacks.
func gone[T any](before, now []T, key func(T) string) (list []string) {
	for _, b := range before {
		if !slices.ContainsFunc(now, func(n T) bool { return key(n) == key(b) }) {
			list = append(list, key(b))
		}
	}
	slices.Sort(list)
	return list
}
