// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// latencyRounds is how often a policy comes and goes for each pair of pods.
const latencyRounds = 40

const latencyBar, latencyAim = 100, 50

// The pods of which the one is closed by a policy, and those that talk to it.
const guardedNamespace, callersNamespace = "guarded", "callers"

const latencyPort = 7300

// measurePolicyLatency takes the time from the beginning of the call that creates a NetworkPolicy,
// or deletes it, until the first packet of a stream is denied, or arrives again: in a cluster
// without anything else, and in one that has 10,000 pods and 1,000 policies.
func measurePolicyLatency(ctx context.Context) ([]Result, error) {
	c, down, err := startCluster(ctx)
	defer down()
	if err != nil {
		return nil, err
	}
	pairs, err := c.latencyPairs(ctx)
	if err != nil {
		return nil, err
	}
	idle, err := c.policyLatency(ctx, pairs, "")
	if err != nil {
		return nil, err
	}
	first, err := c.firstConnections(ctx, pairs[0].server, pairs[0].client)
	if err != nil {
		return nil, err
	}
	stop, err := c.PlayFakeNodes(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	flows, err := c.addCrowd(ctx)
	if err != nil {
		return nil, err
	}
	crowded, err := c.policyLatency(ctx, pairs, "-10k")
	return append(slices.Concat(idle, first, crowded), absolute("policy-flows-10k", "flows", flows)), err
}

// latencyPair is a client and a server.
type latencyPair struct {
	way            string
	client, server podPlace
}

// latencyPairs starts a server, and a client on its node and on another one.
func (c *cluster) latencyPairs(ctx context.Context) ([]latencyPair, error) {
	for namespace, names := range map[string][]string{guardedNamespace: {"server"}, callersNamespace: {"near", "far"}} {
		if err := c.addNamespace(ctx, namespace); err != nil {
			return nil, err
		}
		took, err := c.startPods(ctx, namespace, names...)
		if err != nil {
			return nil, err
		}
		if len(took) < len(names) {
			return nil, fmt.Errorf("only %d of %d pods in namespace %s have started", len(took), len(names), namespace)
		}
	}
	server, err := c.place(ctx, guardedNamespace, "server")
	if err != nil {
		return nil, err
	}
	var pairs []latencyPair
	for _, name := range []string{"near", "far"} {
		client, err := c.place(ctx, callersNamespace, name)
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, latencyPair{name, client, server})
	}
	return pairs, nil
}

// policyLatency measures all pairs, one after the other.
func (c *cluster) policyLatency(ctx context.Context, pairs []latencyPair, suffix string) ([]Result, error) {
	var deny, allow []float64
	for _, p := range pairs {
		s, err := startNumbered(p.client, p.server, netip.AddrPortFrom(p.server.address, latencyPort))
		if err != nil {
			return nil, err
		}
		denied, allowed, err := c.comeAndGo(ctx, s)
		s.close()
		if err != nil {
			return nil, fmt.Errorf("%s client: %w", p.way, err)
		}
		deny, allow = append(deny, denied...), append(allow, allowed...)
	}
	return []Result{
		absolute("policy-deny-p50"+suffix, "ms", percentile(deny, 0.5)),
		absolute("policy-deny-p99"+suffix, "ms", percentile(deny, 0.99)).atMost(latencyBar, latencyAim),
		absolute("policy-allow-p50"+suffix, "ms", percentile(allow, 0.5)),
		absolute("policy-allow-p99"+suffix, "ms", percentile(allow, 0.99)).atMost(latencyBar, latencyAim),
	}, nil
}

// comeAndGo has a policy come that closes the server, and go, and returns the milliseconds that
// each took to be in effect. The first round does not count: the stream's connection is new then.
func (c *cluster) comeAndGo(ctx context.Context, s *numbered) (deny, allow []float64, err error) {
	for range latencyRounds + 1 {
		if err := s.flows(ctx); err != nil {
			return nil, nil, err
		}
		closed := &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: guardedNamespace, Name: "closed"},
			Spec: networkingv1.NetworkPolicySpec{
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			},
		}
		start := time.Now()
		if err := c.api.Create(ctx, closed); err != nil {
			return nil, nil, err
		}
		at, err := s.denied(ctx)
		if err != nil {
			return nil, nil, err
		}
		deny = append(deny, milliseconds(at.Sub(start)))
		start = time.Now()
		if err := c.api.Delete(ctx, closed); err != nil {
			return nil, nil, err
		}
		if at, err = s.allowed(ctx, start); err != nil {
			return nil, nil, err
		}
		allow = append(allow, milliseconds(at.Sub(start)))
	}
	return deny[1:], allow[1:], nil
}
