// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// The length of TestOVNFaults, and what it is made of: `make test-ovn` has a long one.
var (
	faultPods = flag.Int("faults", 32, "pods that TestOVNFaults adds and deletes")
	faultSeed = flag.Uint64("faults-seed", 1, "what TestOVNFaults draws its faults from; 0: the clock")
)

// Bounds of TestOVNFaults: pods at a time, the longest time that a killed program is away, and, on
// average, how many pods come and go between two kills.
const (
	faultWorkers  = 4
	faultLongest  = 500 * time.Millisecond
	faultDistance = 5
)

// fault is a program that is killed, and what starts it again.
type fault struct {
	name  string
	kill  func()
	start func() error
}

// TestOVNFaults adds and deletes pods, four at a time, while OVN's programs, the agent and the
// controller are killed at random points. Every pod comes in the end, as the runtime tries again.
// Pods that run lose no packet, and nothing is left of the others: no port in either database, no
// Port, no address.
func TestOVNFaults(t *testing.T) {
	// Twelve addresses for pods, of which two are taken: one that is not given back is missed.
	const free = 10
	l := lab.New(t, lab.Options{OVN: true, Nodes: 1,
		PodCIDRs: func(int) []string { return []string{"10.244.1.0/28", "fd00:10:244:1::/64"} }})
	w := &world{Lab: l, n1: l.Nodes[0]}
	ctx := within(t, time.Minute+time.Duration(*faultPods)*2*time.Second)
	var err error
	w.a, err = w.n1.AddPod(ctx, "a")
	must(t, err)
	w.b, err = w.n1.AddPod(ctx, "b")
	must(t, err)
	_, err = w.n1.OVS.Vsctl(ctx, "set", "open_vswitch", ".", "external_ids:ovn-ofctrl-wait-before-clear=8000")
	must(t, err)
	before := faultLeftovers(ctx, t, w)
	streams := map[lab.Family]*probe.UDPStream{}
	for f := range lab.Dual.Each {
		at := netip.AddrPortFrom(w.b.Address(f), 7000)
		streams[f], err = probe.StartUDP(w.a.Host, w.b.Host, at, at, probeInterval)
		must(t, err)
		t.Cleanup(streams[f].Close)
		must(t, streams[f].Wait(ctx, 30))
	}

	kills := churnWithFaults(ctx, t, w)
	for f, s := range streams {
		report := s.Stop()
		t.Logf("%d kills, %d pods, %s between pods of the node: %s", kills, *faultPods, f, report)
		if len(report.Lost) > 0 {
			t.Errorf("%s: pods of the node have lost packets: %s", f, report)
		}
	}
	var now string
	poll(ctx, t, func() bool { now = faultLeftovers(ctx, t, w); return now == before }, func() {
		t.Errorf("left over; before:\n%s\nnow:\n%s", before, now)
	})
	for i := range free {
		if err := addDespite(ctx, w.n1, fmt.Sprint("last-", i)); err != nil {
			t.Errorf("only %d of %d addresses are free: %v", i, free, err)
			break
		}
	}
	must(t, w.n1.Check(ctx))
}

// churnWithFaults has pods come and go while programs are killed, and returns how many were.
func churnWithFaults(ctx context.Context, t *testing.T, w *world) (kills int) {
	seed := *faultSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-faults %d -faults-seed %d", *faultPods, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	work, done := make(chan int), make(chan struct{}, *faultPods)
	var workers sync.WaitGroup
	for range faultWorkers {
		workers.Go(func() {
			for i := range work {
				if err := comeAndGoDespite(ctx, w.n1, fmt.Sprint("faults-", i)); err != nil {
					t.Error(err)
				}
				done <- struct{}{}
			}
		})
	}
	go func() {
		for i := range *faultPods {
			work <- i
		}
		close(work)
		workers.Wait()
		close(done)
	}()
	all := faultsOf(w)
	var order []fault
	for left := 0; ; {
		if left == 0 {
			if len(order) == 0 { // each of them once, before any of them again
				order = slices.Clone(all)
				random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			}
			f := order[0]
			order, left = order[1:], 1+random.IntN(2*faultDistance-1)
			kills++
			f.kill()
			<-time.After(time.Duration(random.Int64N(int64(faultLongest))))
			must(t, f.start())
		}
		if _, more := <-done; !more {
			return kills
		}
		left--
	}
}

func faultsOf(w *world) (list []fault) {
	for _, p := range []lab.OVNProgram{lab.OVNNorthbound, lab.OVNSouthbound, lab.OVNNorthd} {
		list = append(list, fault{string(p), func() { w.OVN.Kill(p) }, func() error { return w.OVN.Start(p) }})
	}
	return append(list,
		fault{"ovn-controller", w.n1.KillOVNController, w.n1.StartOVNController},
		fault{"agent", w.n1.KillAgent, w.n1.SpawnAgent}, fault{"controller", w.OVN.Stop, w.OVN.Resume})
}

// comeAndGoDespite is the life of a pod, of which the runtime tries again what fails.
func comeAndGoDespite(ctx context.Context, n *lab.Node, name string) error {
	p, err := n.NewPod(name)
	if err != nil {
		return err
	}
	if err := despite(ctx, p.Add, p.Restart); err != nil {
		return errors.Join(err, p.Delete(ctx))
	}
	if err := despite(ctx, p.Del, p.Del); err != nil {
		return err
	}
	return despite(ctx, p.Delete, p.Del)
}

func addDespite(ctx context.Context, n *lab.Node, name string) error {
	p, err := n.NewPod(name)
	if err != nil {
		return err
	}
	return despite(ctx, p.Add, p.Restart)
}

// despite calls first, and then again as long as it fails.
func despite(ctx context.Context, first, again func(context.Context) error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for err := first(ctx); err != nil; err = again(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
	return nil
}

// faultLeftovers is what pods leave behind if something goes wrong, as text.
func faultLeftovers(ctx context.Context, t *testing.T, w *world) string {
	t.Helper()
	list := func(text string) string {
		lines := strings.Fields(text)
		slices.Sort(lines)
		return strings.Join(lines, " ")
	}
	ports, err := w.OVN.Nbctl(ctx, "--bare", "--columns=name", "find", "logical_switch_port")
	must(t, err)
	elements, err := w.OVN.Nbctl(ctx, "--bare", "--columns=ports", "list", "logical_switch", names.Cluster("").Switch("default", "n1"))
	must(t, err)
	interfaces, err := w.n1.OVS.Vsctl(ctx, "list-ports", "br-int")
	must(t, err)
	links, err := w.n1.Run(ctx, "ip", "-brief", "link", "show", "type", "veth")
	must(t, err)
	var objects []string
	for _, p := range w.API.Ports() {
		objects = append(objects, p.Name)
	}
	return fmt.Sprintf("Logical_Switch_Ports: %s\nports of the switch: %d\ninterfaces: %s\nveth pairs: %d\nPorts: %s", list(ports),
		len(strings.Fields(elements)), list(interfaces), strings.Count(links, "\n"), list(strings.Join(objects, " ")))
}
