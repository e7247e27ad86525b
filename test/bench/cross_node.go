// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/test/lab"
)

// What pods of another node are compared with: the kernel's VXLAN device and routes, and these with
// kube-proxy and masquerading, as flannel's VXLAN backend has them; OVN; and the floor.
const (
	kernelVXLAN = "vxlan"
	flannelLike = "flannel"
	byOVN       = "ovn"
)

// crossNodeWay is where the server is, and at which address the client finds it.
type crossNodeWay struct {
	name       string
	references []string
	outside    bool
	at         func(*contender) netip.AddrPort
}

// ownAddress is the server's.
func ownAddress(c *contender) netip.AddrPort {
	return netip.AddrPortFrom(c.server.Address(lab.IPv4), directPort)
}

var crossNodeWays = []crossNodeWay{
	{"pod", []string{kernelVXLAN, flannelLike, byOVN, byFloor}, false, ownAddress},
	{"service", []string{flannelLike, byOVN}, false, func(*contender) netip.AddrPort { return serviceAddress }},
	{"outside", []string{flannelLike}, true, ownAddress},
}

const crossNodeBar, crossNodeAim = 0.9, 0.95

// measureCrossNode compares what a pod can exchange with a pod of another node, with a Service that
// has its endpoint there, and with a host outside of the cluster. All tunnels are the kernel's.
func measureCrossNode(ctx context.Context) ([]Result, error) {
	all := map[string]*contender{}
	defer func() {
		for _, c := range all {
			closeAll([]*contender{c})
		}
	}()
	for _, c := range []starter{
		{"coelan", crossNodeCoelan},
		{kernelVXLAN, func(ctx context.Context) (*contender, error) { return crossNodeKernel(ctx, "") }},
		{flannelLike, func(ctx context.Context) (*contender, error) { return crossNodeKernel(ctx, "nftables") }},
		{byOVN, crossNodeOVN},
		{byFloor, crossNodeFloor},
	} {
		got, err := c.start(ctx)
		all[c.name] = got
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		got.name = c.name
	}
	var results []Result
	for _, way := range crossNodeWays {
		turns := []*contender{way.of(all["coelan"])}
		for _, name := range way.references {
			turns = append(turns, way.of(all[name]))
		}
		for _, c := range turns {
			if err := c.await(ctx, way.at(c)); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", way.name, c.name, err)
			}
		}
		for _, tr := range traffics {
			rates, err := takeTurns(ctx, balancedRounds, turns, tr, way.at)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", way.name, err)
			}
			var got []Result
			for i, c := range turns[1:] {
				name := fmt.Sprintf("cross-node-%s-%s-%s", way.name, tr.name, c.name)
				r := tr.turns(name, rates[0], rates[i+1])
				if c.name == kernelVXLAN && tr.name == "rr" {
					r = r.atLeast(crossNodeBar, crossNodeAim)
				}
				got = append(got, r)
				got = append(got, tr.costs(name, r.Ours, *r.Reference)...)
			}
			// The group has very many turns: what it has so far is worth a look.
			printTable(os.Stderr, got)
			results = append(results, got...)
		}
	}
	return results, nil
}

// of is the contender with the way's server.
func (w crossNodeWay) of(c *contender) *contender {
	if !w.outside {
		return c
	}
	copied := *c
	copied.server = c.lab.Outside
	return &copied
}

// crossNodeCoelan is a cluster of Coelan's: Services in the bridge, policies off.
func crossNodeCoelan(ctx context.Context) (*contender, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 2, Configure: func(c *config.Config) {
		c.Services.Mode = config.NativeServices
	}})
	c := &contender{lab: l}
	if err != nil {
		return c, err
	}
	for i, h := range []**lab.Host{&c.client, &c.server} {
		p, err := l.Nodes[i].AddPod(ctx, fmt.Sprintf("pod-%d", i))
		if err != nil {
			return c, err
		}
		*h = p.Host
	}
	c.balance()
	return c, nil
}

// crossNodeKernel are nodes without a switch for pods; with a mode of kube-proxy's, also that and
// masquerading.
func crossNodeKernel(ctx context.Context, kubeProxy string) (*contender, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 2, NoAgents: true, Families: lab.IPv4})
	c := &contender{lab: l, kernelOnly: true}
	if err != nil {
		return c, err
	}
	if err := l.ConnectByKernel(ctx); err != nil {
		return c, err
	}
	for i, h := range []**lab.Host{&c.client, &c.server} {
		address := nth(l.Nodes[i].Gateway(lab.IPv4), 1)
		if *h, err = l.Nodes[i].AddKernelPod(ctx, fmt.Sprint(i), address); err != nil {
			return c, err
		}
	}
	if kubeProxy == "" {
		return c, nil
	}
	c.balance()
	for _, n := range l.Nodes {
		if err := n.MasqueradeByKernel(ctx); err != nil {
			return c, err
		}
		if err := n.WriteKubeconfig(); err != nil {
			return c, err
		}
		if err := startKubeProxy(n, kubeProxy); err != nil {
			return c, err
		}
	}
	return c, nil
}

// geneveMTU is what fits into OVN's tunnels.
const geneveMTU = "1400"

// crossNodeOVN are two nodes of OVN's alone, with one logical switch.
func crossNodeOVN(ctx context.Context) (*contender, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 2, NoAgents: true, OVN: true})
	c := &contender{lab: l}
	if err != nil {
		return c, err
	}
	if c.client, c.server, err = (ovn{l.OVN, l.Nodes[0]}).balance(ctx, l.Nodes[1]); err != nil {
		return c, err
	}
	for _, h := range []*lab.Host{c.client, c.server} {
		if _, err := h.Run(ctx, "ip", "link", "set", "eth0", "mtu", geneveMTU); err != nil {
			return c, err
		}
	}
	return c, nil
}
