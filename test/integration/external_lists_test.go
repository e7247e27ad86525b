// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/diagnose"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// externalLists asks what nodes have of the external Network, as `coelan get` does: a floating IP
// of a pod, and the Network's gateway. What the virtual machine sends is counted for its Router.
func externalLists(t *testing.T, w *external) {
	agents, x := labAgents{w.Lab}, ofPod(w.a, 171)
	w.bind(x)
	w.awaitAnswers(t, x)
	for node, want := range map[string][]string{
		"n1": {fmt.Sprint("lab/a-IPv4 of lab/a.eth0 ", x.address(lab.IPv4)), fmt.Sprint("lab/a-IPv6 of lab/a.eth0 ", x.address(lab.IPv6))},
		"n2": nil,
	} {
		becomes(t, "floating IPs of "+node, func(ctx context.Context) error {
			list, err := diagnose.FloatingIPs(ctx, agents, node)
			if err != nil {
				return err
			}
			var got []string
			for _, f := range list {
				got = append(got, fmt.Sprintf("%s/%s of %s %s", f.Namespace, f.Name, f.Port, f.Address)+missing(f.ExternalAddress))
			}
			return differ(want, got)
		})
	}
	// By default, connections have limits on the userspace datapath alone.
	limited := lab.Datapath() == config.DatapathNetdev
	becomes(t, "what leaves by the gateway is counted", func(ctx context.Context) error {
		if _, err := (probe.Ping{Dst: w.far.Address(lab.IPv4), Wait: time.Second}).Run(ctx, w.vm.Host); err != nil {
			return err
		}
		list, err := diagnose.Gateways(ctx, agents, "n1")
		if err != nil {
			return err
		}
		for _, g := range list {
			if c := g.Translations; g.Router == "lan" && (c == nil || c.Count == 0 || limited && c.Limit <= c.Count) {
				return fmt.Errorf("%s: %+v", g.Address, c)
			}
		}
		return nil
	})
	for f := range lab.Dual.Each {
		becomes(t, "n1 knows the gateway", func(ctx context.Context) error {
			hops, err := diagnose.NextHops(ctx, agents, "n1")
			if err == nil && !slices.ContainsFunc(hops, func(h agentapi.NextHop) bool {
				return h.Address == office(f, officeGateway) && h.Gateway && h.MAC != "" && !h.Silent
			}) {
				err = fmt.Errorf("%s: %+v", f, hops)
			}
			return err
		})
	}
}

// awaitGateways waits until nodes have the gateways of Routers, each "ROUTER ADDRESS", in effect.
func awaitGateways(t *testing.T, w *external, gateways map[string][]string) {
	t.Helper()
	for node, want := range gateways {
		slices.Sort(want)
		becomes(t, "gateways of "+node, func(ctx context.Context) error {
			list, err := diagnose.Gateways(ctx, labAgents{w.Lab}, node)
			if err != nil {
				return err
			}
			var got []string
			for _, g := range list {
				got = append(got, fmt.Sprint(g.Router, " ", g.Address, missing(g.ExternalAddress)))
			}
			slices.Sort(got)
			return differ(want, got)
		})
	}
}

// differ is an error that shows in what lists differ.
func differ(want, got []string) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("(-want +got):\n%s", diff)
	}
	return nil
}

// missing says what keeps packets from passing; empty: nothing.
func missing(a agentapi.ExternalAddress) string {
	if !a.InEffect || a.MAC == "" || a.NextHop == nil || a.NextHop.MAC == "" {
		return fmt.Sprintf(": %+v by %+v", a, a.NextHop)
	}
	return ""
}
