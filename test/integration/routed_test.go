// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/diagnose"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// routedWorld has Routers that lead out and in without translation.
type routedWorld struct {
	*external
	exits
	pods []routedPod
}

// routedPod is a pod or virtual machine with its own addresses, by which the outside reaches it.
type routedPod struct {
	name string
	host *lab.Host
	own  func(lab.Family) netip.Addr
}

// TestRoutedGateways takes Routers without translation through everything that they are for.
func TestRoutedGateways(t *testing.T) {
	t.Parallel()
	w := startRouted(t)
	for _, p := range w.pods {
		w.leaves(t, p.host, p.own)
	}
	t.Run("in", func(t *testing.T) { routedIn(t, w) })
	t.Run("in the cluster", func(t *testing.T) { routedInCluster(t, w) })
	t.Run("not in", func(t *testing.T) { routedNotIn(t, w) })
	t.Run("policies", func(t *testing.T) { routedPolicies(t, w) })
	t.Run("sizes", func(t *testing.T) { routedSizes(t, w) })
	t.Run("trace", func(t *testing.T) { routedTraces(t, w) })
	t.Run("a floating IP", func(t *testing.T) { routedFloating(t, w) })
	awaitCheck(within(t, time.Minute), t, w.world)
	t.Run("translated", func(t *testing.T) { routedTranslated(t, w) })
}

func startRouted(t *testing.T) *routedWorld {
	w := &routedWorld{external: startExternal(t)}
	w.exits = w.external.exits()
	none := v1alpha1.RouterGateway{Network: "office", SNAT: v1alpha1.NoSNAT}
	heard := wire(t, w.near)
	var outers []outer
	for _, x := range []exit{w.red, w.red2, w.shop, w.lan} {
		if err := w.API.SetRouterGateway(x.router, none); err != nil {
			t.Fatal(err)
		}
		for f := range lab.Dual.Each {
			w.API.AddGatewayAddress(x.router, x.node.Name, "office", x.address(f).String())
		}
		outers = append(outers, x.outer)
	}
	announced(t, heard, outers...)
	// What is on n2 as well comes in by n1.
	for f := range lab.Dual.Each {
		for prefix, x := range map[[2]string]exit{
			{"10.50.0.0/24", "fd00:50::/64"}: w.red, {"10.60.0.0/16", "fd00:60::/64"}: w.shop, {"10.70.0.0/24", "fd00:70::/64"}: w.lan,
		} {
			to := netip.MustParsePrefix(map[lab.Family]string{lab.IPv4: prefix[0], lab.IPv6: prefix[1]}[f])
			run(t, w.Outside, "ip", "route", "add", to.String(), "via", x.address(f).String())
			t.Cleanup(func() { run(t, w.Outside, "ip", "route", "del", to.String()) })
			if err := w.near.AddRoute(to, x.address(f)); err != nil {
				t.Fatal(err)
			}
		}
	}
	of := func(p *lab.Pod, name string) func(lab.Family) netip.Addr {
		return func(f lab.Family) netip.Addr { return p.Own(name, f) }
	}
	w.pods = []routedPod{
		{"tenant", w.external.red[0].Host, of(w.external.red[0], "eth0")},
		{"tenant on the other node", w.external.red[2].Host, of(w.external.red[2], "eth0")},
		{"shared Router", w.shared.Host, of(w.shared, "eth0")},
		{"second interface", w.several.Host, of(w.several, "lan0")},
		{"virtual machine", w.vm.Host, func(f lab.Family) netip.Addr {
			return netip.MustParseAddr(map[lab.Family]string{lab.IPv4: "10.70.0.200", lab.IPv6: "fd00:70::200"}[f])
		}},
	}
	for f := range lab.Dual.Each {
		for _, p := range w.pods {
			answers(t, p.host, netip.AddrPortFrom(p.own(f), answerPort))
		}
	}
	return w
}

// routedIn has hosts outside reach the pods by their own addresses, which are seen as themselves.
func routedIn(t *testing.T, w *routedWorld) {
	inBothFamilies(func(f lab.Family) {
		for _, p := range w.pods {
			for _, from := range []*lab.Host{w.near, w.far} {
				asking{
					name: p.name, from: from, to: netip.AddrPortFrom(p.own(f), answerPort), want: []string{p.host.Name}, seen: from.Address(f),
				}.check(t)
			}
		}
	})
}

// routedInCluster has pods reach each other, nodes and Services as without a gateway.
func routedInCluster(t *testing.T, w *routedWorld) {
	publish(w.world, "lab", "inner", 48, nil, w.a)
	publish(w.world, "red", "reds", 49, nil, w.external.red[2])
	for f := range lab.Dual.Each {
		answers(t, w.a.Host, netip.AddrPortFrom(w.a.Address(f), answerPort))
	}
	inBothFamilies(func(f lab.Family) {
		red0, red2 := w.external.red[0], w.external.red[2]
		for from, to := range map[*lab.Host]netip.AddrPort{w.shared.Host: clusterIPOf(48, f), red0.Host: clusterIPOf(49, f)} {
			becomes(t, "the Service is known", func(ctx context.Context) error {
				who, _, err := ask(ctx, from, "tcp", to, time.Second)
				if err == nil && (who == unanswered || who == refused) {
					err = fmt.Errorf("%s from %s: %s", to, from.Name, who)
				}
				return err
			})
		}
		for _, a := range []asking{
			{name: "a Service of the tenant", from: red0.Host, to: clusterIPOf(49, f), want: []string{red2.Name}, seen: red0.Address(f)},
			{name: "a Service of default", from: w.shared.Host, to: clusterIPOf(48, f), want: []string{w.a.Name}},
			{name: "the other node's pod", from: red0.Host, to: netip.AddrPortFrom(red2.Own("eth0", f), answerPort), want: []string{red2.Name}, seen: red0.Own("eth0", f)},
		} {
			a.check(t)
		}
		for _, p := range []*lab.Pod{red0, w.shared} {
			if r, err := (probe.Ping{Dst: p.Node.Gateway(f), Wait: time.Second}).Run(t.Context(), p.Host); err != nil || r.Lost() > 0 {
				t.Errorf("%s: %s does not reach its node: %v", f, p.Name, err)
			}
		}
	})
}

// routedNotIn sends to the gateways what is not for their Routers' Networks.
func routedNotIn(t *testing.T, w *routedWorld) {
	inBothFamilies(func(f lab.Family) {
		for name, c := range map[string]struct {
			to  netip.Addr
			via exit
		}{
			"a node, by a shared Router":             {w.n2.Gateway(f), w.shop},
			"a pod of default, by a shared Router":   {w.a.Address(f), w.shop},
			"a pod of a tenant, by a shared Router":  {w.external.red[0].Own("eth0", f), w.shop},
			"a pod of default, by a tenant's Router": {w.a.Address(f), w.red},
		} {
			route := netip.PrefixFrom(c.to, c.to.BitLen()).String()
			run(t, w.near, "ip", "route", "replace", route, "via", c.via.address(f).String())
			who, _, err := ask(t.Context(), w.near, "tcp", netip.AddrPortFrom(c.to, answerPort), probe.AnswerTimeout/4)
			if who != unanswered || err != nil {
				t.Errorf("%s: %s: %q answers, %v", f, name, who, err)
			}
			run(t, w.near, "ip", "route", "del", route)
		}
	})
}

// routedPolicies has an ingress rule see true clients, and an egress rule true destinations.
func routedPolicies(t *testing.T, w *routedWorld) {
	red0, red2 := w.external.red[0], w.external.red[2]
	for _, p := range []*lab.Pod{red0, red2} {
		w.rules.isolate(p, intent.Ingress, intent.Rule{Blocks: blocks(both(w.far.Address)...)})
	}
	w.rules.publish(t)
	inBothFamilies(func(f lab.Family) {
		for _, p := range []*lab.Pod{red0, red2} {
			at := netip.AddrPortFrom(p.Own("eth0", f), answerPort)
			becomes(t, "the policy is in effect", func(ctx context.Context) error {
				who, _, err := ask(ctx, w.near, "tcp", at, probe.AnswerTimeout/4)
				if err == nil && who != unanswered {
					err = fmt.Errorf("%q answers", who)
				}
				return err
			})
			asking{name: "allowed", from: w.far, to: at, want: []string{p.Name}, seen: w.far.Address(f)}.check(t)
		}
	})
	for _, p := range []*lab.Pod{red0, red2} {
		w.rules.open(p)
	}
	w.rules.publish(t)
	for f := range lab.Dual.Each {
		becomes(t, "the policy is gone", func(ctx context.Context) error {
			who, _, err := ask(ctx, w.near, "tcp", netip.AddrPortFrom(red0.Own("eth0", f), answerPort), time.Second)
			if err == nil && who != red0.Name {
				err = fmt.Errorf("%q answers", who)
			}
			return err
		})
	}
}

// routedSizes sends what is too big, in and out.
func routedSizes(t *testing.T, w *routedWorld) {
	red2 := w.external.red[2]
	for f := range lab.Dual.Each {
		serve(t, red2.Host, netip.AddrPortFrom(red2.Own("eth0", f), muchPort), sendMuch)
	}
	inBothFamilies(func(f lab.Family) {
		want, own := tooBig[f], red2.Own("eth0", f)
		r, err := (probe.Ping{Dst: own, Size: 1500 - headers[f]}).Run(t.Context(), w.near)
		tooBig := probe.ICMPError{From: own, Type: want[0], Code: want[1], MTU: 1450}
		if err != nil || len(r.Errors) != 1 || r.Errors[0] != tooBig {
			t.Errorf("%s: replies %v, errors %v, %v; want %v", f, r.Replies, r.Errors, err, tooBig)
		}
		// The wire beyond the gateway is narrow, which the pod has to learn.
		if err := getMuch(within(t, 10*time.Second), w.far, netip.AddrPortFrom(own, muchPort)); err != nil {
			t.Errorf("%s: %s gets from %s: %v", f, w.far.Name, own, err)
		}
	})
}

// routedTraces asks as `coelan trace` does, from inside and from outside.
func routedTraces(t *testing.T, w *routedWorld) {
	for f := range lab.Dual.Each {
		gateway, red0, red2 := office(f, officeGateway), w.external.red[0].Own("eth0", f), w.external.red[2].Own("eth0", f)
		for name, tc := range map[string]struct {
			from       string
			source, to netip.Addr
			want       string
		}{
			"out":                   {"red/r0", netip.Addr{}, lab.Internet(f), fmt.Sprintf("n1 by red as %s via %s physical", w.red.address(f), gateway)},
			"in":                    {"outside", w.far.Address(f), red0, "n1 to red pod"},
			"in, to the other node": {"outside", w.far.Address(f), red2, "n1 to red tunnel, n2 pod"},
		} {
			way, err := diagnose.Trace(t.Context(), labAgents{w.Lab}, diagnose.Packet{
				Node: "n1", From: tc.from, Source: tc.source, Destination: tc.to, Protocol: "tcp", SourcePort: 49152, DestinationPort: answerPort,
			})
			if got := gatewayWayOf(way); err != nil || got != tc.want {
				t.Errorf("%s %s: %q, %v; want %q", f, name, got, err, tc.want)
			}
		}
	}
}

// routedFloating has a floating IP come before the Router's gateway.
func routedFloating(t *testing.T, w *routedWorld) {
	red0 := w.external.red[0]
	x := ofPod(red0, 171)
	w.bind(x)
	w.leaves(t, red0.Host, x.address)
	w.release(x)
	w.leaves(t, red0.Host, func(f lab.Family) netip.Addr { return red0.Own("eth0", f) })
}

// routedTranslated has the Router be one that translates, in IPv4 alone first.
func routedTranslated(t *testing.T, w *routedWorld) {
	red0 := w.external.red[0]
	own := func(f lab.Family) netip.Addr { return red0.Own("eth0", f) }
	if err := w.API.SetRouterGateway("red", v1alpha1.RouterGateway{Network: "office", SNATFamilies: []v1alpha1.IPFamily{v1alpha1.IPv4}}); err != nil {
		t.Fatal(err)
	}
	w.leaves(t, red0.Host, func(f lab.Family) netip.Addr {
		if f == lab.IPv4 {
			return w.red.address(f)
		}
		return own(f)
	})
	if err := w.API.AddRouterGateway("red", "office"); err != nil {
		t.Fatal(err)
	}
	w.leaves(t, red0.Host, w.red.address)
	for f := range lab.Dual.Each {
		who, _, err := ask(t.Context(), w.near, "tcp", netip.AddrPortFrom(own(f), answerPort), probe.AnswerTimeout/4)
		if who != unanswered || err != nil {
			t.Errorf("%s: what comes from outside still gets in: %q, %v", f, who, err)
		}
	}
}
