// SPDX-License-Identifier: Apache-2.0

//go:build integration

package backend

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

func TestMain(m *testing.M) { lab.Main(m) }

// TestBackendOVS and TestBackendOVN are the suite with each backend.
func TestBackendOVS(t *testing.T) { suite(t, config.OVSBackend) }

func TestBackendOVN(t *testing.T) { suite(t, config.OVNBackend) }

// world is a cluster of two nodes with pods a and b on n1 and c on n2.
type world struct {
	*lab.Lab
	backend config.BackendType
	n1, n2  *lab.Node
	a, b, c *lab.Pod
}

func suite(t *testing.T, backend config.BackendType) {
	o := optionsOf(backend)
	o.Configure = func(c *config.Config) { c.BridgeMappings = map[string]string{physical: "br-ext"} }
	l := lab.New(t, o)
	w := &world{Lab: l, backend: backend, n1: l.Nodes[0], n2: l.Nodes[1]}
	w.a, w.b, w.c = w.pod(t, w.n1, "lab", "a"), w.pod(t, w.n1, "lab", "b"), w.pod(t, w.n2, "lab", "c")
	for _, part := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"pods", pods}, {"tenants", tenants}, {"shared Router", sharedRouter}, {"several interfaces", severalInterfaces},
		{"machines", machines}, {"routes", routes}, {"Services", services},
		{"Services of tenants", tenantServices}, {"Services of nodes", nodeServices},
		{"load balancers", balanced}, {"host ports", hostPorts}, {"outside", outside}, {"restarts", restarts},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, w) })
	}
	for _, n := range w.Nodes {
		if err := n.Check(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// optionsOf are those of a lab with a backend.
func optionsOf(backend config.BackendType) lab.Options {
	return lab.Options{OVN: backend == config.OVNBackend, Neutron: backend == config.NeutronBackend}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) pod(t *testing.T, n *lab.Node, namespace, name string) *lab.Pod {
	t.Helper()
	return w.podAs(t, n, lab.PodSpec{Namespace: namespace, Name: name})
}

func (w *world) podAs(t *testing.T, n *lab.Node, spec lab.PodSpec) *lab.Pod {
	t.Helper()
	p, err := n.AddPodAs(t.Context(), spec)
	must(t, err)
	return p
}

// network publishes a Network, and waits until all agents have received it.
func (w *world) network(t *testing.T, name string, spec v1alpha1.NetworkSpec) {
	t.Helper()
	w.API.AddNetwork(name, spec)
	for _, n := range w.Nodes {
		eventually(t, "the agent of "+n.Name+" knows Network "+name, func(ctx context.Context) error {
			var known []agentapi.NetworkInfo
			if err := n.Query(ctx, "/v1/networks", &known); err != nil {
				return err
			}
			if !slices.ContainsFunc(known, func(i agentapi.NetworkInfo) bool { return i.Name == name }) {
				return errors.New("it is not there")
			}
			return nil
		})
	}
}

// tenant makes a namespace with a primary Network of its name.
func (w *world) tenant(t *testing.T, name, router string, cidrs ...string) {
	t.Helper()
	w.API.AddNamespace(name, map[string]string{"tenant": name})
	w.network(t, name, v1alpha1.NetworkSpec{
		Role: v1alpha1.Primary, Router: router, Subnets: subnets(cidrs...),
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": name}},
	})
}

func subnets(cidrs ...string) (list []v1alpha1.Subnet) {
	for _, c := range cidrs {
		list = append(list, v1alpha1.Subnet{CIDR: c})
	}
	return list
}

// eventually tries until there is no error.
func eventually(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), comeAbout)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Errorf("%s: %v", what, err)
			return
		}
	}
}

// address is one of a host's for each family.
type address = func(lab.Family) netip.Addr

// own are the addresses of a pod's interface, as its neighbors know them.
func own(p *lab.Pod, link string) address {
	return func(f lab.Family) netip.Addr { return p.Own(link, f) }
}

// reaches has a host get answers by ping, UDP and TCP, of another one by an address that that one
// may know by another, and be seen by an address; nil: whichever.
func reaches(t *testing.T, what string, from, to *lab.Host, dst, known, seen address) {
	t.Helper()
	reachesOf(t, lab.Dual, what, from, to, dst, known, seen)
}

// reachesOf is reaches for the families of a set.
func reachesOf(t *testing.T, families lab.Family, what string, from, to *lab.Host, dst, known, seen address) {
	t.Helper()
	for f := range families.Each {
		reachesBy(t, f, what, from, to, dst, known, seen)
	}
}

func reachesBy(t *testing.T, f lab.Family, what string, from, to *lab.Host, dst, known, seen address) {
	t.Helper()
	at, listen := netip.AddrPortFrom(dst(f), 8080), netip.AddrPortFrom(known(f), 8080)
	eventually(t, f.String()+" "+what, func(ctx context.Context) error {
		r, err := (probe.Ping{Dst: at.Addr(), Count: 1}).Run(ctx, from)
		if err == nil && r.Lost() > 0 {
			err = fmt.Errorf("%s does not answer pings, errors %v", at.Addr(), r.Errors)
		}
		return err
	})
	stream, err := probe.StartUDP(from, to, at, listen, time.Millisecond)
	must(t, err)
	bounded, cancel := context.WithTimeout(t.Context(), comeAbout)
	defer cancel()
	err = stream.Wait(bounded, 3)
	if report := stream.Stop(); err != nil {
		t.Errorf("%s %s: UDP to %s: %v: %s", f, what, at, err, report)
	}
	by(t, f, what, from, to, at, listen, seen)
}

// by has a host reach a TCP server at an address that the server may know by another.
func by(t *testing.T, f lab.Family, what string, from, to *lab.Host, at, listen netip.AddrPort, seen address) {
	t.Helper()
	server, err := probe.Serve(to, listen, probe.WhoAmI)
	must(t, err)
	defer server.Close()
	eventually(t, f.String()+" "+what, func(ctx context.Context) error {
		got, err := probe.Seen(ctx, from, at)
		if err == nil && seen != nil && got.Addr() != seen(f) {
			err = fmt.Errorf("the server sees %s, want %s", got.Addr(), seen(f))
		}
		return err
	})
}

// unreachable has a host get no answer. Others show that the address answers.
func unreachable(t *testing.T, what string, from *lab.Host, dst address) {
	t.Helper()
	var families sync.WaitGroup
	for f := range lab.Dual.Each {
		families.Go(func() {
			r, err := (probe.Ping{Dst: dst(f), Count: 2}).Run(t.Context(), from)
			if err != nil || r.Sent == 0 || r.Lost() < r.Sent {
				t.Errorf("%s %s: %s answers %d of %d, %v", f, what, dst(f), len(r.Replies), r.Sent, err)
			}
		})
	}
	families.Wait()
}

// cutOff waits until an address answers no more.
func cutOff(t *testing.T, what string, from *lab.Host, dst address) {
	t.Helper()
	cutOffOf(t, lab.Dual, what, from, dst)
}

// cutOffOf is cutOff for the families of a set.
func cutOffOf(t *testing.T, families lab.Family, what string, from *lab.Host, dst address) {
	t.Helper()
	for f := range families.Each {
		eventually(t, f.String()+" "+what, func(ctx context.Context) error {
			r, err := (probe.Ping{Dst: dst(f), Count: 1}).Run(ctx, from)
			if err == nil && r.Lost() == 0 {
				err = errors.New("it answers")
			}
			return err
		})
	}
}
