// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
)

const (
	// borderRounds are many and short: what else the machine does changes more slowly.
	borderRounds = 41
	borderTime   = 300 * time.Millisecond

	podRounds  = 21
	podsAtOnce = 4
	podsOfTurn = 24

	borderBar, borderAim = 0.97, 1
)

// side is a cluster of one release: two nodes that enforce policies and balance Services.
type side struct {
	lab            *lab.Lab
	client, server *lab.Pod
	plugged        int
}

// borderWay is where the server is, and the address at which the client finds it.
type borderWay struct {
	suffix  string
	server  func(*side) *lab.Host
	address func(*side) netip.AddrPort
}

var borderWays = []borderWay{
	{"", (*side).pod, func(s *side) netip.AddrPort {
		return netip.AddrPortFrom(s.server.Address(lab.IPv4), serverPort)
	}},
	{"-service", (*side).pod, func(*side) netip.AddrPort { return serviceAddress }},
	{"-outside", (*side).outside, func(s *side) netip.AddrPort {
		return netip.AddrPortFrom(s.lab.Outside.Address(lab.IPv4), serverPort)
	}},
}

func (s *side) pod() *lab.Host     { return s.server.Host }
func (s *side) outside() *lab.Host { return s.lab.Outside }

// measureBorders compares this release with the one that TestUpgrade begins with, in two clusters
// that are there at the same time: the traffic of a pod to one on another node, there through a
// Service, and to the outside; and how fast pods come and go.
func measureBorders(ctx context.Context) ([]Result, error) {
	var sides [2]*side
	for i, binaries := range []func() (string, func(), error){
		func() (string, func(), error) { return "", func() {}, nil }, olderBinaries,
	} {
		dir, remove, err := binaries()
		if err != nil {
			return nil, err
		}
		defer remove()
		s, err := newSide(ctx, dir)
		defer s.lab.Close()
		if err != nil {
			return nil, err
		}
		sides[i] = s
	}
	results, err := borderTraffic(ctx, sides)
	if err != nil {
		return nil, err
	}
	pods, err := borderPods(ctx, sides)
	return append(results, pods...), err
}

// newSide starts a cluster with the programs in a directory; empty: with this release's.
func newSide(ctx context.Context, binaries string) (*side, error) {
	l, err := lab.Start(ctx, lab.Options{
		Nodes: 2, Policies: true, PodCIDRs: wide, Binaries: binaries,
		Configure: func(c *config.Config) { c.Services.Mode = config.NativeServices },
	})
	s := &side{lab: l}
	if err != nil {
		return s, err
	}
	if s.client, err = l.Nodes[0].AddPod(ctx, "client"); err != nil {
		return s, err
	}
	if s.server, err = l.Nodes[1].AddPod(ctx, "server"); err != nil {
		return s, err
	}
	l.API.AddNamespace(serviceNamespace, nil)
	balanced := service{name: "balanced", address: serviceAddress}
	l.API.SetService(balanced.object())
	l.API.SetEndpointSlice(balanced.slice(l.Nodes[1].Name, s.server.Address(lab.IPv4)))
	if err := s.publish(ctx); err != nil {
		return s, err
	}
	return s, (&contender{lab: l, client: s.client.Host, server: s.server.Host}).await(ctx, serviceAddress)
}

// publish has a policy let the client in to the server, and none be for the client and these pods.
func (s *side) publish(ctx context.Context, pods ...*lab.Pod) error {
	ref := intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: s.server.Namespace, Name: "client"}
	rule := intent.Rule{
		ID: "client", Policy: ref, Number: 1, Direction: intent.Ingress, Tier: intent.NetworkPolicyTier,
		Action: intent.Allow,
		Groups: []string{"clients"},
	}
	server := lab.PolicyView{
		Rules: []intent.Rule{rule},
		Subjects: []intent.Subject{{
			Key: intent.PodSubject(s.server.UID), Rules: []string{rule.ID}, IngressIsolation: []intent.PolicyRef{ref},
		}},
		Peers: []intent.Peer{{
			Space: intent.DefaultRouterName, Address: s.client.Address(lab.IPv4), Groups: rule.Groups,
		}},
	}
	var client lab.PolicyView
	for _, p := range append([]*lab.Pod{s.client}, pods...) {
		client.Subjects = append(client.Subjects, intent.Subject{Key: intent.PodSubject(p.UID)})
	}
	return s.lab.Policies.Publish(ctx, map[string]lab.PolicyView{
		s.lab.Nodes[0].Name: client, s.lab.Nodes[1].Name: server,
	})
}

// borderTraffic takes the traffic, both sides by turns, each first in every other round.
func borderTraffic(ctx context.Context, sides [2]*side) ([]Result, error) {
	var results []Result
	for _, tr := range traffics[1:] { // what counts is each packet, not how many bytes
		for _, way := range borderWays {
			var rates, costs [2][]float64
			for round := range borderRounds {
				for turn := range sides {
					i := (round + turn) % len(sides)
					rate, cost, err := sides[i].run(ctx, tr, way)
					if err != nil {
						return nil, fmt.Errorf("%s%s: %w", tr.name, way.suffix, err)
					}
					rates[i], costs[i] = append(rates[i], rate), append(costs[i], cost)
				}
			}
			name := "borders-" + tr.name + way.suffix
			results = append(results, paired(name, tr.unit, rates[0], rates[1]).atLeast(borderBar, borderAim),
				paired(name+"-cpu", "µs", costs[0], costs[1]))
		}
	}
	return results, nil
}

// run is the rate of one load, and the microseconds of processor time that each
// transaction costs Open vSwitch.
func (s *side) run(ctx context.Context, tr traffic, way borderWay) (rate, cost float64, err error) {
	// As for contenders.
	for _, n := range s.lab.Nodes {
		if _, err := n.OVS.Appctl(ctx, "dpctl/flush-conntrack"); err != nil {
			return 0, 0, err
		}
	}
	start := time.Now()
	before, err := vswitchdTime(s.lab.Nodes)
	if err != nil {
		return 0, 0, err
	}
	if rate, err = tr.run(ctx, s.client.Host, way.server(s), way.address(s), borderTime); err != nil {
		return 0, 0, err
	}
	after, err := vswitchdTime(s.lab.Nodes)
	return rate, 1000 * milliseconds(after-before) / (rate * time.Since(start).Seconds()), err
}

// borderPods has pods come and go on one node of each side, several at once, each with a connection
// that conntrack still knows when its pod goes; once with no other connections, and once with
// 10,000, which each search for the pod's goes through.
func borderPods(ctx context.Context, sides [2]*side) ([]Result, error) {
	var results []Result
	for _, table := range []struct {
		name   string
		others int
	}{{"borders-pods", 0}, {"borders-pods-10k", 10_000}} {
		var rates [2][]float64
		for round := range podRounds {
			for turn := range sides {
				i := (round + turn) % len(sides)
				rate, err := sides[i].churn(ctx, table.others)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", table.name, err)
				}
				rates[i] = append(rates[i], rate)
			}
		}
		results = append(results, paired(table.name, "1/s", rates[0], rates[1]).atLeast(borderBar, borderAim))
	}
	return results, nil
}

// churn is how many pods per second come, send one packet and go, while conntrack has
// so many other connections.
func (s *side) churn(ctx context.Context, others int) (float64, error) {
	n := s.lab.Nodes[0]
	if _, err := n.OVS.Appctl(ctx, "dpctl/flush-conntrack"); err != nil {
		return 0, err
	}
	if err := connect(ctx, s.client, s.lab.Outside.Address(lab.IPv4), others); err != nil {
		return 0, err
	}
	pods := make([]*lab.Pod, podsOfTurn)
	work := make(chan *lab.Pod, podsOfTurn)
	for i := range pods {
		p, err := n.NewPod(fmt.Sprintf("comes-%d", s.plugged))
		if err != nil {
			return 0, err
		}
		defer p.End()
		s.plugged++
		pods[i] = p
		work <- p
	}
	close(work)
	if err := s.publish(ctx, pods...); err != nil {
		return 0, err
	}
	var (
		wg   sync.WaitGroup
		errs [podsAtOnce]error
	)
	start := time.Now()
	for i := range errs {
		wg.Go(func() {
			for p := range work {
				if errs[i] = s.comeAndGo(ctx, p); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return podsOfTurn / time.Since(start).Seconds(), errors.Join(errs[:]...)
}

func (s *side) comeAndGo(ctx context.Context, p *lab.Pod) error {
	if err := p.Add(ctx); err != nil {
		return err
	}
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.lab.Outside.Address(lab.IPv4), streamPort))
	if err := p.Do(func() error {
		c, err := net.DialUDP("udp", nil, to)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte{1})
		return err
	}); err != nil {
		return err
	}
	return p.Del(ctx)
}
