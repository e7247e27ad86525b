// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent"
	"coelan.io/coelan/internal/diagnose"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// rulebook is what the agents of a lab are told: a test changes it and has it published.
type rulebook struct {
	w        *world
	rules    map[string]intent.Rule
	subjects map[*lab.Pod]intent.Subject
	peers    map[string]intent.Peer
}

// policed makes a world whose pods let everything pass at first.
func policed(t *testing.T, o lab.Options) (*world, *rulebook) {
	t.Helper()
	o.Policies = true
	w := start(t, o)
	b := &rulebook{w, map[string]intent.Rule{}, map[*lab.Pod]intent.Subject{}, map[string]intent.Peer{}}
	for _, p := range []*lab.Pod{w.a, w.b, w.c, w.d} {
		b.subjects[p] = intent.Subject{Key: intent.PodSubject(p.UID)}
	}
	return w, b
}

// publish tells every node what it needs to know, and waits until that is in effect.
func (b *rulebook) publish(t *testing.T) {
	t.Helper()
	views := map[string]lab.PolicyView{}
	for _, n := range b.w.Nodes {
		var v lab.PolicyView
		used := map[string]bool{}
		for p, s := range b.subjects {
			if p.Node != n {
				continue
			}
			v.Subjects = append(v.Subjects, s)
			for _, id := range s.Rules {
				used[id] = true
			}
		}
		groups := map[string]bool{}
		for id := range used {
			v.Rules = append(v.Rules, b.rules[id])
			for _, g := range b.rules[id].Groups {
				groups[g] = true
			}
		}
		for _, p := range b.peers {
			p.Groups = slices.DeleteFunc(slices.Clone(p.Groups), func(g string) bool { return !groups[g] })
			if len(p.Groups) > 0 {
				v.Peers = append(v.Peers, p)
			}
		}
		views[n.Name] = v
	}
	if err := b.w.Policies.Publish(within(t, 15*time.Second), views); err != nil {
		t.Fatal(err)
	}
}

// denyAll is the policy that isolates.
var denyAll = intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "lab", Name: "web-deny"}

// isolate has a policy isolate the pod in a direction, and allow by these rules only.
func (b *rulebook) isolate(p *lab.Pod, d intent.Direction, rules ...intent.Rule) {
	s := intent.Subject{Key: intent.PodSubject(p.UID)}
	if d == intent.Ingress {
		s.IngressIsolation = []intent.PolicyRef{denyAll}
	} else {
		s.EgressIsolation = []intent.PolicyRef{denyAll}
	}
	for i, r := range rules {
		r.ID, r.Policy, r.Number, r.Direction = fmt.Sprintf("%s/%d/%d", denyAll, d, i+1), denyAll, i+1, d
		r.Tier, r.Action = intent.NetworkPolicyTier, intent.Allow
		b.rules[r.ID] = r
		s.Rules = append(s.Rules, r.ID)
	}
	b.subjects[p] = s
}

// open lets everything pass to and from the pod.
func (b *rulebook) open(p *lab.Pod) { b.subjects[p] = intent.Subject{Key: intent.PodSubject(p.UID)} }

// group has pods be peers.
func (b *rulebook) group(name string, pods ...*lab.Pod) []string {
	for key, p := range b.peers {
		p.Groups = slices.DeleteFunc(slices.Clone(p.Groups), func(g string) bool { return g == name })
		b.peers[key] = p
	}
	for _, pod := range pods {
		for f := range lab.Dual.Each {
			peer := intent.Peer{Space: intent.DefaultRouterName, Address: pod.Address(f)}
			key := intent.PeerKey(peer.Space, peer.Address)
			if known, ok := b.peers[key]; ok {
				peer = known
			}
			peer.Groups = append(slices.Clone(peer.Groups), name)
			slices.Sort(peer.Groups)
			b.peers[key] = peer
		}
	}
	maps.DeleteFunc(b.peers, func(_ string, p intent.Peer) bool { return len(p.Groups) == 0 })
	return []string{name}
}

func tcpPort(first, last uint16) []intent.PortRange {
	return []intent.PortRange{{Protocol: uint8(intent.TCP), First: first, Last: last}}
}

// unreached says that a TCP connection gets no answer. It is not asked for longer than a first packet and its repetition take.
func unreached(from probe.Netns, at netip.AddrPort) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if _, err := probe.Seen(ctx, from, at); err == nil {
			return fmt.Errorf("%s answers", at)
		}
		return nil
	}
}

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
		var s agent.Status
		if err := w.n1.Query(t.Context(), "/v1/status", &s); err != nil {
			t.Fatal(err)
		}
		if len(s.Policies.Closed) != 3 || !slices.Contains(s.Problems, "port lab/a/eth0 is closed: its policies are not known yet") {
			t.Errorf("status tells of policies %+v and problems %q", s.Policies, s.Problems)
		}
	})
	b.publish(t)
	for f := range lab.Dual.Each {
		becomes(t, f.String()+" open", reaches(w.a, web(w.c, f)))
	}
	t.Run("live connections", func(t *testing.T) { policiesOfLiveConnections(t, w, b) })
	t.Run("replies alone", func(t *testing.T) { policiesOfReplies(t, w, b) })
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

// from finds packets of a pod.
func from(p *lab.Pod, f lab.Family) func(probe.Frame) bool {
	return func(frame probe.Frame) bool {
		src, _ := frame.IPs()
		return src == p.Address(f)
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
	if log := w.n2.AgentLogTail(); !strings.Contains(log, "UDP streams have been judged anew") {
		t.Error("the agent has marked nothing")
	}
	b.open(w.a)
	b.open(w.c)
	b.publish(t)
}

// toldOfPolicies asks as `coelan trace` and `coelan get policystats` do.
func toldOfPolicies(t *testing.T, w *world, b *rulebook) {
	ctx, agents := t.Context(), labAgents{w.Lab}
	w.API.SetService(labService("web", 10, corev1.ServicePort{Port: 80, Protocol: corev1.ProtocolTCP}))
	for f := range lab.Dual.Each {
		w.API.SetEndpointSlice(labSlice("web", f, corev1.ProtocolTCP, 8080, w.c))
	}
	for f := range lab.Dual.Each {
		becomes(t, f.String()+" through the Service", reaches(w.a, netip.AddrPortFrom(vip[f], 80)))
	}
	trace := func(from *lab.Pod, to netip.AddrPort) agent.Trace {
		t.Helper()
		way, err := diagnose.Trace(ctx, agents, diagnose.Packet{
			Node: from.Node.Name, From: "lab/" + from.Name, Source: from.Address(lab.FamilyOf(to.Addr())), Destination: to.Addr(), Protocol: "tcp",
			SourcePort: 49152, DestinationPort: to.Port(),
		})
		if err != nil || len(way) == 0 {
			t.Fatalf("trace: %v", err)
		}
		return way[len(way)-1]
	}
	b.isolate(w.c, intent.Ingress, intent.Rule{Groups: b.group("b", w.b), Ports: tcpPort(8080, 8080)})
	admin := intent.Rule{
		ID: "admin", Policy: intent.PolicyRef{Kind: intent.ClusterNetworkPolicy, Name: "guard"}, Number: 2, Direction: intent.Egress,
		Tier: intent.AdminTier, Priority: 10, Action: intent.Deny, Groups: b.group("d", w.d),
	}
	b.rules[admin.ID] = admin
	b.subjects[w.b] = intent.Subject{Key: intent.PodSubject(w.b.UID), Rules: []string{admin.ID}}
	b.publish(t)
	for f := range lab.Dual.Each {
		for name, tc := range map[string]struct {
			from   *lab.Pod
			to     netip.AddrPort
			reason string // empty: it arrives
			policy string // of the last decision
			rule   int
		}{
			"by no rule":             {w.a, netip.AddrPortFrom(w.c.Address(f), 8080), "no rule of NetworkPolicy lab/web-deny allows it", "NetworkPolicy lab/web-deny", 0},
			"through a Service":      {w.a, netip.AddrPortFrom(vip[f], 80), "no rule of NetworkPolicy lab/web-deny allows it", "NetworkPolicy lab/web-deny", 0},
			"by a rule":              {w.b, netip.AddrPortFrom(w.d.Address(f), 80), "denied by ClusterNetworkPolicy guard, rule 2", "ClusterNetworkPolicy guard", 2},
			"allowed":                {w.b, netip.AddrPortFrom(w.c.Address(f), 8080), "", "NetworkPolicy lab/web-deny", 1},
			"allowed by the Service": {w.b, netip.AddrPortFrom(vip[f], 80), "", "NetworkPolicy lab/web-deny", 1},
		} {
			got := trace(tc.from, tc.to)
			switch {
			case tc.reason != "" && (got.Outcome.Kind != "drop" || got.Outcome.Reason != tc.reason):
				t.Errorf("%s, %s: the packet ends at %+v, want %q\n%s", f, name, got.Outcome, tc.reason, got.Text)
			case tc.reason == "" && got.Outcome.Kind != "pod":
				t.Errorf("%s, %s: the packet ends at %+v\n%s", f, name, got.Outcome, got.Text)
			}
			if n := len(got.Policies); n == 0 || got.Policies[n-1].Rule != tc.rule || !slices.Equal(got.Policies[n-1].Policies, []string{tc.policy}) {
				t.Errorf("%s, %s: policies %+v, want %s, rule %d", f, name, got.Policies, tc.policy, tc.rule)
			}
		}
	}
	// Of the allowed connection, and of the other's first packet.
	becomes(t, "allowed", reaches(w.b, netip.AddrPortFrom(w.c.Address(lab.IPv4), 8080)))
	becomes(t, "denied", unreached(w.a, netip.AddrPortFrom(w.c.Address(lab.IPv4), 8080)))
	becomes(t, "statistics", func(ctx context.Context) error {
		stats, err := diagnose.PolicyStats(ctx, agents, "n2")
		if err != nil {
			return err
		}
		for rule, decision := range []string{"denied", "allowed"} {
			i := slices.IndexFunc(stats, func(s agent.PolicyStat) bool {
				return s.Direction == "ingress" && s.Rule == rule && s.Decision == decision && slices.Equal(s.Policies, []intent.PolicyRef{denyAll})
			})
			if i < 0 || stats[i].Packets == 0 || stats[i].Bytes < 40*stats[i].Packets {
				return fmt.Errorf("nothing is %s by rule %d: %+v", decision, rule, stats)
			}
		}
		return nil
	})
	text, err := w.n2.Run(ctx, "curl", "-s", "http://127.0.0.1:10360/metrics")
	const series = `coelan_policy_rule_packets_total{decision="allowed",direction="ingress",kind="NetworkPolicy",namespace="lab",policy="web-deny",rule="1"}`
	if err != nil || !strings.Contains(text, series) {
		t.Errorf("metrics have no %s, %v", series, err)
	}
	b.open(w.b)
	b.open(w.c)
	b.publish(t)
}

// auditOfPolicies has the agent log what is denied, no faster than the Port's meter allows, in a namespace that asks for it.
func auditOfPolicies(t *testing.T, w *world, b *rulebook) {
	logged := func() int { return strings.Count(w.n2.AgentLogTail(), `"msg":"denied by policy"`) }
	to := netip.AddrPortFrom(w.c.Address(lab.IPv4), 5003)
	b.isolate(w.c, intent.Ingress)
	b.publish(t)
	ask := newAsker(t, w.a.Host, to)
	flood := func() {
		for range 200 {
			_, _ = ask.Write([]byte("?"))
			time.Sleep(time.Millisecond)
		}
	}
	flood()
	if n := logged(); n > 0 {
		t.Errorf("%d lines in a namespace that does not ask for them", n)
	}
	w.API.AnnotateNamespace("lab", map[string]string{v1alpha1.AnnotationAuditDenied: "true"})
	line := fmt.Sprintf(`"direction":"ingress","reason":"no rule of NetworkPolicy lab/web-deny allows it","protocol":"udp","source":"%s:%d","destination":%q,`+
		`"to":"lab/c/eth0","policies":["NetworkPolicy lab/web-deny"]`, w.a.Address(lab.IPv4), ask.LocalAddr().(*net.UDPAddr).Port, to.String())
	becomes(t, "a line", func(context.Context) error {
		_, _ = ask.Write([]byte("?"))
		if log := w.n2.AgentLogTail(); !strings.Contains(log, line) {
			return fmt.Errorf("no line has %s; the log ends:\n%s", line, log)
		}
		return nil
	})
	before := logged()
	flood()
	if n := logged() - before; n > 50 {
		t.Errorf("%d lines of 200 packets", n)
	}
	w.API.AnnotateNamespace("lab", nil)
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

// policiesWithoutController has agents start when no controller answers: they enforce what they were told last.
func policiesWithoutController(t *testing.T, w *world, b *rulebook) {
	ctx := t.Context()
	b.isolate(w.c, intent.Ingress, intent.Rule{Groups: b.group("b", w.b)})
	b.publish(t)
	at := netip.AddrPortFrom(w.c.Address(lab.IPv4), 8081)
	allowed, err := probe.StartTCP(ctx, w.b, at, probeInterval)
	if err != nil {
		t.Fatal(err)
	}
	defer allowed.Close()
	becomes(t, "policies are on disk", func(context.Context) error {
		if i, err := os.Stat(filepath.Join(w.n2.Config().StateDir, "policies.db")); err != nil || i.Size() == 0 {
			return fmt.Errorf("policies.db: %w", errors.Join(err, errors.New("is empty")))
		}
		return nil
	})
	// What is remembered is written a moment after it came.
	time.Sleep(2 * time.Second)
	w.Policies.Stop()
	seen := wire(t, w.c.Host)
	asking, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for asking.Err() == nil {
			_ = unreached(w.a, at)(asking)
		}
	}()
	for name, end := range map[string]func(){"stopped": w.n2.StopAgent, "killed": w.n2.KillAgent} {
		end()
		if err := w.n2.StartAgent(ctx); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var s agent.Status
		if err := w.n2.Query(ctx, "/v1/status", &s); err != nil {
			t.Fatal(err)
		}
		if s.Sync.Added+s.Sync.Changed+s.Sync.Deleted > 0 || s.Policies.Connected || s.Policies.Rules == 0 || len(s.Policies.Closed) > 0 {
			t.Errorf("%s: the agent has written flows, or forgotten policies: %+v, %+v", name, s.Sync, s.Policies)
		}
	}
	if err := w.n2.Reboot(ctx); err != nil {
		t.Fatal(err)
	}
	stop()
	if frames := seen.Frames(from(w.a, lab.IPv4)); len(frames) > 0 {
		t.Errorf("%d packets that are denied have arrived", len(frames))
	}
	allowed.Close()
	if err := w.Policies.Resume(); err != nil {
		t.Fatal(err)
	}
	becomes(t, "a controller is back", func(ctx context.Context) error {
		var s agent.Status
		if err := w.n2.Query(ctx, "/v1/status", &s); err != nil || !s.Policies.Connected {
			return fmt.Errorf("%+v, %w", s.Policies, err)
		}
		return nil
	})
}

// policiesOnFullDisk goes on with policies that cannot be remembered.
func policiesOnFullDisk(t *testing.T, w *world, b *rulebook) {
	ctx, dir := t.Context(), w.n1.Config().StateDir
	full := filepath.Join(dir, "full")
	w.n1.StopAgent()
	if err := keepOnTmpfs(t, dir); err != nil {
		t.Fatal(err)
	}
	if err := w.n1.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	b.publish(t)
	f, err := os.Create(full)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	b.isolate(w.b, intent.Ingress)
	b.publish(t)
	at := netip.AddrPortFrom(w.b.Address(lab.IPv4), 8080)
	becomes(t, "a policy while the disk is full", unreached(w.a, at))
	becomes(t, "a problem", func(ctx context.Context) error {
		var s agent.Status
		if err := w.n1.Query(ctx, "/v1/status", &s); err != nil || s.Policies.SaveError == "" {
			return fmt.Errorf("nothing is told of the disk: %+v, %w", s.Policies, err)
		}
		return nil
	})
	if err := errors.Join(f.Close(), os.Remove(full)); err != nil {
		t.Fatal(err)
	}
	b.open(w.b)
	b.publish(t)
	becomes(t, "open again", reaches(w.a, at))
}

// keepOnTmpfs moves a directory's files to a file system of 4 MB until the test ends.
func keepOnTmpfs(t *testing.T, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		return err
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// TestPoliciesOfTenants has pods of two tenants with the same addresses, of which one tenant isolates a pod.
func TestPoliciesOfTenants(t *testing.T) {
	w := startTenantsWith(t, lab.Options{Policies: true, Configure: nativeServices})
	b := &rulebook{w.world, map[string]intent.Rule{}, map[*lab.Pod]intent.Subject{}, map[string]intent.Peer{}}
	for _, p := range slices.Concat(w.red[:], w.blue[:]) {
		b.open(p)
	}
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
