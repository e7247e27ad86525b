// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/names"
)

// TestGateways has Ports of tenants with the same subnets leave the cluster by gateways of their
// Routers, with addresses of a physical network that a host there sees.
func TestGateways(t *testing.T) {
	useOffice(within(t, upTimeout), t)
	inOrder(t, []step{
		{"refused", testGatewaysRefused},
		{"distributed", testDistributedGateways},
		{"centralized", testCentralizedGateways},
	})
}

// testGatewaysRefused has gateways that cannot be say why.
func testGatewaysRefused(t *testing.T) {
	ctx := within(t, time.Minute)
	apply(ctx, t, "{apiVersion: coelan.io/v1alpha1, kind: Router, metadata: {name: lost}}")
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "vrf", "lost") })
	for _, tc := range []struct{ spec, reason string }{
		{`"network": "nothing"`, v1alpha1.ReasonNetworkNotFound},
		{`"network": "red"`, v1alpha1.ReasonNotExternal},
		{`"network": "office", "nodes": {"matchLabels": {"no": "node"}}`, v1alpha1.ReasonNoConnectedNode},
	} {
		r := named(&v1alpha1.Router{}, "lost")
		changeRouter(ctx, t, r, `"gateway": {`+tc.spec+`}`)
		if err := wait(ctx, r, func(r *v1alpha1.Router) error {
			return says(r.Status.Conditions, v1alpha1.ConditionGatewayReady, metav1.ConditionFalse, tc.reason)
		}); err != nil {
			t.Errorf("%s: %v", tc.spec, err)
		}
		changeRouter(ctx, t, r, `"gateway": null`)
	}
}

// changeRouter merges fields into a Router's spec.
func changeRouter(ctx context.Context, t *testing.T, r *v1alpha1.Router, fields string) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec": {`+fields+`}}`))
	if err := world.objects.Patch(ctx, r, patch); err != nil {
		t.Fatal(err)
	}
}

// gateway is that of a Router.
type gateway struct {
	router    string
	addresses map[string]map[family]netip.Addr // of nodes
}

// openGateway gives a Router a gateway, for as long as the test runs.
func openGateway(ctx context.Context, t *testing.T, router, spec string) *gateway {
	t.Helper()
	g := &gateway{router: router}
	g.change(ctx, t, spec)
	t.Cleanup(func() { g.close(context.WithoutCancel(ctx), t) })
	return g
}

// change merges fields into the gateway's spec.
func (g *gateway) change(ctx context.Context, t *testing.T, spec string) {
	t.Helper()
	changeRouter(ctx, t, named(&v1alpha1.Router{}, g.router), `"gateway": {`+spec+`}`)
}

// close removes the gateway, and waits until it has no addresses.
func (g *gateway) close(ctx context.Context, t *testing.T) {
	t.Helper()
	changeRouter(ctx, t, named(&v1alpha1.Router{}, g.router), `"gateway": null`)
	if err := g.await(ctx); err != nil {
		t.Error(err)
	}
}

// onNodes waits until just these nodes have addresses, of both families.
func (g *gateway) onNodes(ctx context.Context, t *testing.T, nodes ...string) {
	t.Helper()
	if err := g.await(ctx, nodes...); err != nil {
		t.Fatal(err)
	}
	r := named(&v1alpha1.Router{}, g.router)
	if err := wait(ctx, r, func(r *v1alpha1.Router) error {
		if int(r.Status.GatewayNodes) != len(nodes) {
			return fmt.Errorf("%d nodes, want %v", r.Status.GatewayNodes, nodes)
		}
		return says(r.Status.Conditions, v1alpha1.ConditionGatewayReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	}); err != nil {
		t.Error(err)
	}
}

func (g *gateway) await(ctx context.Context, nodes ...string) error {
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	return eventually(ctx, func() (err error) {
		if g.addresses, err = gatewayAddresses(ctx, g.router); err != nil {
			return err
		}
		for _, node := range nodes {
			if len(g.addresses[node]) != len(families) {
				return fmt.Errorf("gateway of Router %s: %v, want addresses of %s", g.router, g.addresses, node)
			}
		}
		if len(g.addresses) != len(nodes) {
			return fmt.Errorf("gateway of Router %s: %v, want those of %v", g.router, g.addresses, nodes)
		}
		return nil
	})
}

// all are the addresses of all nodes.
func (g *gateway) all() (list []netip.Addr) {
	for _, of := range g.addresses {
		for _, a := range of {
			list = append(list, a)
		}
	}
	return list
}

// gatewayAddresses are those that nodes have of a Router's gateway.
func gatewayAddresses(ctx context.Context, router string) (map[string]map[family]netip.Addr, error) {
	var blocks v1alpha1.AddressBlockList
	if err := world.objects.List(ctx, &blocks); err != nil {
		return nil, err
	}
	addresses := map[string]map[family]netip.Addr{}
	for _, b := range blocks.Items {
		node, is := strings.CutPrefix(b.Spec.Gateway, router+"/")
		if !is {
			continue
		}
		prefix, err := netip.ParsePrefix(b.Spec.CIDR)
		if err != nil || b.Name != names.BlockName(b.Spec.Network, prefix) {
			return nil, fmt.Errorf("AddressBlock %s has the prefix %s: %w", b.Name, b.Spec.CIDR, err)
		}
		if addresses[node] == nil {
			addresses[node] = map[family]netip.Addr{}
		}
		addresses[node][family4or6(prefix.Addr())] = prefix.Addr()
	}
	return addresses, nil
}

// leaves waits until the outside sees a pod by these addresses, both beyond the external Network
// and in it.
func leaves(ctx context.Context, t *testing.T, from place, seen map[family]netip.Addr) {
	t.Helper()
	for _, f := range families {
		for _, to := range []netip.Addr{outside(f), officeGateway[f].Addr()} {
			seenAs(ctx, t, from, netip.AddrPortFrom(to, 80), seen[f])
		}
	}
}

// seenAs waits until a server sees a pod by an address.
func seenAs(ctx context.Context, t *testing.T, from place, server netip.AddrPort, want netip.Addr) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, learning)
	defer cancel()
	if err := eventually(ctx, func() error {
		got, err := clientOf(ctx, from, server)
		if err == nil && got != want {
			err = errors.New("as " + got.String())
		}
		return err
	}); err != nil {
		t.Errorf("%s is seen by %s, want as %s: %v", from.name, server, want, err)
	}
}

// ofNode are the addresses of a node, by which Ports leave without a gateway.
func ofNode(ctx context.Context, t *testing.T, node string) map[family]netip.Addr {
	t.Helper()
	addresses := map[family]netip.Addr{}
	for _, f := range families {
		addresses[f] = world.nodeAddress(ctx, t, node, f)
	}
	return addresses
}
