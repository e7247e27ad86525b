// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// Rounds of the traffic through Services, in which all take turns, and the time of each turn.
const (
	balancedRounds = 9
	balancedTime   = time.Second
)

// serviceAddress is the Service's, for each load balancer.
var serviceAddress = netip.MustParseAddrPort("10.96.0.10:80")

// contender is a client and a server, and what is between them.
type contender struct {
	name           string
	lab            *lab.Lab
	client, server *lab.Host
	pods           []*lab.Pod // of which client and server are, if they are pods
	kernelOnly     bool       // Open vSwitch has no part in it
}

// starter starts the contender of a name.
type starter struct {
	name  string
	start func(context.Context) (*contender, error)
}

// addPods makes a client and a server on a node.
func (c *contender) addPods(ctx context.Context, n *lab.Node) error {
	for _, name := range []string{"client", "server"} {
		p, err := n.AddPod(ctx, c.name+"-"+name)
		if err != nil {
			return err
		}
		c.pods = append(c.pods, p)
	}
	c.client, c.server = c.pods[0].Host, c.pods[1].Host
	return nil
}

// direct is the rate of one load to the server's own address.
func (c *contender) direct(ctx context.Context, tr traffic, d time.Duration) (float64, error) {
	if err := c.flush(ctx); err != nil {
		return 0, err
	}
	return tr.run(ctx, c.client, c.server, netip.AddrPortFrom(c.server.Address(lab.IPv4), serverPort), d)
}

// closeAll ends the labs of contenders, of which some may share one.
func closeAll(all []*contender) {
	closed := map[*lab.Lab]bool{}
	for _, c := range all {
		if c.lab != nil && !closed[c.lab] {
			closed[c.lab] = true
			c.lab.Close()
		}
	}
}

// measureServiceTraffic compares load balancers: Coelan's own, OVN's, and kube-proxy beside Coelan.
// Each has a node with an Open vSwitch of its own, where all datapaths are of the same kind, and
// two ports of the same kind.
func measureServiceTraffic(ctx context.Context) ([]Result, error) {
	var all []*contender
	defer func() { closeAll(all) }()
	for _, c := range append([]starter{
		{"native", func(ctx context.Context) (*contender, error) {
			return coelanContender(ctx, config.NativeServices, "")
		}},
		{"ovn", ovnContender},
		{"iptables", func(ctx context.Context) (*contender, error) {
			return coelanContender(ctx, config.KubeProxy, "iptables")
		}},
		{"nftables", func(ctx context.Context) (*contender, error) {
			return coelanContender(ctx, config.KubeProxy, "nftables")
		}},
	}, serviceFloors()...) {
		got, err := c.start(ctx)
		if got != nil {
			got.name = c.name
			all = append(all, got)
		}
		if err == nil {
			err = got.await(ctx, serviceAddress)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	var results []Result
	for _, tr := range append(traffics[:len(traffics):len(traffics)], connectMany) {
		rates, err := takeTurns(ctx, balancedRounds, all, tr, always(serviceAddress))
		if err != nil {
			return nil, err
		}
		for i, c := range all[1:] {
			name := "service-" + tr.name + "-" + c.name
			switch {
			case tr.name != "crr" || c.name == byFloor:
				results = append(results, tr.turns(name, rates[0], rates[i+1]))
			case c.name == "ovn":
				results = append(results, tr.turns(name, rates[0], rates[i+1]).atLeast(1.2, 1.5))
			default:
				results = append(results, tr.turns(name, rates[0], rates[i+1]).atLeast(1, 1.2))
			}
			results = append(results, tr.costs(name, best(rates[0]), best(rates[i+1]))...)
		}
	}
	return results, nil
}

// always is the same address for each contender.
func always(at netip.AddrPort) func(*contender) netip.AddrPort {
	return func(*contender) netip.AddrPort { return at }
}

// takeTurns has the contenders run by turns, and returns the rates of each. The address at which
// the client finds the server may be another one for each.
func takeTurns(ctx context.Context, rounds int, all []*contender, tr traffic,
	at func(*contender) netip.AddrPort,
) ([][]float64, error) {
	rates := make([][]float64, len(all))
	for range rounds {
		for i, c := range all {
			rate, err := c.run(ctx, tr, at(c))
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", c.name, tr.name, err)
			}
			rates[i] = append(rates[i], rate)
		}
	}
	return rates, nil
}

// run is the rate of one load to the address that stands for the server.
func (c *contender) run(ctx context.Context, tr traffic, address netip.AddrPort) (float64, error) {
	if err := c.flush(ctx); err != nil {
		return 0, err
	}
	return tr.run(ctx, c.client, c.server, address, balancedTime)
}

// flush ends what Open vSwitch knows of connections. Clients use their ports again soon. Open
// vSwitch before 3.1.3 does not let go of what it has translated for a connection when that ends,
// and then gives the next one from the same port another port (docs/develop/datapath.md).
func (c *contender) flush(ctx context.Context) error {
	if c.kernelOnly || c.lab == nil { // without a datapath, Open vSwitch would refuse
		return nil
	}
	for _, n := range c.lab.Nodes {
		if _, err := n.OVS.Appctl(ctx, "dpctl/flush-conntrack"); err != nil {
			return err
		}
	}
	return nil
}

// connectMany is the load of many clients at once: Open vSwitch, and not their sleeping and waking,
// is what they wait for.
var connectMany = traffic{"crr-many", "1/s", probe.Answer, connectManyTimes, 1, perTransaction, 1, 320}

const manyClients = 16

func connectManyTimes(ctx context.Context, from probe.Netns, dst netip.AddrPort, e probe.Extent) (float64, error) {
	e.Units /= manyClients
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		sum  float64
		last error
	)
	for range manyClients {
		wg.Go(func() {
			rate, err := probe.ConnectRequestResponse(ctx, from, dst, e)
			mu.Lock()
			defer mu.Unlock()
			if sum += rate; err != nil {
				last = err
			}
		})
	}
	wg.Wait()
	return sum, last
}

// coelanContender is Coelan in one of its modes, with kube-proxy if a mode of it is named.
func coelanContender(ctx context.Context, mode config.ServiceMode, kubeProxy string) (*contender, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1, Configure: func(c *config.Config) { c.Services.Mode = mode }})
	c := &contender{name: string(mode), lab: l}
	if err != nil {
		return c, err
	}
	n := l.Nodes[0]
	if err := c.addPods(ctx, n); err != nil {
		return c, err
	}
	c.balance()
	if kubeProxy != "" {
		err = startKubeProxy(n, kubeProxy)
	}
	return c, err
}

// balance has a Service stand for the server, which is on the last node.
func (c *contender) balance() {
	c.lab.API.AddNamespace(serviceNamespace, nil)
	s := service{name: "balanced", address: serviceAddress}
	c.lab.API.SetService(s.object())
	node := c.lab.Nodes[len(c.lab.Nodes)-1].Name
	c.lab.API.SetEndpointSlice(s.slice(node, c.server.Address(lab.IPv4)))
}

// ovnContender is a node of OVN's alone.
func ovnContender(ctx context.Context) (*contender, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1, NoAgents: true, OVN: true})
	c := &contender{lab: l}
	if err == nil {
		c.client, c.server, err = ovn{l.OVN, l.Nodes[0]}.balance(ctx, l.Nodes[0])
	}
	return c, err
}

// balanceTimeout bounds the wait for the first answer, after which all flows or rules are there.
const balanceTimeout = 30 * time.Second

// await returns when the server answers at an address that stands for it.
func (c *contender) await(ctx context.Context, address netip.AddrPort) error {
	server, err := probe.Serve(c.server, listening(c.server, address), probe.Answer)
	if err != nil {
		return err
	}
	defer server.Close()
	ctx, cancel := context.WithTimeout(ctx, balanceTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := probe.Dial(ctx, c.client, address)
		if err == nil {
			return conn.Close()
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s does not answer: %w", address, err)
		}
		<-tick.C
	}
}
