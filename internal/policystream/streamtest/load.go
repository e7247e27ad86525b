// SPDX-License-Identifier: Apache-2.0

package streamtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/certs"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/policystream/server"
)

// Load is a cluster with all agents connected to one controller. Each namespace has a policy for
// all of its pods, which are on different nodes, and allows those with the label role=client.
type Load struct {
	Nodes, PodsPerNode, Namespaces int
}

// DefaultLoad is 10,000 pods with 1,000 policies on 500 nodes.
var DefaultLoad = Load{Nodes: 500, PodsPerNode: 20, Namespaces: 1000}

// LoadResult is what it costs the controller. The agents are in another process.
type LoadResult struct {
	// Connect is from none to all agents having their views.
	Connect Cost
	// Change is of a policy that is for all pods: from the change until all agents have it.
	Change Cost
	// Pod is a pod with another label, which is sent to the nodes with pods of its namespace.
	Pod Cost
	// Reconnect is all agents coming back after a restart of the server, nothing being new to them.
	Reconnect Cost
	// EngineMiB is the heap of a controller without agents, AgentsMiB what they add
	// to heap and stacks.
	EngineMiB, AgentsMiB float64
}

// Cost is of one step, all that the controller does for it.
type Cost struct {
	Time, CPU time.Duration
	Agents    int // that were told
	Items     int // that they were sent
}

// childVariable in the environment makes a process of this program run agents.
const childVariable = "COELAN_STREAMTEST_AGENTS"

// RunAgents is for the beginning of main, or of TestMain, of a program that calls Load.Run: it does
// not return in the process that the agents are in.
func RunAgents() {
	if os.Getenv(childVariable) == "" {
		return
	}
	if err := agents(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "agents:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// toAgents is what they have to know.
type toAgents struct {
	Address string
	Roots   []byte
	Nodes   int
}

// agents run until the input ends, and write a line for each change: how many items
// were sent for it.
func agents(in io.Reader, out io.Writer) error {
	var o toAgents
	input := bufio.NewReader(in)
	line, err := input.ReadBytes('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &o); err != nil {
		return err
	}
	roots, err := certs.Pool(o.Roots)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	var writing sync.Mutex
	for i := range o.Nodes {
		var c *client.Client
		var before uint64
		c = client.New(client.Options{
			Node: nodeName(i), Namespace: Namespace, Controllers: client.Fixed(roots, o.Address),
			Token: TokenOf(nodeName(i)),
			Log:   slog.New(slog.DiscardHandler), OnChange: func(change client.Change) {
				now := c.Status().Received
				writing.Lock()
				fmt.Fprintln(out, now-before)
				writing.Unlock()
				before = now
				c.Programmed(change.Version)
			},
		})
		running.Go(func() { c.Run(ctx) })
	}
	_, err = io.Copy(io.Discard, input)
	cancel()
	running.Wait()
	return err
}

func nodeName(i int) string { return "node-" + strconv.Itoa(i) }

// counted counts the nodes that receive something.
type counted struct {
	*policy.Engine
	told int
}

func (c *counted) Deltas() map[string]policy.Delta {
	d := c.Engine.Deltas()
	c.told += len(d)
	return d
}

// Run connects the agents and measures. RunAgents has been called.
func (l Load) Run(ctx context.Context) (result LoadResult, err error) {
	engine := policy.NewPublisher(&counted{Engine: policy.NewEngine()})
	hub := server.NewHub(engine)
	before := memory()
	engine.Update(func(c *counted) { l.fill(c.Engine) })
	hub.Ready()
	result.EngineMiB = memory() - before
	authority, err := NewAuthority()
	if err != nil {
		return result, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return result, err
	}
	address := listener.Addr().String()
	serve := func(listener net.Listener) (stop func() error) {
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- authority.Serve(ctx, listener, server.NewService(hub, Tokens{})) }()
		return func() error { cancel(); return <-ended }
	}
	stop := serve(listener)
	defer func() { err = errors.Join(err, stop()) }()

	process, err := startAgents(ctx, toAgents{address, authority.PEM, l.Nodes})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, process.stop()) }()
	before = memory()
	if result.Connect, err = process.measure(ctx, func() (int, error) { return l.Nodes, nil }); err != nil {
		return result, fmt.Errorf("connect: %w", err)
	}
	result.AgentsMiB = memory() - before
	change := func(f func(*policy.Engine)) func() (int, error) {
		return func() (int, error) {
			var told *int
			engine.Update(func(c *counted) {
				told, c.told = &c.told, 0
				f(c.Engine)
			})
			return *told, nil
		}
	}
	if result.Change, err = process.measure(ctx, change(func(e *policy.Engine) {
		e.SetPolicy(allowAll(443))
	})); err != nil {
		return result, fmt.Errorf("change: %w", err)
	}
	if result.Pod, err = process.measure(ctx, change(func(e *policy.Engine) {
		e.SetEndpoint(l.pod(0, 0, "client"))
	})); err != nil {
		return result, fmt.Errorf("pod: %w", err)
	}
	if err := stop(); err != nil {
		return result, err
	}
	result.Reconnect, err = process.measure(ctx, func() (int, error) {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return 0, err
		}
		stop = serve(listener)
		return l.Nodes, nil
	})
	if err != nil {
		return result, fmt.Errorf("reconnect: %w", err)
	}
	return result, nil
}

// fill makes the cluster.
func (l Load) fill(e *policy.Engine) {
	for i := range l.Namespaces {
		name := namespaceName(i)
		e.SetNamespace(policy.Namespace{Name: name, Labels: labels.Set{"kubernetes.io/metadata.name": name}})
		e.SetPolicy(policy.Policy{
			Ref:  intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: name, Name: "clients"},
			Tier: intent.NetworkPolicyTier, Ingress: true,
			Subjects: []policy.Selector{{Namespace: name, Pods: labels.Everything()}},
			Rules: []policy.Rule{{
				Direction: intent.Ingress, Number: 1, Action: intent.Allow, Ports: tcp(80),
				Peers: []policy.Selector{{Namespace: name, Pods: labels.SelectorFromSet(labels.Set{"role": "client"})}},
			}},
		})
	}
	e.SetPolicy(allowAll(80))
	for i := range l.Nodes {
		e.SetNode(policy.Node{Name: nodeName(i)})
		for j := range l.PodsPerNode {
			role := "client"
			if (i+j)%2 == 0 {
				role = "server"
			}
			e.SetEndpoint(l.pod(i, j, role))
		}
	}
}

func namespaceName(i int) string { return "namespace-" + strconv.Itoa(i) }

// allowAll selects all pods.
func allowAll(port uint16) policy.Policy {
	return policy.Policy{
		Ref: intent.PolicyRef{Kind: intent.ClusterNetworkPolicy, Name: "allow-all"}, Tier: intent.AdminTier,
		Priority: 1,
		Subjects: []policy.Selector{{Namespaces: labels.Everything(), Pods: labels.Everything()}},
		Rules: []policy.Rule{{
			Direction: intent.Egress, Number: 1, Action: intent.Deny, Ports: tcp(port),
			Blocks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		}},
	}
}

func tcp(port uint16) []policy.Port {
	return []policy.Port{{PortRange: intent.PortRange{Protocol: unix.IPPROTO_TCP, First: port, Last: port}}}
}

// pod is the one of that number on the node.
func (l Load) pod(node, number int, role string) policy.Endpoint {
	i := node*l.PodsPerNode + number
	const shift = 8
	return policy.Endpoint{
		Key: intent.PodSubject(strconv.Itoa(i)), Namespace: namespaceName(i % l.Namespaces),
		Name:   "pod-" + strconv.Itoa(i),
		Labels: labels.Set{"role": role}, Node: nodeName(node), Places: []policy.Place{{
			Space: intent.DefaultRouterName, Address: netip.AddrFrom4([4]byte{10, byte(i >> (2 * shift)),
				byte(i >> shift), byte(i)}),
		}},
	}
}

// process is the one with the agents.
type process struct {
	cmd   *exec.Cmd
	input io.WriteCloser
	lines chan int
}

func startAgents(ctx context.Context, o toAgents) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, program), lines: make(chan int, o.Nodes)}
	p.cmd.Env = append(os.Environ(), childVariable+"=1")
	p.cmd.Stderr = os.Stderr
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.lines)
		for scan := bufio.NewScanner(output); scan.Scan(); {
			if n, err := strconv.Atoi(strings.TrimSpace(scan.Text())); err == nil {
				p.lines <- n
			}
		}
	}()
	return p, json.NewEncoder(p.input).Encode(o)
}

func (p *process) stop() error {
	err := p.input.Close()
	for range p.lines { // not waited for
	}
	return errors.Join(err, p.cmd.Wait())
}

// measure runs a change, and waits until as many agents as that returns have received it.
func (p *process) measure(ctx context.Context, do func() (agents int, err error)) (Cost, error) {
	start, cpu := time.Now(), processorTime()
	agents, err := do()
	if err != nil {
		return Cost{}, err
	}
	c := Cost{Agents: agents}
	for range agents {
		select {
		case n, ok := <-p.lines:
			if !ok {
				return Cost{}, errors.New("the agents' process has ended")
			}
			c.Items += n
		case <-ctx.Done():
			return Cost{}, ctx.Err()
		}
	}
	c.Time, c.CPU = time.Since(start), processorTime()-cpu
	return c, nil
}

// processorTime of this process so far.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory is what is in use of heap and stacks, in MiB.
func memory() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	const mebi = 1 << 20
	return float64(m.HeapAlloc+m.StackInuse) / mebi
}
