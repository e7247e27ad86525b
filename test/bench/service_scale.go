// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// How many Services there are, and endpoints of each.
const (
	fewServices      = 100
	manyServices     = 5000
	mostServices     = 10_000
	serviceEndpoints = 10
)

// sliceChanges is how often the endpoints of one Service change at each number of Services.
const sliceChanges = 200

// What a change and a start must not take longer than, in milliseconds, the agent's memory in
// megabytes, and how many times as long as with few Services a change may take.
const (
	changeBar, changeAim = 50, 25
	startBar, startAim   = 10_000, 5000
	memoryBar, memoryAim = 250, 150
	growthBar, growthAim = 1.5, 1.1
)

// crowd is a node in a cluster of many Services. One of them, the one that changes,
// is answered by pods.
type crowd struct {
	*lab.Lab
	node     *lab.Node
	services int // beside the one that changes
	client   *lab.Pod
	servers  [2]*lab.Pod
	now      int // which of the servers is the endpoint
}

// measureServiceScale looks at what many Services cost a node: how long it takes until a change of
// one is in effect, the agent's start, and memory.
func measureServiceScale(ctx context.Context) ([]Result, error) {
	var results []Result
	var few float64
	for _, n := range []int{fewServices, manyServices, mostServices} {
		took, more, err := measureCrowd(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("%d Services: %w", n, err)
		}
		p50, p99 := percentile(took, 0.5), percentile(took, 0.99)
		median := absolute(fmt.Sprintf("service-change-p50-%d", n), "ms", p50)
		if few == 0 {
			few = p50
		} else {
			median = beside(median.Name, median.Unit, p50, few).atMost(growthBar, growthAim)
		}
		results = append(results, median,
			absolute(fmt.Sprintf("service-change-p99-%d", n), "ms", p99).atMost(changeBar, changeAim))
		results = append(results, more...)
	}
	return results, nil
}

// measureCrowd takes the times of changes, and what else there is to say, in a cluster of its own.
func measureCrowd(ctx context.Context, services int) (changes []float64, more []Result, err error) {
	l, err := lab.Start(ctx, lab.Options{
		Nodes: 1, NoAgents: true, Configure: func(c *config.Config) { c.Services.Mode = config.NativeServices },
	})
	defer l.Close()
	if err != nil {
		return nil, nil, err
	}
	c := &crowd{Lab: l, node: l.Nodes[0], services: services}
	c.fill()
	first, err := c.start(ctx)
	if err != nil {
		return nil, nil, err
	}
	started, err := residentMiB(c.node.AgentPID())
	if err != nil {
		return nil, nil, err
	}
	stop, err := c.serve(ctx)
	defer stop()
	if err != nil {
		return nil, nil, err
	}
	if changes, err = c.changes(ctx); err != nil {
		return nil, nil, err
	}
	more, err = c.look(ctx)
	if err != nil || services < mostServices {
		return changes, nil, err
	}
	c.node.KillAgent()
	for _, what := range []string{"del-flows", "del-groups"} {
		if _, err := c.node.OVS.Ofctl(ctx, what, "br-int"); err != nil {
			return nil, nil, err
		}
	}
	again, err := c.start(ctx)
	if err != nil {
		return nil, nil, err
	}
	return changes, append(more,
		absolute(fmt.Sprintf("service-start-rss-%d", services), "MB", started*megabyte),
		absolute(fmt.Sprintf("service-first-start-%d", services), "ms", first).atMost(startBar, startAim),
		absolute(fmt.Sprintf("service-start-%d", services), "ms", again).atMost(startBar, startAim),
	), c.node.Check(ctx)
}

// fill makes the Services. Nothing answers at their endpoints.
func (c *crowd) fill() {
	c.API.AddNamespace(serviceNamespace, nil)
	for n := range c.services {
		s := service{"many-" + strconv.Itoa(n), netip.AddrPortFrom(nth(netip.MustParseAddr("10.96.1.0"), n), 80)}
		var endpoints []netip.Addr
		for i := range serviceEndpoints {
			endpoints = append(endpoints, nth(netip.MustParseAddr("10.128.0.0"), n*serviceEndpoints+i))
		}
		c.API.SetService(s.object())
		c.API.SetEndpointSlice(s.slice("n9", endpoints...))
	}
}

// nth is the address n behind a.
func nth(a netip.Addr, n int) netip.Addr {
	b := a.As4()
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(b[:])+uint32(n))))
}

// start starts the agent on a switch without flows and returns how many milliseconds it took until
// it was ready and there was a group for each Service.
func (c *crowd) start(ctx context.Context) (float64, error) {
	start := time.Now()
	if err := c.node.StartAgent(ctx); err != nil {
		return 0, err
	}
	ready := milliseconds(time.Since(start))
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for late := false; ; late = true {
		groups, err := c.groups(ctx)
		switch {
		case err != nil:
			return 0, fmt.Errorf("the agent was ready after %.0f ms, with %d groups: %w", ready, groups, err)
		case groups >= c.services && !late:
			return ready, nil
		case groups >= c.services:
			return milliseconds(time.Since(start)), nil
		}
		<-tick.C
	}
}

// serve starts the pods of the Service that changes: each server says its name.
func (c *crowd) serve(ctx context.Context) (stop func(), err error) {
	var servers []*probe.Server
	stop = func() {
		for _, s := range servers {
			s.Close()
		}
	}
	if c.client, err = c.node.AddPod(ctx, "client"); err != nil {
		return stop, err
	}
	for i := range c.servers {
		name := strconv.Itoa(i)
		if c.servers[i], err = c.node.AddPod(ctx, "server-"+name); err != nil {
			return stop, err
		}
		s, err := probe.Serve(c.servers[i], netip.AddrPortFrom(c.servers[i].Address(lab.IPv4), serverPort),
			func(conn net.Conn) {
				_, _ = io.WriteString(conn, name) // the client sees it if this fails
			})
		if err != nil {
			return stop, err
		}
		servers = append(servers, s)
	}
	c.API.SetService(changing.object())
	c.publish()
	return stop, nil
}

// changing is the Service that changes.
var changing = service{"changing", serviceAddress}

// publish writes the endpoint into the API.
func (c *crowd) publish() {
	c.API.SetEndpointSlice(changing.slice(c.node.Name, c.servers[c.now].Address(lab.IPv4)))
}

// changes has the Service's one endpoint be the one and the other server, and returns for each
// change the milliseconds until a new connection was answered by the new one.
func (c *crowd) changes(ctx context.Context) ([]float64, error) {
	if err := c.answered(ctx); err != nil {
		return nil, err
	}
	var took []float64
	for range sliceChanges {
		c.now = 1 - c.now
		start := time.Now()
		c.publish()
		if err := c.answered(ctx); err != nil {
			return nil, err
		}
		took = append(took, milliseconds(time.Since(start)))
	}
	return took, nil
}

// answered connects, again and again, until the answer is that of the endpoint.
func (c *crowd) answered(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, balanceTimeout)
	defer cancel()
	want := strconv.Itoa(c.now)
	return c.client.Do(func() error {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		dialer := net.Dialer{Timeout: probe.AnswerTimeout, KeepAlive: -1}
		for {
			got, err := ask(ctx, dialer)
			switch {
			case got == want:
				return nil
			case ctx.Err() != nil:
				return fmt.Errorf("server %s does not answer: server %q does: %w", want, got, err)
			}
			<-tick.C
		}
	})
}

// ask returns the name of the server that has answered.
func ask(ctx context.Context, dialer net.Dialer) (string, error) {
	conn, err := dialer.DialContext(ctx, "tcp4", changing.address.String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(probe.AnswerTimeout))
	name, err := io.ReadAll(conn)
	return string(name), err
}

// megabyte is what a MiB is in MB.
const megabyte = 1 << 20 / 1e6

// look tells what the node has, and what that takes.
func (c *crowd) look(ctx context.Context) ([]Result, error) {
	flows, err := flowCount(ctx, c.node)
	if err != nil {
		return nil, err
	}
	groups, err := c.groups(ctx)
	if err != nil {
		return nil, err
	}
	agent, err := residentMiB(c.node.AgentPID())
	if err != nil {
		return nil, err
	}
	pid, err := vswitchdPID(c.node)
	if err != nil {
		return nil, err
	}
	vswitchd, err := residentMiB(pid)
	size := strconv.Itoa(c.services)
	return []Result{
		absolute("service-rss-"+size, "MB", agent*megabyte).atMost(memoryBar, memoryAim),
		absolute("service-vswitchd-rss-"+size, "MB", vswitchd*megabyte),
		absolute("service-flows-"+size, "flows", flows),
		absolute("service-groups-"+size, "groups", float64(groups)),
	}, err
}

func (c *crowd) groups(ctx context.Context) (int, error) {
	out, err := c.node.OVS.Ofctl(ctx, "dump-groups", "br-int")
	return strings.Count(out, "group_id="), err
}
