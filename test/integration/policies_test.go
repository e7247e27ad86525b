// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/diagnose"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// TestPolicies takes agents through what happens to policies.
func TestPolicies(t *testing.T) {
	w, b := policed(t, lab.Options{Configure: nativeServices})
	for f := range lab.Dual.Each {
		serve(t, w.c, netip.AddrPortFrom(w.c.Address(f), 8080), probe.WhoAmI)
		serve(t, w.c, netip.AddrPortFrom(w.c.Address(f), 8081), probe.Echo)
		serve(t, w.b, netip.AddrPortFrom(w.b.Address(f), 8080), probe.WhoAmI)
	}
	web := func(p *lab.Pod, f lab.Family) netip.AddrPort { return netip.AddrPortFrom(p.Address(f), 8080) }

	t.Run("closed until known", func(t *testing.T) {
		for f := range lab.Dual.Each {
			becomes(t, f.String()+" from another node", unreached(w.a, web(w.c, f)))
			becomes(t, f.String()+" on the same node", unreached(w.a, web(w.b, f)))
			becomes(t, f.String()+" from the pod's own node", reaches(w.n1, web(w.b, f)))
			becomes(t, f.String()+" from the other node", unreached(w.n1, web(w.c, f)))
		}
		var s agentapi.Status
		if err := w.n1.Query(t.Context(), "/v1/status", &s); err != nil {
			t.Fatal(err)
		}
		if len(s.Policies.Closed) != 3 || !slices.Contains(s.Problems, "port lab/a/eth0 is closed: policies of the Port are not known yet") {
			t.Errorf("status tells of policies %+v and problems %q", s.Policies, s.Problems)
		}
	})
	b.publish(t)
	for f := range lab.Dual.Each {
		becomes(t, f.String()+" open", reaches(w.a, web(w.c, f)))
	}
	t.Run("host ports", func(t *testing.T) { policiesOfHostPorts(t, w, b) })
	t.Run("live connections", func(t *testing.T) { policiesOfLiveConnections(t, w, b) })
	t.Run("replies alone", func(t *testing.T) { policiesOfReplies(t, w, b) })
	t.Run("an address's next pod", func(t *testing.T) { policiesOfNextPod(t, w, b) })
	t.Run("what is told", func(t *testing.T) { toldOfPolicies(t, w, b) })
	t.Run("audit log", func(t *testing.T) { auditOfPolicies(t, w, b) })
	t.Run("first millisecond", func(t *testing.T) { policiesOfNewPods(t, w, b) })
	t.Run("without a controller", func(t *testing.T) { policiesWithoutController(t, w, b) })
	t.Run("full disk", func(t *testing.T) { policiesOnFullDisk(t, w, b) })
	for _, n := range w.Nodes {
		if err := n.Check(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// policiesOfLiveConnections has one of two streams stop, and go on again; the other loses nothing.
func policiesOfLiveConnections(t *testing.T, w *world, b *rulebook) {
	for f := range lab.Dual.Each {
		at := netip.AddrPortFrom(w.c.Address(f), 8081)
		allowed, err := probe.StartTCP(t.Context(), w.b, at, probeInterval)
		if err != nil {
			t.Fatal(err)
		}
		defer allowed.Close()
		denied, err := probe.StartUDP(w.a, w.c, netip.AddrPortFrom(w.c.Address(f), 5000), netip.AddrPortFrom(w.c.Address(f), 5000), probeInterval)
		if err != nil {
			t.Fatal(err)
		}
		defer denied.Close()
		if err := denied.Wait(t.Context(), 5); err != nil {
			t.Fatal(err)
		}
		b.isolate(w.c, intent.Ingress, intent.Rule{Groups: b.group("b", w.b), Ports: tcpPort(8080, 8081)})
		b.publish(t)
		becomes(t, f.String()+" a new connection", unreached(w.a, netip.AddrPortFrom(w.c.Address(f), 8080)))
		during := wire(t, w.c.Host)
		if err := during.Quiet(300*time.Millisecond, from(w.a, f)); err != nil {
			t.Errorf("%s: the live stream goes on: %v", f, err)
		}
		during.Close()
		b.open(w.c)
		b.publish(t)
		if _, err := wire(t, w.c.Host).Wait(within(t, 5*time.Second), from(w.a, f)); err != nil {
			t.Errorf("%s: the stream does not go on when it is allowed again: %v", f, err)
		}
		if r := denied.Stop(); len(r.Lost) == 0 || len(r.Lost) == r.Sent {
			t.Errorf("%s: denied stream: %s", f, r)
		}
		if r := allowed.Stop(); r.Err != nil || r.Slow > time.Second {
			t.Errorf("%s: allowed stream: %s", f, r)
		}
	}
}

// policiesOfReplies has a server stream to a client that has asked once.
func policiesOfReplies(t *testing.T, w *world, b *rulebook) {
	for f := range lab.Dual.Each {
		at := netip.AddrPortFrom(w.c.Address(f), 5001)
		var server net.PacketConn
		if err := w.c.Do(func() (err error) { server, err = net.ListenPacket("udp", at.String()); return err }); err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		ask := newAsker(t, w.a.Host, at)
		var peer net.Addr
		b.isolate(w.c, intent.Ingress, intent.Rule{Groups: b.group("a", w.a)})
		b.isolate(w.a, intent.Ingress)
		b.publish(t)
		becomes(t, f.String()+" asked", func(context.Context) error {
			if _, err := ask.Write([]byte("?")); err != nil {
				return err
			}
			_ = server.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			_, from, err := server.ReadFrom(make([]byte, 10))
			peer = from
			return err
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for ctx.Err() == nil {
				_, _ = server.WriteTo([]byte("!"), peer)
				time.Sleep(probeInterval)
			}
		}()
		seen := wire(t, w.a.Host)
		if _, err := seen.Wait(within(t, 5*time.Second), from(w.c, f)); err != nil {
			t.Fatalf("%s: no stream: %v", f, err)
		}
		b.group("a")
		b.publish(t)
		becomes(t, f.String()+" the stream stops", func(context.Context) error {
			return wire(t, w.a.Host).Quiet(200*time.Millisecond, from(w.c, f))
		})
		b.group("a", w.a)
		b.publish(t)
		becomes(t, f.String()+" the stream goes on", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := wire(t, w.a.Host).Wait(ctx, from(w.c, f))
			return err
		})
		cancel()
	}
	if log := w.n2.AgentLogTail(); !strings.Contains(log, "checked UDP connections of Ports whose policies changed") {
		t.Error("the agent has marked nothing")
	}
	b.open(w.a)
	b.open(w.c)
	b.publish(t)
}

// policiesOfNewPods has a pod send from its first moment on.
func policiesOfNewPods(t *testing.T, w *world, b *rulebook) {
	received := wire(t, w.c.Host)
	to := netip.AddrPortFrom(w.c.Address(lab.IPv4), 5002)
	pod, err := w.n1.NewPod("early")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pod.Delete(context.WithoutCancel(t.Context())) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sent atomic.Int64
	sending := make(chan struct{})
	go func() {
		defer close(sending)
		_ = pod.Do(func() error {
			for ctx.Err() == nil {
				c, err := net.Dial("udp", to.String())
				if err != nil {
					// There is no route before the pod has its address.
					time.Sleep(50 * time.Microsecond)
					continue
				}
				if _, err := c.Write([]byte("early")); err == nil {
					sent.Add(1)
				}
				_ = c.Close()
			}
			return nil
		})
	}()
	if err := pod.Add(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := received.Quiet(500*time.Millisecond, from(pod, lab.IPv4)); err != nil {
		t.Errorf("a pod whose policies are not known has sent: %v", err)
	}
	b.isolate(pod, intent.Egress)
	b.publish(t)
	if err := received.Quiet(300*time.Millisecond, from(pod, lab.IPv4)); err != nil {
		t.Errorf("an isolated pod has sent: %v", err)
	}
	b.open(pod)
	b.publish(t)
	if _, err := received.Wait(within(t, 5*time.Second), from(pod, lab.IPv4)); err != nil {
		t.Errorf("after %d packets none arrives: %v", sent.Load(), err)
	}
	cancel()
	<-sending
	delete(b.subjects, pod)
	b.publish(t)
}

// TestPoliciesOfTenants has pods of two tenants with the same addresses, of which one tenant
// isolates a pod.
func TestPoliciesOfTenants(t *testing.T) {
	t.Parallel()
	w := startTenantsWith(t, lab.Options{Policies: true, Configure: nativeServices})
	b := newRulebook(w.world, slices.Concat(w.red[:], w.blue[:])...)
	r0, r1, r2 := w.red[0], w.red[1], w.red[2]
	for f := range lab.Dual.Each {
		peer := intent.Peer{Space: "red", Address: r0.Own("eth0", f), Groups: []string{"r0"}}
		b.peers[intent.PeerKey(peer.Space, peer.Address)] = peer
	}
	b.isolate(r2, intent.Ingress, intent.Rule{Groups: []string{"r0"}, Ports: tcpPort(8080, 8080)})
	b.publish(t)
	for f := range lab.Dual.Each {
		red, blue := netip.AddrPortFrom(r2.Own("eth0", f), 8080), netip.AddrPortFrom(w.blue[2].Own("eth0", f), 8080)
		serve(t, r2, red, probe.WhoAmI)
		serve(t, w.blue[2], blue, probe.WhoAmI)
		becomes(t, f.String()+" from the pod that is allowed", reaches(r0, red))
		becomes(t, f.String()+" from another pod of the tenant", unreached(r1, red))
		becomes(t, f.String()+" from another pod of the other tenant", reaches(w.blue[1], blue))
		for from, reason := range map[*lab.Pod]string{r0: "", r1: "no rule of NetworkPolicy lab/web-deny allows it"} {
			way, err := diagnose.Trace(t.Context(), labAgents{w.Lab}, diagnose.Packet{
				Node: "n1", From: "red/" + from.Name, Source: from.Own("eth0", f), Destination: red.Addr(), Protocol: "tcp",
				SourcePort: 49152, DestinationPort: red.Port(),
			})
			if err != nil || len(way) != 2 {
				t.Fatalf("%s, trace from %s: %d nodes, %v", f, from.Name, len(way), err)
			}
			if o := way[1].Outcome; o.Reason != reason || (reason == "") != (o.Kind == "pod") {
				t.Errorf("%s, trace from %s: the packet ends at %+v", f, from.Name, o)
			}
		}
	}
}
