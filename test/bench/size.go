// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/kernellimits"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

const (
	restPods   = 450
	restTime   = 5 * time.Minute
	settleTime = 30 * time.Second

	liveConnections = 100_000

	meshPods     = 200
	meshServices = 1000
)

// measureSize measures what a node costs at rest, and how what it does grows with what it has.
func measureSize(ctx context.Context) ([]Result, error) {
	return takeAll(ctx, mesh, manyLive, atRest)
}

// atRest is the processor time of a node that has 10,000 Services and 450 pods while nothing
// happens, beside one that has none.
func atRest(ctx context.Context) ([]Result, error) {
	c, err := startCrowd(ctx, mostServices)
	defer c.Close()
	if err != nil {
		return nil, err
	}
	if err := addPods(ctx, c.node, 0, restPods); err != nil {
		return nil, err
	}
	empty, err := startCrowd(ctx, 0)
	defer empty.Close()
	if err != nil {
		return nil, err
	}
	sides := []*lab.Node{c.node, empty.node}
	if !retry.Sleep(ctx, settleTime) {
		return nil, ctx.Err()
	}
	before, err := shares(sides)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if !retry.Sleep(ctx, restTime) {
		return nil, ctx.Err()
	}
	took := time.Since(start)
	after, err := shares(sides)
	if err != nil {
		return nil, err
	}
	share := func(i int, of func(processes) time.Duration) float64 {
		return 100 * float64(of(after[i])-of(before[i])) / float64(took)
	}
	vswitchd := func(p processes) time.Duration { return p.vswitchd }
	agent := func(p processes) time.Duration { return p.agent }
	return []Result{
		beside("rest-vswitchd", "% of a core", share(0, vswitchd), share(1, vswitchd)),
		beside("rest-agent", "% of a core", share(0, agent), share(1, agent)),
	}, nil
}

// startCrowd starts a node in a cluster of so many Services.
func startCrowd(ctx context.Context, services int) (*crowd, error) {
	l, err := lab.Start(ctx, lab.Options{
		Nodes: 1, NoAgents: true, PodCIDRs: wide,
		Configure: func(c *config.Config) { c.Services.Mode = config.NativeServices },
	})
	c := &crowd{Lab: l, services: services}
	if err != nil {
		return c, err
	}
	c.node = l.Nodes[0]
	c.fill()
	_, err = c.start(ctx)
	return c, err
}

// processes are the processor times of a node's so far.
type processes struct{ vswitchd, agent time.Duration }

func shares(nodes []*lab.Node) (list []processes, err error) {
	for _, n := range nodes {
		var p processes
		if p.vswitchd, err = vswitchdTime([]*lab.Node{n}); err != nil {
			return nil, err
		}
		if p.agent, err = processTime(n.AgentPID()); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// manyLive is the rate of one connection on a node that has 100,000 others, beside one that has
// none, and the memory of ovs-vswitchd for each of them. A policy admits all of them.
func manyLive(ctx context.Context) ([]Result, error) {
	var sides [2]*crowdedNode
	for i := range sides {
		l, err := lab.Start(ctx, lab.Options{Nodes: 1, Policies: true})
		defer l.Close()
		if err != nil {
			return nil, err
		}
		if sides[i], err = admitAll(ctx, l); err != nil {
			return nil, err
		}
	}
	full, empty := sides[0], sides[1]
	pid, err := vswitchdPID(full.node)
	if err != nil {
		return nil, err
	}
	before, err := residentMiB(pid)
	if err != nil {
		return nil, err
	}
	if err := connect(ctx, full.client, full.server.Address(lab.IPv4), liveConnections); err != nil {
		return nil, err
	}
	var ours, reference []float64
	for range balancedRounds {
		for _, side := range []struct {
			c     *crowdedNode
			rates *[]float64
		}{{full, &ours}, {empty, &reference}} {
			rate, err := traffics[1].run(ctx, side.c.client.Host, side.c.server.Host,
				netip.AddrPortFrom(side.c.server.Address(lab.IPv4), serverPort), balancedTime)
			if err != nil {
				return nil, err
			}
			*side.rates = append(*side.rates, rate)
		}
	}
	// These were there in all rounds: the userspace datapath remembers them for 60 s.
	n, err := full.connections(ctx)
	if err != nil {
		return nil, err
	}
	memory, err := residentMiB(pid)
	return []Result{
		absolute("live-connections", "connections", float64(n)),
		paired("live-connections-rr", "1/s", ours, reference).atLeast(0.97, 1),
		absolute("live-connections-memory", "bytes each", (memory-before)*(1<<20)/float64(n)),
	}, errors.Join(err, enough(n))
}

func enough(connections int) error {
	if connections < liveConnections*9/10 {
		return fmt.Errorf("only %d of %d connections are live after the rounds", connections, liveConnections)
	}
	return nil
}

// admitAll starts two pods on the node of a lab, and has a policy admit UDP and TCP of all pods to
// the server.
func admitAll(ctx context.Context, l *lab.Lab) (c *crowdedNode, err error) {
	c = &crowdedNode{node: l.Nodes[0], policies: l.Policies}
	if c.client, err = c.node.AddPod(ctx, "client"); err != nil {
		return nil, err
	}
	if c.server, err = c.node.AddPod(ctx, "server"); err != nil {
		return nil, err
	}
	view := lab.PolicyView{Subjects: []intent.Subject{
		{Key: intent.PodSubject(c.client.UID)}, {Key: intent.PodSubject(c.server.UID)},
	}}
	admit(&view, c.server)
	ports := &view.Rules[0].Ports
	*ports = append(*ports, intent.PortRange{Protocol: 17, First: firstDstPort, Last: firstDstPort + 9})
	return c, c.policies.Publish(ctx, map[string]lab.PolicyView{c.node.Name: view})
}

// mesh counts what the datapath has while each of 200 pods connects to each of 1,000 Services.
func mesh(ctx context.Context) ([]Result, error) {
	// As the agent does it on a node that is no network namespace.
	if _, err := kernellimits.RaiseNeighbors("/proc/sys", "ipv4", "ipv6"); err != nil {
		return nil, err
	}
	l, err := lab.Start(ctx, lab.Options{
		Nodes: 1, PodCIDRs: wide, Configure: func(c *config.Config) { c.Services.Mode = config.NativeServices },
	})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	n := l.Nodes[0]
	var pods []*lab.Pod
	for i := range meshPods {
		p, err := n.AddPod(ctx, fmt.Sprintf("mesh-%d", i))
		if err != nil {
			return nil, err
		}
		server, err := probe.Serve(p, netip.AddrPortFrom(p.Address(lab.IPv4), serverPort), probe.Answer)
		if err != nil {
			return nil, err
		}
		defer server.Close()
		pods = append(pods, p)
	}
	l.API.AddNamespace(serviceNamespace, nil)
	var all []netip.AddrPort
	for i := range meshServices {
		s := service{"mesh-" + strconv.Itoa(i), netip.AddrPortFrom(nth(netip.MustParseAddr("10.96.1.0"), i), 80)}
		l.API.SetService(s.object())
		l.API.SetEndpointSlice(s.slice(n.Name, pods[i%len(pods)].Address(lab.IPv4),
			pods[(i+1)%len(pods)].Address(lab.IPv4)))
		all = append(all, s.address)
	}
	for _, at := range all {
		if err := awaitAnswer(ctx, pods[0], at); err != nil {
			return nil, err
		}
	}
	var most datapathSize
	for _, p := range pods {
		for _, at := range all {
			if _, err := probe.ConnectRequestResponse(ctx, p, at, probe.Extent{Units: 1}); err != nil {
				return nil, fmt.Errorf("%s to %s: %w", p.Name, at, err)
			}
		}
		now, err := sizeOfDatapath(ctx, n)
		if err != nil {
			return nil, err
		}
		most = datapathSize{max(most.flows, now.flows), max(most.masks, now.masks)}
	}
	return []Result{
		absolute("mesh-megaflows", "flows", float64(most.flows)).atMost(50_000, 25_000),
		absolute("mesh-masks", "masks", float64(most.masks)).atMost(2000, 200),
	}, nil
}

// awaitAnswer returns when a pod gets an answer from an address.
func awaitAnswer(ctx context.Context, from *lab.Pod, at netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, balanceTimeout)
	defer cancel()
	for {
		_, err := probe.ConnectRequestResponse(ctx, from, at, probe.Extent{Units: 1})
		if err == nil {
			return nil
		}
		if !retry.Sleep(ctx, 10*time.Millisecond) {
			return fmt.Errorf("no answer from %s: %w", at, err)
		}
	}
}

// datapathSize is how many flows a datapath has, and how many masks these have.
type datapathSize struct{ flows, masks int }

func sizeOfDatapath(ctx context.Context, n *lab.Node) (datapathSize, error) {
	text, err := n.OVS.Appctl(ctx, "dpctl/dump-flows")
	if err != nil {
		return datapathSize{}, err
	}
	return parseSize(text), nil
}

// datapathValue is a value that a flow matches, with the mask behind it.
var datapathValue = regexp.MustCompile(`([=(])[^(),/=]+((?:/[^(),]+)?[),])`)

// parseSize counts the flows of dpctl/dump-flows, and how many differ in more than the values that
// they match. Which ports they come from is in each.
func parseSize(text string) datapathSize {
	masks := map[string]bool{}
	flows := 0
	for line := range strings.Lines(text) {
		match, _, found := strings.Cut(line, ", packets:")
		if !found {
			continue
		}
		flows++
		masks[datapathValue.ReplaceAllString(match, "$1$2")] = true
	}
	return datapathSize{flows, len(masks)}
}
