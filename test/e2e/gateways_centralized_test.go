// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

// central is the gateway of a private Router with one address of each family, and pods of it.
type central struct {
	*gateway
	seen map[family]netip.Addr
	pods []string
	// far is on worker2, while worker1 is active for the addresses first of all.
	far string
}

// centrals are two tenants with the same subnets.
type centrals struct {
	red, blue *central
	plain     place // of no tenant
	fabric    place
}

// testCentralizedGateways has all Ports of a Router be seen as one address, of which one node is
// active at a time.
func testCentralizedGateways(t *testing.T) {
	ctx := within(t, 6*time.Minute)
	w := &centrals{plain: world.pod(ctx, t, "client1"), fabric: world.machine(ctx, t, "fabric")}
	w.red = openCentral(ctx, t, "red", 0, "red/client1", "red/web1", "red/web2")
	w.blue = openCentral(ctx, t, "blue", 1, "blue/shop1", "blue/shop2")
	agreedOn(ctx, t, w.on(worker1))
	inOrder(t, []step{
		{"out", w.out},
		{"restarts", w.restarts},
		{"power cut", w.powerCut},
		{"removed", w.removed},
	})
}

// openCentral gives a Router a centralized gateway, with addresses that worker1 is active for.
func openCentral(ctx context.Context, t *testing.T, router string, which int, pods ...string) *central {
	t.Helper()
	c := &central{seen: map[family]netip.Addr{}, pods: pods, far: pods[len(pods)-1]}
	var asked []netip.Addr
	for _, f := range families {
		c.seen[f] = firstOn(worker1, f, which+1)[which]
		asked = append(asked, c.seen[f])
	}
	c.gateway = openGateway(ctx, t, router, fmt.Sprintf(
		`"network": "office", "snat": "Centralized", "addresses": %s, "nodes": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}`, inFlow(asked)))
	if err := wait(ctx, named(&v1alpha1.Router{}, router), func(r *v1alpha1.Router) error {
		got, err := parseAddresses(r.Status.GatewayAddresses)
		if err == nil && (!slices.Equal(got, asked) || int(r.Status.GatewayNodes) != len(candidates)) {
			err = fmt.Errorf("%v on %d nodes, want %v", got, r.Status.GatewayNodes, asked)
		}
		if err != nil {
			return err
		}
		return says(r.Status.Conditions, v1alpha1.ConditionGatewayReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	}); err != nil {
		t.Fatal(err)
	}
	return c
}

// on has all addresses on one node.
func (w *centrals) on(node string) map[netip.Addr]string {
	active := map[netip.Addr]string{}
	for _, c := range []*central{w.red, w.blue} {
		for _, a := range c.seen {
			active[a] = node
		}
	}
	return active
}

// out has all pods of a Router be seen as its address, and others as their nodes.
func (w *centrals) out(t *testing.T) {
	ctx := within(t, time.Minute)
	heard := officeWire(t)
	w.leave(ctx, t)
	leaves(ctx, t, w.plain, ofNode(ctx, t, worker1))
	onlyKnown(t, heard, slices.Collect(maps.Keys(w.on(worker1)))...)
	answerAlone(ctx, t, w.on(worker1))
}

// leave waits until the outside sees all pods as the addresses of their Routers.
func (w *centrals) leave(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, c := range []*central{w.red, w.blue} {
		for _, key := range c.pods {
			leaves(ctx, t, world.tenant(ctx, t, key), c.seen)
		}
	}
}

// restarts kills all agents and controllers while the API server is away, and replaces the agents
// when it is back: 0 packets lost, and no address moves.
func (w *centrals) restarts(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	check := notAsNodes(ctx, t)
	var routes []route
	for _, c := range []*central{w.red, w.blue} {
		for _, key := range []string{c.pods[0], c.far} {
			routes = append(routes, route{way: key, from: world.tenant(ctx, t, key), to: w.fabric})
		}
	}
	tr := startTraffic(ctx, t, routes...)
	if err := world.Stop(ctx, control, "kube-apiserver", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	restartCoelan(ctx, t)
	for i, r := range routes {
		leavesNow(ctx, t, r.from, []*central{w.red, w.blue}[i/2].seen)
	}
	if err := world.Start(ctx, control, "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	if err := world.roll(ctx); err != nil {
		t.Error(err)
	}
	tr.settle(ctx, t)
	allow(t, tr.stop(t), 0)
	agreedOn(ctx, t, w.on(worker1))
	check()
}

// powerCut takes the power of the active node: the other one takes over, and stays active when the
// first is back.
func (w *centrals) powerCut(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	check := notAsNodes(ctx, t)
	var routes []route
	var from []place
	for _, c := range []*central{w.red, w.blue} {
		from = append(from, world.tenant(ctx, t, c.far))
		routes = append(routes, route{way: c.far, from: from[len(from)-1], to: w.fabric, datagrams: true})
	}
	tr := startTraffic(ctx, t, routes...)
	cut := cutPower(ctx, t, worker1)
	newConnections(ctx, t, cut.at, from...)
	tr.settle(ctx, t)
	allow(t, tr.stop(t), longestSilence)
	for i, c := range []*central{w.red, w.blue} {
		leavesNow(ctx, t, from[i], c.seen)
	}
	cut.back(ctx, t)
	w.leave(ctx, t)
	agreedOn(ctx, t, w.on(worker2))
	answerAlone(ctx, t, w.on(worker2))
	check()
	world.healthy(ctx, t)
}

// removed has pods leave as their nodes, and addresses given back.
func (w *centrals) removed(t *testing.T) {
	ctx := within(t, time.Minute)
	w.red.close(ctx, t)
	leaves(ctx, t, world.tenant(ctx, t, "red/web1"), ofNode(ctx, t, worker1))
	leaves(ctx, t, world.tenant(ctx, t, "red/web2"), ofNode(ctx, t, worker2))
	leaves(ctx, t, world.tenant(ctx, t, "blue/shop2"), w.blue.seen)
	for _, a := range w.red.seen {
		if err := waitGone(ctx, officeBlock(a)); err != nil {
			t.Error(err)
		}
	}
}
