// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

const (
	// manyConnections are of UDP, each with one packet. The userspace datapath remembers
	// them for 60 s.
	manyConnections = 300_000
	crowdedRounds   = 5
	// crowdedTime is how long pods are plugged in, one after the other, from a change on.
	crowdedTime = 1500 * time.Millisecond
	crowdedPods = 60
)

// The bar of each ADD during a change of policies.
const changeAddBar, changeAddAim = 100, 50

// The ports of the connections, and of the streams that are watched.
const (
	firstSrcPort = 1024
	firstDstPort = 9000
	streamPort   = 7000
)

// crowdedNode is a node with many UDP connections in conntrack, all between two pods.
type crowdedNode struct {
	node           *lab.Node
	policies       *lab.Policies
	client, server *lab.Pod
	// other and bystander have one connection each, in the same zone. No policy
	// is for the bystander.
	other, bystander *lab.Pod
	plugged          []*lab.Pod // in this round
}

// measurePolicyConnections changes policies while conntrack has 300,000 UDP connections in the
// zone: one for a pod that has one of them, and one for the pod that has nearly all. Meanwhile it
// plugs in pods, and looks at a stream that no policy is for.
func measurePolicyConnections(ctx context.Context) ([]Result, error) {
	if err := probe.RaiseBuffers(); err != nil {
		return nil, err
	}
	l, err := lab.Start(ctx, lab.Options{Nodes: 1, Policies: true, PodCIDRs: wide})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	c := &crowdedNode{node: l.Nodes[0], policies: l.Policies}
	for name, p := range map[string]**lab.Pod{
		"client": &c.client, "server": &c.server, "other": &c.other, "bystander": &c.bystander,
	} {
		if *p, err = c.node.AddPod(ctx, name); err != nil {
			return nil, err
		}
	}
	var still, one, all changeTimes
	for range crowdedRounds {
		if err := c.round(ctx, &still, &one, &all); err != nil {
			return nil, err
		}
	}
	return append(one.results("policy-change-300k-other", still), all.results("policy-change-300k", still)...), nil
}

// changeTimes are what was seen during changes of one kind: milliseconds, and how
// many connections there were.
type changeTimes struct{ add, late, deny, connections []float64 }

func (t changeTimes) results(name string, still changeTimes) []Result {
	return []Result{
		absolute(name+"-connections", "connections", percentile(t.connections, 0)),
		beside(name+"-add-p50", "ms", percentile(t.add, 0.5), percentile(still.add, 0.5)),
		beside(name+"-add-p99", "ms", percentile(t.add, 0.99), percentile(still.add, 0.99)),
		absolute(name+"-add-max", "ms", percentile(t.add, 1)).atMost(changeAddBar, changeAddAim),
		beside(name+"-late", "ms", percentile(t.late, 0.5), percentile(still.late, 0.5)),
		absolute(name+"-deny-p50", "ms", percentile(t.deny, 0.5)),
		absolute(name+"-deny-max", "ms", percentile(t.deny, 1)),
	}
}

// round fills conntrack, and takes what happens without a change, with one for the other pod, and
// with one for the server of all connections, which ends these.
func (c *crowdedNode) round(ctx context.Context, still, one, all *changeTimes) error {
	if err := c.publish(ctx, nil); err != nil {
		return err
	}
	if err := c.fill(ctx); err != nil {
		return err
	}
	for _, turn := range []struct {
		times  *changeTimes
		denied *lab.Pod
	}{{still, nil}, {one, c.other}, {all, c.server}} {
		if err := c.change(ctx, turn.denied, turn.times); err != nil {
			return err
		}
	}
	// With the connections, so that nothing is left to look for when the pods go.
	if _, err := c.node.OVS.Appctl(ctx, "dpctl/flush-conntrack"); err != nil {
		return err
	}
	for _, p := range c.plugged {
		if err := p.Delete(ctx); err != nil {
			return err
		}
	}
	c.plugged = nil
	return nil
}

// change has policies deny all to a pod, if one is named, and plugs in others meanwhile.
func (c *crowdedNode) change(ctx context.Context, denied *lab.Pod, t *changeTimes) error {
	passes, err := c.stream(ctx, c.bystander)
	if err != nil {
		return err
	}
	defer passes.close()
	pods, err := c.prepare()
	if err != nil {
		return err
	}
	n, err := c.connections(ctx)
	if err != nil {
		return err
	}
	t.connections = append(t.connections, float64(n))
	var stops *numbered
	if denied != nil {
		if stops, err = c.stream(ctx, denied); err != nil {
			return err
		}
		defer stops.close()
	}
	var (
		wg     sync.WaitGroup
		addErr error
		start  = time.Now()
	)
	wg.Go(func() { addErr = plugFor(ctx, pods, start, t) })
	if denied != nil {
		err = c.publish(ctx, denied)
		if err == nil {
			var at time.Time
			at, err = stops.denied(ctx)
			t.deny = append(t.deny, milliseconds(at.Sub(start)))
		}
	}
	wg.Wait()
	t.late = append(t.late, milliseconds(passes.latest(start)))
	return errors.Join(err, addErr)
}

// plugFor plugs in one pod after the other, and notes how long each took.
func plugFor(ctx context.Context, pods []*lab.Pod, start time.Time, t *changeTimes) error {
	for _, p := range pods {
		began := time.Now()
		if began.Sub(start) > crowdedTime {
			return nil
		}
		if err := p.Add(ctx); err != nil {
			return err
		}
		t.add = append(t.add, milliseconds(time.Since(began)))
	}
	return nil
}

// prepare makes the namespaces of pods that will be plugged in.
func (c *crowdedNode) prepare() ([]*lab.Pod, error) {
	first := len(c.plugged)
	for i := range crowdedPods {
		p, err := c.node.NewPod(fmt.Sprintf("plugged-%d", first+i))
		if err != nil {
			return nil, err
		}
		c.plugged = append(c.plugged, p)
	}
	return c.plugged[first:], nil
}

// stream is one from the client that arrives at first.
func (c *crowdedNode) stream(ctx context.Context, to *lab.Pod) (*numbered, error) {
	s, err := startNumbered(c.client, to, netip.AddrPortFrom(to.Address(lab.IPv4), streamPort))
	if err != nil {
		return nil, err
	}
	if err := s.flows(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// publish has a policy allow one pod nothing, if one is named, and none be for the others.
func (c *crowdedNode) publish(ctx context.Context, denied *lab.Pod) error {
	var v lab.PolicyView
	for _, p := range []*lab.Pod{c.client, c.server, c.other, c.bystander} {
		s := intent.Subject{Key: intent.PodSubject(p.UID)}
		if p == denied {
			s.IngressIsolation = []intent.PolicyRef{{Kind: intent.NetworkPolicy, Namespace: p.Namespace, Name: "deny"}}
		}
		v.Subjects = append(v.Subjects, s)
	}
	return c.policies.Publish(ctx, map[string]lab.PolicyView{c.node.Name: v})
}

// fill has the client send packets of so many connections to the server.
func (c *crowdedNode) fill(ctx context.Context) error {
	// Packets that are lost on the way leave connections for the next time.
	const attempts = 5
	n := 0
	for range attempts {
		err := connect(ctx, c.client, c.server.Address(lab.IPv4), manyConnections)
		if err != nil {
			return err
		}
		if n, err = c.connections(ctx); err != nil || n >= manyConnections {
			return err
		}
	}
	return fmt.Errorf("conntrack knows %d connections after %d attempts to make %d", n, attempts, manyConnections)
}

// connect has a pod send one packet of each of so many UDP connections, not faster than a datapath
// of one thread can take.
func connect(ctx context.Context, from *lab.Pod, to netip.Addr, count int) error {
	const (
		burst = 400
		pause = 10 * time.Millisecond
		ports = 60_000
	)
	w, err := probe.OpenWire(from, "eth0")
	if err != nil {
		return err
	}
	defer w.Close()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	client := from.Address(lab.IPv4)
	for i := range count {
		src := netip.AddrPortFrom(client, uint16(firstSrcPort+i%ports)) //nolint:gosec // below 65,536
		dst := netip.AddrPortFrom(to, uint16(firstDstPort+i/ports))     //nolint:gosec // below 65,536
		frame := probe.Ethernet(from.MAC, datapath.RouterMAC.HardwareAddr(), probe.EtherIPv4, probe.UDP(src, dst, nil))
		if err := w.Send(frame); err != nil {
			return err
		}
		if i%burst != burst-1 {
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// connections are how many conntrack knows.
func (c *crowdedNode) connections(ctx context.Context) (int, error) {
	text, err := c.node.OVS.Appctl(ctx, "dpctl/ct-get-nconns")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(text))
}
