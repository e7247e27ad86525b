// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/diagnose"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
)

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
	trace := func(from *lab.Pod, to netip.AddrPort) agentapi.Trace {
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
			i := slices.IndexFunc(stats, func(s agentapi.PolicyStat) bool {
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

// auditOfPolicies has the agent log what is denied, no faster than the Port's meter allows, in a
// namespace that asks for it.
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
