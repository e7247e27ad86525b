// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
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

// What a change and a start must not take longer than, in milliseconds, and the agent's memory in megabytes.
const (
	changeBar, changeAim = 50, 25
	startBar, startAim   = 10_000, 5000
	memoryBar, memoryAim = 250, 150
)

// crowd is a node whose cluster gets more and more Services. One of them, the one that changes, is answered by pods.
type crowd struct {
	*lab.Lab
	node     *lab.Node
	client   *lab.Pod
	servers  [2]*lab.Pod
	now      int // which of the servers is the endpoint
	services int
}

// measureServiceScale looks at what many Services cost a node: how long it takes until a change of one is in effect, the
// agent's start and memory.
func measureServiceScale(ctx context.Context) ([]Result, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1, Configure: func(c *config.Config) { c.Services.Mode = config.NativeServices }})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	c := &crowd{Lab: l, node: l.Nodes[0]}
	stop, err := c.serve(ctx)
	defer stop()
	if err != nil {
		return nil, err
	}
	var results []Result
	var few float64
	for _, n := range []int{fewServices, manyServices, mostServices} {
		start, err := c.grow(ctx, n)
		if err != nil {
			return nil, err
		}
		took, err := c.changes(ctx)
		if err != nil {
			return nil, fmt.Errorf("%d Services: %w", n, err)
		}
		size := strconv.Itoa(n)
		p50, p99 := percentile(took, 0.5), percentile(took, 0.99)
		switch n {
		case fewServices:
			few = p50
			results = append(results, absolute("service-change-p50-"+size, "ms", p50))
		default:
			results = append(results, beside("service-change-p50-"+size, "ms", p50, few).atMost(1.5, 1.1))
		}
		results = append(results, absolute("service-change-p99-"+size, "ms", p99).atMost(changeBar, changeAim))
		if n == mostServices {
			results = append(results, absolute("service-start-"+size, "ms", start).atMost(startBar, startAim))
		}
	}
	return c.look(ctx, results)
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
		s, err := probe.Serve(c.servers[i], netip.AddrPortFrom(c.servers[i].Address(lab.IPv4), serverPort), func(conn net.Conn) {
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

// publish has the API say who the endpoint is.
func (c *crowd) publish() {
	c.API.SetEndpointSlice(changing.slice(c.node.Name, c.servers[c.now].Address(lab.IPv4)))
}

// grow makes Services, whose endpoints nobody is at, and starts the agent on a switch without flows. It returns how many
// milliseconds that took, until all flows were there.
func (c *crowd) grow(ctx context.Context, services int) (float64, error) {
	c.node.KillAgent()
	for ; c.services < services; c.services++ {
		s := service{"many-" + strconv.Itoa(c.services), netip.AddrPortFrom(nth(netip.MustParseAddr("10.96.1.0"), c.services), 80)}
		var endpoints []netip.Addr
		for i := range serviceEndpoints {
			endpoints = append(endpoints, nth(netip.MustParseAddr("10.128.0.0"), c.services*serviceEndpoints+i))
		}
		c.API.SetService(s.object())
		c.API.SetEndpointSlice(s.slice("n9", endpoints...))
	}
	for _, what := range []string{"del-flows", "del-groups"} {
		if _, err := c.node.OVS.Ofctl(ctx, what, "br-int"); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	if err := c.node.StartAgent(ctx); err != nil {
		return 0, err
	}
	took := milliseconds(time.Since(start))
	groups, err := c.groups(ctx)
	if err != nil {
		return 0, err
	}
	if groups < services {
		return 0, fmt.Errorf("the agent is ready with %d groups for %d Services", groups, services)
	}
	return took, c.node.Check(ctx)
}

// nth is the address n behind a.
func nth(a netip.Addr, n int) netip.Addr {
	b := a.As4()
	v := int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3]) + n
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

// changes has the Service's one endpoint be the one and the other server, and returns for each change the milliseconds
// until a new connection was answered by the new one.
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

// look adds what the node has, and what that takes.
func (c *crowd) look(ctx context.Context, results []Result) ([]Result, error) {
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
	text, err := os.ReadFile(filepath.Join(c.node.OVS.Dir, "ovs-vswitchd.pid"))
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, err
	}
	vswitchd, err := residentMiB(pid)
	const megabyte = 1 << 20 / 1e6
	size := strconv.Itoa(c.services)
	return append(results,
		absolute("service-rss-"+size, "MB", agent*megabyte).atMost(memoryBar, memoryAim),
		absolute("service-vswitchd-rss-"+size, "MB", vswitchd*megabyte),
		absolute("service-flows-"+size, "flows", flows),
		absolute("service-groups-"+size, "groups", float64(groups)),
	), err
}

func (c *crowd) groups(ctx context.Context) (int, error) {
	out, err := c.node.OVS.Ofctl(ctx, "dump-groups", "br-int")
	return strings.Count(out, "group_id="), err
}
