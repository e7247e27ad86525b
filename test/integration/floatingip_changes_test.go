// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// streams sends on ways until they are stopped: UDP, and TCP connections that stay open.
func streams(ctx context.Context, t *testing.T, ways ...way) *traffic {
	t.Helper()
	tr := datagrams(ctx, t, ways...)
	for _, p := range ways {
		for f := range lab.Dual.Each {
			dst, at := p.ends(f, len(tr.tcp))
			serve(t, p.to, at, probe.Echo)
			tcp, err := probe.StartTCP(ctx, p.from, dst, probeInterval)
			if err != nil {
				t.Fatalf("%s %s: %v", f, p.name, err)
			}
			t.Cleanup(tcp.Close)
			tr.tcp = append(tr.tcp, tcp)
		}
	}
	return tr
}

// datagrams sends UDP on ways until it is stopped.
func datagrams(ctx context.Context, t *testing.T, ways ...way) *traffic {
	t.Helper()
	tr := &traffic{}
	for _, p := range ways {
		for f := range lab.Dual.Each {
			dst, at := p.ends(f, len(tr.udp))
			udp, err := probe.StartUDP(p.from, p.to, dst, at, probeInterval)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(udp.Close)
			tr.names, tr.udp = append(tr.names, f.String()+" "+p.name), append(tr.udp, udp)
		}
	}
	settle(ctx, t, tr, 30)
	return tr
}

// ends are where the n-th stream is sent to, and where its receiver listens.
func (p way) ends(f lab.Family, n int) (dst, at netip.AddrPort) {
	known := p.known
	if known == nil {
		known = p.dst
	}
	port := uint16(7300 + n)
	return netip.AddrPortFrom(p.dst(f), port), netip.AddrPortFrom(known(f), port)
}

// settle waits until as many packets have come back on every way.
func settle(ctx context.Context, t *testing.T, tr *traffic, packets int) {
	t.Helper()
	var wg sync.WaitGroup
	for i, u := range tr.udp {
		wg.Go(func() {
			if err := u.Wait(ctx, packets); err != nil {
				t.Errorf("%s: %v", tr.names[i], err)
			}
		})
	}
	wg.Wait()
}

// callers open connections one after another until they are stopped.
type callers struct {
	stop chan struct{}
	wg   sync.WaitGroup
	mu   sync.Mutex
	made int
	errs []error
}

// call starts callers on ways to ports that a WhoAmI server is at.
func call(ctx context.Context, ways ...way) *callers {
	c := &callers{stop: make(chan struct{})}
	for _, p := range ways {
		for f := range lab.Dual.Each {
			c.wg.Go(func() {
				for {
					select {
					case <-c.stop:
						return
					case <-time.After(probeInterval):
					}
					_, err := probe.Seen(ctx, p.from, netip.AddrPortFrom(p.dst(f), 8080))
					c.mu.Lock()
					if c.made++; err != nil {
						c.errs = append(c.errs, fmt.Errorf("%s %s: %w", f, p.name, err))
					}
					c.mu.Unlock()
				}
			})
		}
	}
	return c
}

// end stops them; each connection must have been made.
func (c *callers) end(t *testing.T) {
	t.Helper()
	close(c.stop)
	c.wg.Wait()
	t.Logf("%d connections", c.made)
	if len(c.errs) > 0 || c.made == 0 {
		t.Errorf("%d of %d connections failed, first %v", len(c.errs), c.made, c.errs)
	}
}

// nodeRestart is something that ends on n1 and comes again.
type nodeRestart struct {
	name string
	do   func(context.Context) error
	lose bool // packets may be lost
}

// restarts are of the agent and of Open vSwitch.
func (w *external) restarts() []nodeRestart {
	return []nodeRestart{
		{name: "agent killed", do: func(ctx context.Context) error { w.n1.KillAgent(); return w.n1.StartAgent(ctx) }},
		{name: "agent stopped", do: func(ctx context.Context) error { w.n1.StopAgent(); return w.n1.StartAgent(ctx) }},
		{name: "Open vSwitch", lose: true, do: w.n1.OVS.Restart},
		{name: "everything, without the API", lose: true, do: func(ctx context.Context) error {
			w.API.Stop()
			w.n1.KillAgent()
			if err := w.n1.OVS.Restart(ctx); err != nil {
				return err
			}
			return w.n1.StartAgent(ctx)
		}},
		{name: "API again", do: func(context.Context) error { return w.API.Resume() }},
	}
}

// floatingRestarts restarts the agent and Open vSwitch of n1 under traffic.
func floatingRestarts(t *testing.T, w *external, s floatingIPs) {
	in, out := to("in", w.near, s.a, nil), way{path: path{name: "out", from: w.a.Host, to: w.far, dst: w.far.Address}}
	for f := range lab.Dual.Each {
		serve(t, w.a, netip.AddrPortFrom(s.a.own(f), 8080), probe.WhoAmI)
		serve(t, w.far, netip.AddrPortFrom(w.far.Address(f), 8080), probe.WhoAmI)
	}
	for _, r := range w.restarts() {
		t.Run(r.name, func(t *testing.T) {
			ctx := within(t, 2*time.Minute)
			tr := streams(ctx, t, in, out,
				to("in to a tenant, from beyond", w.far, s.red, nil),
				way{path: path{name: "out of a tenant", from: w.blue[0].Host, to: w.far, dst: w.far.Address}},
				to("virtual machine", w.near, s.vm, nil),
				to("between tenants", w.red[0].Host, s.blue, nil),
				to("from another node", w.c.Host, s.b, nil),
			)
			var calls *callers
			if !r.lose {
				calls = call(ctx, in, out)
			}
			if err := r.do(ctx); err != nil {
				t.Fatal(err)
			}
			if err := w.n1.WaitAgent(ctx); err != nil {
				t.Fatal(err)
			}
			settle(ctx, t, tr, 200)
			if calls != nil {
				calls.end(t)
			}
			for name, o := range tr.stop(t) {
				if !r.lose && len(o.Lost) > 0 {
					t.Errorf("%s: lost %d packets, want none", name, len(o.Lost))
				}
			}
		})
	}
}

// answered waits until a host answers at a FloatingIP.
func (w *external) answered(t *testing.T, by *lab.Host, x floating) {
	t.Helper()
	for f := range lab.Dual.Each {
		becomes(t, fmt.Sprintf("%s: %s", x.name, x.address(f)), func(ctx context.Context) error {
			got, _, err := ask(ctx, w.far, "tcp", netip.AddrPortFrom(x.address(f), answerPort), probe.AnswerTimeout/2)
			if err == nil && got != by.Name {
				err = fmt.Errorf("%s answers, want %s", got, by.Name)
			}
			return err
		})
	}
}

// answering has a host answer with its name at its own addresses.
func answering(t *testing.T, h *lab.Host, own func(lab.Family) netip.Addr) {
	t.Helper()
	for f := range lab.Dual.Each {
		answers(t, h, netip.AddrPortFrom(own(f), answerPort))
	}
}

// floatingMoves gives FloatingIPs to other Ports, and has Ports move.
func floatingMoves(t *testing.T, w *external, s floatingIPs) {
	ctx := within(t, 2*time.Minute)
	for _, p := range []*lab.Pod{w.b, w.c, w.d} {
		answering(t, p.Host, own(p))
	}
	w.answered(t, w.b.Host, s.b)
	moved := s.b
	for _, p := range []*lab.Pod{w.d, w.c, w.b} { // to a neighbour, to another node, and back
		heard := wire(t, w.near)
		moved.port = p.Name + ".eth0"
		if p == w.c {
			w.release(s.c) // a Port has one of each family
		}
		w.bind(moved)
		w.answered(t, p.Host, moved)
		if p != w.d { // the node is another one
			for f := range lab.Dual.Each {
				if _, err := heard.Wait(ctx, announcement(moved.address(f), moved.mac(f))); err != nil {
					t.Errorf("%s is not announced on node %s: %v", moved.address(f), p.Node.Name, err)
				}
			}
		}
		takeWays(t, way{path: path{"out of the Port that has it", p.Host, w.far, w.far.Address, moved.address}})
		if p != w.b {
			takeWays(t, way{path: path{"out of the Port that had it", w.b.Host, w.Outside, lab.Internet, w.n1.Address}})
		}
	}
	w.bind(s.c)
	w.answered(t, w.c.Host, s.c)

	t.Run("a pod that comes again elsewhere", func(t *testing.T) {
		web := addPod(t, w.n1, "lab", "web")
		x := ofPod(web, 120)
		w.bind(x)
		w.rules.open(web)
		w.rules.publish(t)
		answering(t, web.Host, own(web))
		w.answered(t, web.Host, x)
		delete(w.rules.subjects, web)
		if err := web.Delete(ctx); err != nil {
			t.Fatal(err)
		}
		for f := range lab.Dual.Each {
			w.unanswered(t, x.address(f))
		}
		again := addPod(t, w.n2, "lab", "web")
		w.rules.open(again)
		w.rules.publish(t)
		answering(t, again.Host, own(again))
		w.answered(t, again.Host, x)
		w.release(x)
		delete(w.rules.subjects, again)
		if err := again.Delete(ctx); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a virtual machine that moves", func(t *testing.T) {
		answering(t, w.vm.Host, w.vm.Address)
		w.answered(t, w.vm.Host, s.vm)
		twin := w.addVM(ctx, t, w.n2, "twin")
		answering(t, twin.Host, twin.Address)
		awaitEvent(ctx, t, w.world, v1alpha1.ReasonBoundElsewhere, "it is bound on node n1")
		w.answered(t, w.vm.Host, s.vm)
		heard := wire(t, w.near)
		if err := w.vm.Unplug(ctx); err != nil {
			t.Fatal(err)
		}
		w.vm = twin
		x := w.floatingVM(w.n2, twin)
		w.answered(t, twin.Host, x)
		for f := range lab.Dual.Each {
			if _, err := heard.Wait(ctx, announcement(x.address(f), x.mac(f))); err != nil {
				t.Errorf("%s is not announced on node n2: %v", x.address(f), err)
			}
		}
	})
	takeWays(t, way{path: path{"out of the virtual machine", w.vm.Host, w.far, w.far.Address, s.vm.address}})
}

// unanswered waits until an address does not answer any more.
func (w *external) unanswered(t *testing.T, a netip.Addr) {
	t.Helper()
	becomes(t, a.String()+" answers", func(ctx context.Context) error {
		r, err := (probe.Ping{Dst: a, Wait: quiet}).Run(ctx, w.near)
		if err == nil && len(r.Replies) > 0 {
			err = fmt.Errorf("%d replies", len(r.Replies))
		}
		return err
	})
}

// floatingRemoved removes FloatingIPs: their Ports go out as before.
func floatingRemoved(t *testing.T, w *external, s floatingIPs) {
	gone := []floating{s.a, s.red, w.floatingVM(w.n2, w.vm)}
	for _, x := range gone {
		w.release(x)
	}
	var attempts []attempt
	for f := range lab.Dual.Each {
		for _, x := range gone {
			w.unanswered(t, x.address(f))
			attempts = append(attempts, attempt{x.name + " removed", w.far, x.address(f)})
		}
		attempts = append(attempts, attempt{"a virtual machine to outside", w.vm.Host, lab.Internet(f)})
	}
	unreachable(t, attempts...)
	takeWays(t,
		way{path: path{"out by the node", w.a.Host, w.Outside, lab.Internet, w.n1.Address}},
		way{path: path{"a tenant out by the node", w.red[0].Host, w.Outside, lab.Internet, w.n1.Address}},
		to("one that is left", w.near, s.b, w.near.Address),
		to("that of another tenant", w.near, s.blue, w.near.Address),
	)
	for _, x := range gone {
		flows, err := x.node.OVS.Ofctl(t.Context(), "dump-flows", "br-int")
		if err != nil {
			t.Fatal(err)
		}
		for f := range lab.Dual.Each {
			if mentions(flows, x.address(f)) {
				t.Errorf("node %s has flows about %s", x.node.Name, x.address(f))
			}
		}
	}
}

// TestFloatingIPsOfNodesSegment has FloatingIPs of the segment that the nodes themselves are on,
// where kube-proxy balances Services, with policies and without.
func TestFloatingIPsOfNodesSegment(t *testing.T) {
	t.Parallel()
	t.Run("policies", func(t *testing.T) { floatingOnSegment(t, true) })
	t.Run("no policies", func(t *testing.T) { floatingOnSegment(t, false) })
}

// startSegment makes a world in which the nodes' segment is an external Network, and a host beyond
// it.
func startSegment(t *testing.T, policed bool) (*tenants, *lab.Host) {
	t.Helper()
	w := startTenantsWith(t, lab.Options{Policies: policed, Configure: func(c *config.Config) {
		proxiedServices(c)
		c.Uplinks = map[string]config.Uplink{"dc": {Interface: "ext0"}}
	}})
	if policed {
		allow(t, w)
	}
	w.API.AddNetwork("segment", v1alpha1.NetworkSpec{
		Type: v1alpha1.Flat, PhysicalNetwork: "dc", External: true,
		Subnets: []v1alpha1.Subnet{
			{CIDR: "192.168.33.0/24", Gateway: w.Outside.Address(lab.IPv4).String()},
			{CIDR: "fd00:33::/64", Gateway: w.Outside.Address(lab.IPv6).String()},
		},
	})
	for _, n := range w.Nodes {
		if err := n.AddCard("ext0"); err != nil {
			t.Fatal(err)
		}
	}
	awaitNetwork(t, w.world, "segment")
	far, err := w.AddHostBeyond("far", narrowMTU, netip.MustParsePrefix("198.18.5.2/24"), netip.MustParsePrefix("fd00:18:5::2/64"))
	if err != nil {
		t.Fatal(err)
	}
	return w, far
}

// onSegment is an address of the nodes' segment.
func onSegment(n int) func(lab.Family) netip.Addr {
	return func(f lab.Family) netip.Addr {
		return netip.MustParseAddr(fmt.Sprintf(map[lab.Family]string{lab.IPv4: "192.168.33.%d", lab.IPv6: "fd00:33::%d"}[f], n))
	}
}

func floatingOnSegment(t *testing.T, policed bool) {
	w, far := startSegment(t, policed)
	for i, p := range []*lab.Pod{w.a, w.c, w.red[0], w.blue[0]} {
		for f := range lab.Dual.Each {
			w.API.AddFloatingIP(p.Namespace, fmt.Sprint(p.Name, "-", f), "segment", onSegment(101+i)(f).String(), p.Name+".eth0")
			becomes(t, p.Name, func(ctx context.Context) error {
				r, err := (probe.Ping{Dst: onSegment(101 + i)(f), Wait: time.Second}).Run(ctx, w.Outside)
				if err == nil && r.Lost() > 0 {
					err = errLost
				}
				return err
			})
		}
	}
	a, c, red, blue := onSegment(101), onSegment(102), onSegment(103), onSegment(104)
	takeWays(t,
		way{path: path{"in", w.Outside, w.a.Host, a, w.Outside.Address}, known: own(w.a)},
		way{path: path{"in from beyond", far, w.c.Host, c, far.Address}, known: own(w.c)},
		way{path: path{"in to a tenant", far, w.red[0].Host, red, far.Address}, known: own(w.red[0])},
		way{path: path{"out", w.a.Host, w.Outside, w.Outside.Address, a}},
		way{path: path{"out beyond", w.a.Host, far, far.Address, a}},
		way{path: path{"out of a tenant", w.blue[0].Host, far, far.Address, blue}},
		way{path: path{"its node", w.a.Host, w.n1.Host, w.n1.Address, w.a.Address}},
		way{path: path{"another node", w.a.Host, w.n2.Host, w.n2.Address, w.n1.Address}},
		way{path: path{"between tenants", w.red[0].Host, w.blue[0].Host, blue, red}, known: own(w.blue[0])},
		way{path: path{"out by the node", w.d.Host, far, far.Address, w.n1.Address}},
	)
	if policed { // without policies, what has a node's address as source is not known again
		takeWays(t,
			way{path: path{"node", w.n1.Host, w.a.Host, a, nil}, known: own(w.a)},
			way{path: path{"node to another node", w.n1.Host, w.c.Host, c, nil}, known: own(w.c)},
			way{path: path{"node to a tenant", w.n1.Host, w.red[0].Host, red, nil}, known: own(w.red[0])},
			way{path: path{"without one", w.d.Host, w.c.Host, c, nil}, known: own(w.c)},
		)
	}
	proxiedOnSegment(t, w, far)
	awaitCheck(within(t, time.Minute), t, w.world)
}

// proxiedOnSegment asks for Services that the nodes' kernels balance: one that pod a asks for, and
// one of which it is the endpoint.
func proxiedOnSegment(t *testing.T, w *tenants, far *lab.Host) {
	t.Helper()
	for f := range lab.Dual.Each {
		endpoint := netip.AddrPortFrom(w.b.Address(f), 8083)
		expose(t, w.n1, "tcp", endpoint)
		serve(t, w.b, endpoint, probe.WhoAmI)
		if got, err := probe.Seen(t.Context(), w.a, netip.AddrPortFrom(vip[f], 80)); err != nil || got.Addr() != w.a.Address(f) {
			t.Errorf("%s: the endpoint of a Service sees %s, want %s; %v", f, got.Addr(), w.a.Address(f), err)
		}
		iptables(t, w.n1.Host, f, "PREROUTING", "-d", w.n1.Address(f).String(), "-p", "tcp", "--dport", "30083",
			"-j", "DNAT", "--to-destination", netip.AddrPortFrom(w.a.Address(f), 8083).String())
		serve(t, w.a, netip.AddrPortFrom(w.a.Address(f), 8083), probe.WhoAmI)
		if got, err := probe.Seen(t.Context(), far, netip.AddrPortFrom(w.n1.Address(f), 30083)); err != nil || got.Addr() != far.Address(f) {
			t.Errorf("%s: behind a node port: the pod sees %s, want %s; %v", f, got.Addr(), far.Address(f), err)
		}
	}
}
