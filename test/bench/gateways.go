// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/test/lab"
)

// The external Network, and the bridge of each node that leads to it.
const (
	externalNetwork = "office"
	externalBridge  = "br-ext"
	externalVLAN    = 42
	externalCIDR    = "172.20.0.0/16"
	namePort        = 5002
)

// The host on the external Network, and the first floating IP.
var (
	externalHost  = netip.MustParsePrefix("172.20.255.1/16")
	firstFloating = netip.MustParseAddr("172.20.128.1")
)

// external is a cluster with an external Network and a host on it. No policy selects the pods.
type external struct {
	*lab.Lab
	host *lab.Host
	pods []*lab.Pod
}

// measureGatewayTraffic measures the traffic that floating IPs translate, and what leaves by the
// gateway of a Router.
func measureGatewayTraffic(ctx context.Context) ([]Result, error) {
	return takeAll(ctx, floatingTraffic, gatewayTraffic)
}

// measureGateways measures how fast floating IPs move, what very many of them cost a node, and how
// fast another node takes the address of a Router's gateway over.
func measureGateways(ctx context.Context) ([]Result, error) {
	return takeAll(ctx, floatingMove, floatingScale, gatewayFailover)
}

func takeAll(ctx context.Context, measures ...func(context.Context) ([]Result, error)) ([]Result, error) {
	var results []Result
	for _, take := range measures {
		more, err := take(ctx)
		results = append(results, more...)
		if err != nil {
			return results, err
		}
	}
	return results, nil
}

// startExternal starts a cluster, with as many pods on each of its nodes. The host is at the first
// node.
func startExternal(ctx context.Context, nodes, pods int) (*external, error) {
	return startExternalBy(ctx, nodes, pods, func(int) string { return externalBridge })
}

// startExternalBy does so with bridges of these names.
func startExternalBy(ctx context.Context, nodes, pods int, bridge func(node int) string) (*external, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: nodes, Policies: true, Configure: func(c *config.Config) {
		c.Services.Mode = config.NativeServices
		c.BridgeMappings = map[string]string{"dc": externalBridge}
	}})
	e := &external{Lab: l}
	if err != nil {
		return e, err
	}
	vlan := int32(externalVLAN)
	l.API.AddNetwork(externalNetwork, v1alpha1.NetworkSpec{
		Type: v1alpha1.VLAN, VLAN: &vlan, PhysicalNetwork: "dc", External: true,
		Subnets: []v1alpha1.Subnet{{CIDR: externalCIDR}},
	})
	views := map[string]lab.PolicyView{}
	for i, n := range l.Nodes {
		if err := n.AddPhysicalBridge(ctx, bridge(i)); err != nil {
			return e, err
		}
		var view lab.PolicyView
		for range pods {
			p, err := n.AddPod(ctx, fmt.Sprintf("pod-%d", len(e.pods)))
			if err != nil {
				return e, err
			}
			e.pods = append(e.pods, p)
			view.Subjects = append(view.Subjects, intent.Subject{Key: intent.PodSubject(p.UID)})
		}
		views[n.Name] = view
	}
	if err := l.Policies.Publish(ctx, views); err != nil {
		return e, err
	}
	e.host, err = l.Nodes[0].AddVLANHost(ctx, bridge(0), "host", externalVLAN, externalHost)
	return e, err
}

// bind has a floating IP stand for a pod.
func (e *external) bind(address netip.Addr, p *lab.Pod) {
	e.API.AddFloatingIP(p.Namespace, "ip-"+address.String(), externalNetwork, address.String(), p.Name+".eth0")
}

// serveNames has the pods answer datagrams with their names.
func (e *external) serveNames() (stop func(), err error) {
	var conns []net.PacketConn
	stop = func() {
		for _, c := range conns {
			c.Close()
		}
	}
	for _, p := range e.pods {
		var conn net.PacketConn
		if err := p.Do(func() (err error) {
			conn, err = net.ListenPacket("udp4", fmt.Sprintf(":%d", namePort))
			return err
		}); err != nil {
			return stop, err
		}
		conns = append(conns, conn)
		go func() {
			question := make([]byte, 1)
			for {
				_, from, err := conn.ReadFrom(question)
				if err != nil {
					return
				}
				_, _ = conn.WriteTo([]byte(p.Name), from) // the next question has another answer
			}
		}()
	}
	return stop, nil
}

// firstAnswer makes a change, and is how many milliseconds it took until the pod answered the host
// at a floating IP, which sent a datagram there at once and then each interval.
func (e *external) firstAnswer(ctx context.Context, address netip.Addr, p *lab.Pod, interval time.Duration,
	change func(),
) (float64, error) {
	var conn net.PacketConn
	if err := e.host.Do(func() (err error) { conn, err = net.ListenPacket("udp4", ":0"); return err }); err != nil {
		return 0, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, balanceTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	start := time.Now()
	change()
	go func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, namePort))
		for {
			// Nothing may answer ARP yet.
			if _, err := conn.WriteTo([]byte{1}, to); errors.Is(err, net.ErrClosed) {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	name := make([]byte, 64)
	for {
		n, _, err := conn.ReadFrom(name)
		switch {
		case err != nil:
			return 0, fmt.Errorf("pod %s does not answer at floating IP %s within %s: %w", p.Name, address, balanceTimeout, err)
		case string(name[:n]) == p.Name:
			return milliseconds(time.Since(start)), nil
		}
	}
}

// floatingTraffic compares a floating IP with the translation of the kernel by nftables, each from
// a host outside: in a namespace in place of the node, and by the kernel of a node, between the
// external Network's bridge and the pod; and with OVN's. The ceiling is a plain switch, which does
// not even translate, in place of ours: no pipeline on this datapath is faster.
func floatingTraffic(ctx context.Context) ([]Result, error) {
	ours, err := startExternal(ctx, 1, 1)
	defer ours.Close()
	if err != nil {
		return nil, err
	}
	node, err := startExternal(ctx, 1, 1)
	defer node.Close()
	if err != nil {
		return nil, err
	}
	if err := node.translateByNode(ctx); err != nil {
		return nil, err
	}
	router, client, server, err := ours.AddReferenceRouter(
		netip.MustParsePrefix("10.98.0.1/24"), netip.MustParsePrefix("10.98.1.1/24"))
	if err != nil {
		return nil, err
	}
	if err := translateByKernel(ctx, router, server); err != nil {
		return nil, err
	}
	ovn, err := ovnFloating(ctx)
	defer ovn.lab.Close()
	if err != nil {
		return nil, err
	}
	// Open vSwitch of the userspace datapath asks all of its ports in turn: others' would count.
	alone, err := lab.Start(ctx, lab.Options{Nodes: 1, NoAgents: true})
	defer alone.Close()
	if err != nil {
		return nil, err
	}
	plain, err := plainContender(ctx, alone.Nodes[0])
	if err != nil {
		return nil, err
	}
	ours.bind(firstFloating, ours.pods[0])
	all := []*contender{
		{name: "floating", lab: ours.Lab, client: ours.host, server: ours.pods[0].Host},
		{name: "kernel", lab: ours.Lab, client: client, server: server},
		{name: "node", lab: node.Lab, client: node.host, server: node.pods[0].Host},
		ovn, plain,
	}
	at := func(c *contender) netip.AddrPort {
		if c == plain {
			return netip.AddrPortFrom(plain.server.Address(lab.IPv4), serverPort)
		}
		return netip.AddrPortFrom(firstFloating, serverPort)
	}
	if err := awaitAll(ctx, all, at); err != nil {
		return nil, err
	}
	var results []Result
	for _, tr := range traffics {
		rates, err := takeTurns(ctx, balancedRounds, all, tr, at)
		if err != nil {
			return nil, err
		}
		kernel := tr.turns("fip-"+tr.name, rates[0], rates[1])
		if tr.name != "rr" {
			kernel = kernel.atLeast(1, 1.3)
		}
		byOVN := tr.turns("fip-"+tr.name+"-ovn", rates[0], rates[3])
		if tr.name == "crr" {
			byOVN = byOVN.atLeast(1, 1.3)
		}
		results = append(results, kernel, tr.turns("fip-"+tr.name+"-node", rates[0], rates[2]), byOVN,
			tr.turns("fip-"+tr.name+"-ceiling", rates[4], rates[1]))
	}
	return results, nil
}

// awaitAll waits until each contender reaches its address.
func awaitAll(ctx context.Context, all []*contender, at func(*contender) netip.AddrPort) error {
	for _, c := range all {
		if err := c.await(ctx, at(c)); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// translateByKernel writes the first floating IP and the server's address over each other.
func translateByKernel(ctx context.Context, router, server *lab.Host) error {
	own := server.Address(lab.IPv4)
	_, err := router.Run(ctx, "nft", fmt.Sprintf(`table ip reference {
		chain in { type nat hook prerouting priority dstnat; ip daddr %[1]s dnat to %[2]s; };
		chain out { type nat hook postrouting priority srcnat; ip saddr %[2]s snat to %[1]s; };
	}`, firstFloating, own))
	return err
}

// translateByNode has the node's kernel be on the external Network and translate the first floating
// IP for the pod, which it reaches as any pod.
func (e *external) translateByNode(ctx context.Context) error {
	if err := e.connectNode(ctx); err != nil {
		return err
	}
	return translateByKernel(ctx, e.Nodes[0].Host, e.pods[0].Host)
}

// connectNode has the node's kernel be on the external Network, with the first floating IP.
func (e *external) connectNode(ctx context.Context) error {
	n := e.Nodes[0]
	if _, err := n.OVS.Vsctl(ctx, "set", "port", externalBridge, fmt.Sprintf("tag=%d", externalVLAN)); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"link", "set", externalBridge, "up"},
		{"address", "add", firstFloating.String() + "/16", "dev", externalBridge},
	} {
		if _, err := n.Run(ctx, "ip", args...); err != nil {
			return err
		}
	}
	return nil
}

// gatewayTraffic compares what leaves by the gateway of the Router default with the masquerading of
// the node, which is on the external Network as well.
func gatewayTraffic(ctx context.Context) ([]Result, error) {
	ours, err := startExternal(ctx, 1, 1)
	defer ours.Close()
	if err != nil {
		return nil, err
	}
	node, err := startExternal(ctx, 1, 1)
	defer node.Close()
	if err != nil {
		return nil, err
	}
	if err := node.connectNode(ctx); err != nil {
		return nil, err
	}
	if err := ours.API.AddRouterGateway(intent.DefaultRouterName, externalNetwork); err != nil {
		return nil, err
	}
	ours.API.AddGatewayAddress(intent.DefaultRouterName, ours.Nodes[0].Name, externalNetwork, firstFloating.String())
	at := always(netip.AddrPortFrom(externalHost.Addr(), serverPort))
	all := []*contender{
		{name: "gateway", lab: ours.Lab, client: ours.pods[0].Host, server: ours.host},
		{name: "node", lab: node.Lab, client: node.pods[0].Host, server: node.host},
	}
	if err := awaitAll(ctx, all, at); err != nil {
		return nil, err
	}
	var results []Result
	for _, tr := range traffics {
		rates, err := takeTurns(ctx, balancedRounds, all, tr, at)
		if err != nil {
			return nil, err
		}
		r := tr.turns("snat-"+tr.name, rates[0], rates[1])
		if tr.name == "crr" {
			r = r.atLeast(1, 1.2)
		}
		results = append(results, r)
	}
	return results, nil
}

// Rounds of a move, and how often the host outside sends meanwhile.
const (
	moveRounds   = 20
	moveInterval = 10 * time.Millisecond
)

// floatingMove has a floating IP stand for a pod on the one and on the other node, by turns.
func floatingMove(ctx context.Context) ([]Result, error) {
	e, err := startExternal(ctx, 2, 1)
	defer e.Close()
	if err != nil {
		return nil, err
	}
	stop, err := e.serveNames()
	defer stop()
	if err != nil {
		return nil, err
	}
	var took []float64
	for i := range moveRounds + 1 {
		p := e.pods[i%len(e.pods)]
		ms, err := e.firstAnswer(ctx, firstFloating, p, moveInterval, func() { e.bind(firstFloating, p) })
		if err != nil {
			return nil, err
		}
		if i > 0 { // the first is no move
			took = append(took, ms)
		}
	}
	return []Result{
		absolute("fip-move-p50", "ms", percentile(took, 0.5)),
		absolute("fip-move", "ms", slices.Max(took)).atMost(1000, 300),
	}, nil
}

// How many floating IPs of Ports elsewhere there are, how many come on the node, and how often the
// host sends until one answers.
const (
	fewFloating   = 10
	manyFloating  = 10_000
	newFloating   = 40
	floatInterval = time.Millisecond
)

// floatingScale compares how long it takes until a new floating IP answers in two clusters, one
// with few and one with many others, and how many flows the others are on this node.
func floatingScale(ctx context.Context) ([]Result, error) {
	var sides [2]*external
	for i, others := range []int{manyFloating, fewFloating} {
		e, err := startExternal(ctx, 1, newFloating)
		defer e.Close()
		if err != nil {
			return nil, err
		}
		for n := range others {
			e.API.AddFloatingIP("elsewhere", fmt.Sprintf("ip-%d", n), externalNetwork,
				nth(netip.MustParseAddr("172.20.1.0"), n).String(), fmt.Sprintf("pod-%d.eth0", n))
		}
		stop, err := e.serveNames()
		defer stop()
		if err != nil {
			return nil, err
		}
		sides[i] = e
	}
	var took [2][]float64
	for n := range newFloating {
		address := nth(firstFloating, n)
		for turn := range sides {
			i := (n + turn) % len(sides)
			e, p := sides[i], sides[i].pods[n]
			// The host's kernel would ask again for the address only after a second.
			if _, err := e.host.Run(ctx, "ip", "neighbour", "add", address.String(), "lladdr",
				reserved.PodMAC(address).HardwareAddr().String(), "dev", "eth0"); err != nil {
				return nil, err
			}
			ms, err := e.firstAnswer(ctx, address, p, floatInterval, func() { e.bind(address, p) })
			if err != nil {
				return nil, err
			}
			if n > 0 { // the first one also brings what all have in common
				took[i] = append(took[i], ms)
			}
		}
	}
	var flows [2]float64
	for i, e := range sides {
		var err error
		if flows[i], err = flowCount(ctx, e.Nodes[0]); err != nil {
			return nil, err
		}
	}
	return []Result{
		absolute("fip-flows-elsewhere", "flows", (flows[0]-flows[1])/(manyFloating-fewFloating)).atMost(0, 0),
		paired("fip-10000", "ms", took[0], took[1]).atMost(growthBar, growthAim),
	}, nil
}
