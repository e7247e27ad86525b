// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
)

// shop is the namespace of the pods that Egresses select.
const shop = "shop"

// payers are pods that an Egress selects, on all nodes. The control plane's is not connected to the
// external Network, so that what they send from there goes through the tunnel.
type payers struct {
	addresses map[family][]netip.Addr // of the Egress bank, one that each worker has first of all
	home      map[netip.Addr]string   // these workers
	far       []*payer                // on the control plane: together they have all addresses
	pay1      *payer                  // on worker1
	pay2      *payer                  // on worker2
	fabric    place
}

// payer is a pod, and the addresses that the outside sees it as.
type payer struct {
	place
	node string
	seen map[family]netip.Addr
}

// TestEgress has chosen pods of all nodes leave the cluster by addresses of an external Network.
func TestEgress(t *testing.T) {
	ctx := within(t, upTimeout)
	useOffice(ctx, t)
	w := &payers{
		addresses: map[family][]netip.Addr{}, home: map[netip.Addr]string{}, fabric: world.machine(ctx, t, "fabric"),
	}
	w.prepare(ctx, t)
	inOrder(t, []step{
		{"refused", testEgressRefused},
		{"out", w.out},
		{"shown", w.shown},
		{"destinations", w.destinations},
		{"two for one pod", w.rivals},
		{"private Router", w.privateRouter},
		{"restarts", w.restarts},
		{"planned", w.planned},
		{"candidates apart", w.apart},
		{"cut off", w.cutOff},
		{"power cut", w.powerCut},
		{"removed", w.removed},
	})
}

// prepare makes the pods and the Egress bank, and disconnects the control plane from the external
// Network.
func (w *payers) prepare(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := errors.Join(world.unplugOffice(ctx, control), world.awaitOffice(ctx, control, false)); err != nil {
		t.Fatal(err)
	}
	// On the userspace datapath Open vSwitch receives nothing from a card that has come back, until
	// that is a new port. So the next test that needs it connects all nodes from the beginning.
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if err := errors.Join(world.plugOffice(ctx, control), world.disconnectOffice(ctx)); err != nil {
			t.Error(err)
		}
	})
	apply(ctx, t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+shop+"}}")
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "namespace", shop) })
	for _, f := range families {
		for _, node := range candidates {
			a := firstOn(node, f, 1)[0]
			w.addresses[f], w.home[a] = append(w.addresses[f], a), node
		}
	}
	w.pay1, w.pay2 = w.selected(ctx, t, "pay1", worker1), w.selected(ctx, t, "pay2", worker2)
	plain := sleeper(shop+"/plain", control)
	plain.Labels = map[string]string{"app": "other"}
	makePod(ctx, t, plain)
	if err := world.waitReady(ctx, shop+"/plain"); err != nil {
		t.Fatal(err)
	}
	openEgress(ctx, t, "bank", "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: "+shop+"}}, podSelector: {matchLabels: {app: payment}}, "+
		"network: office, addresses: "+inFlow(w.all())+", failback: true, "+onlyWorkers)
	agreedOn(ctx, t, w.home)
}

// selected makes a pod that the Egress bank selects.
func (w *payers) selected(ctx context.Context, t *testing.T, name, node string) *payer {
	t.Helper()
	p := sleeper(shop+"/"+name, node)
	p.Labels = map[string]string{"app": "payment"}
	makePod(ctx, t, p)
	if err := world.waitReady(ctx, shop+"/"+name); err != nil {
		t.Fatal(err)
	}
	return &payer{place: world.pod(ctx, t, shop+"/"+name), node: node}
}

// all are the addresses of the Egress bank.
func (w *payers) all() []netip.Addr { return slices.Concat(w.addresses[ipv4], w.addresses[ipv6]) }

// pods are all that the Egress bank selects.
func (w *payers) pods() []*payer { return append([]*payer{w.pay1, w.pay2}, w.far...) }

// openEgress makes an Egress, for as long as the test runs, and waits until it is ready.
func openEgress(ctx context.Context, t *testing.T, name, spec string) *v1alpha1.Egress {
	t.Helper()
	apply(ctx, t, "{apiVersion: coelan.io/v1alpha1, kind: Egress, metadata: {name: "+name+"}, spec: {"+spec+"}}")
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "egress", name) })
	o := named(&v1alpha1.Egress{}, name)
	if err := wait(ctx, o, func(o *v1alpha1.Egress) error {
		return says(o.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	}); err != nil {
		t.Fatal(err)
	}
	return o
}

// changeEgress merges fields into an Egress's spec.
func changeEgress(ctx context.Context, t *testing.T, name, fields string) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec": {`+fields+`}}`))
	if err := world.objects.Patch(ctx, named(&v1alpha1.Egress{}, name), patch); err != nil {
		t.Fatal(err)
	}
}

// closeEgress removes an Egress, and waits until its addresses are free.
func closeEgress(ctx context.Context, t *testing.T, name string, addresses ...netip.Addr) {
	t.Helper()
	remove(ctx, t, "egress", name)
	for _, a := range addresses {
		if err := waitGone(ctx, officeBlock(a)); err != nil {
			t.Error(err)
		}
	}
}

// testEgressRefused has Egresses that cannot be say why.
func testEgressRefused(t *testing.T) {
	ctx := within(t, time.Minute)
	for _, tc := range []struct{ name, spec, reason string }{
		{"nothing", "network: nothing", v1alpha1.ReasonNetworkNotFound},
		{"overlay", "network: red", v1alpha1.ReasonNotExternal},
		{"nowhere", "network: office, nodes: {matchLabels: {no: node}}", v1alpha1.ReasonNoConnectedNode},
		{"disconnected", "network: office, nodes: {matchLabels: {kubernetes.io/hostname: " + control + "}}", v1alpha1.ReasonNoConnectedNode},
		{"gateway", "network: office, addresses: [198.51.100.1]", v1alpha1.ReasonAddressOutside},
		{"range", "network: office, addresses: [198.51.100.50]", v1alpha1.ReasonAddressOutside},
		{"taken", "network: office, addresses: " + inFlow(firstOn(worker1, ipv4, 1)), v1alpha1.ReasonAddressTaken},
		// It has the address nevertheless: no node may announce it, which the next step hears.
		{"family", "network: office, addresses: [198.51.100.110], destinations: ['2001:db8::/32'], nodes: {matchLabels: {no: node}}",
			v1alpha1.ReasonWrongFamily},
	} {
		apply(ctx, t, "{apiVersion: coelan.io/v1alpha1, kind: Egress, metadata: {name: "+tc.name+"}, "+
			"spec: {podSelector: {matchLabels: {app: none}}, "+tc.spec+"}}")
		if err := wait(ctx, named(&v1alpha1.Egress{}, tc.name), func(o *v1alpha1.Egress) error {
			return says(o.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionFalse, tc.reason)
		}); err != nil {
			t.Error(err)
		}
		remove(ctx, t, "egress", tc.name)
	}
}

// out has the selected pods be seen as addresses of the Egress, each as one of a family, also those
// of a node that is not connected; and others as their nodes.
func (w *payers) out(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	heard := officeWire(t)
	// Which address a pod has follows from the pod's own: with enough pods each has some.
	const most = 24
	used := map[netip.Addr]bool{}
	for n := 1; len(used) < len(w.home); n++ {
		if n > most {
			t.Fatalf("%d pods are seen as %v only, of %v", most, slices.Collect(maps.Keys(used)), w.all())
		}
		p := w.selected(ctx, t, fmt.Sprintf("far%d", n), control)
		w.learn(ctx, t, p)
		if used[p.seen[ipv4]] && used[p.seen[ipv6]] {
			removePods(ctx, t, p.name)
			continue
		}
		used[p.seen[ipv4]], used[p.seen[ipv6]] = true, true
		w.far = append(w.far, p)
	}
	w.learn(ctx, t, w.pay1)
	w.learn(ctx, t, w.pay2)
	w.leave(ctx, t)
	for _, p := range w.pods() {
		for range 4 { // each is a new connection
			leavesNow(ctx, t, p.place, p.seen)
		}
	}
	leaves(ctx, t, world.pod(ctx, t, shop+"/plain"), ofNode(ctx, t, control))
	leaves(ctx, t, world.pod(ctx, t, "client1"), ofNode(ctx, t, worker1))
	onlyKnown(t, heard, w.all()...)
}

// learn finds out as which addresses a pod is seen.
func (w *payers) learn(ctx context.Context, t *testing.T, p *payer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, learning)
	defer cancel()
	p.seen = map[family]netip.Addr{}
	for _, f := range families {
		if err := eventually(ctx, func() error {
			a, err := clientOf(ctx, p.place, netip.AddrPortFrom(outside(f), 80))
			if err == nil && !slices.Contains(w.addresses[f], a) {
				err = errors.New("as " + a.String())
			}
			p.seen[f] = a
			return err
		}); err != nil {
			t.Fatalf("the outside sees %s, want as one of %v: %v", p.name, w.addresses[f], err)
		}
	}
}

// leave waits until the outside sees all pods as before.
func (w *payers) leave(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, p := range w.pods() {
		leaves(ctx, t, p.place, p.seen)
	}
}

// leavesNow has the outside see a pod by these addresses at once.
func leavesNow(ctx context.Context, t *testing.T, from place, seen map[family]netip.Addr) {
	t.Helper()
	for _, f := range families {
		way{from: from, server: netip.AddrPortFrom(outside(f), 80), seen: seen[f]}.check(ctx, t)
	}
}

// shown looks at what users see of an Egress.
func (w *payers) shown(t *testing.T) {
	ctx := within(t, time.Minute)
	var want []string
	for _, f := range families {
		for _, a := range slices.SortedFunc(slices.Values(w.addresses[f]), netip.Addr.Compare) {
			want = append(want, a.String())
		}
	}
	if err := wait(ctx, named(&v1alpha1.Egress{}, "bank"), func(o *v1alpha1.Egress) error {
		if !slices.Equal(o.Status.Addresses, want) || !slices.Equal(o.Status.ActiveNodes, candidates) {
			return fmt.Errorf("addresses %v on %v, want %v on %v", o.Status.Addresses, o.Status.ActiveNodes, want, candidates)
		}
		return says(o.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	}); err != nil {
		t.Error(err)
	}
	out, err := world.coelan(ctx, "get", "egress")
	for a, node := range w.home {
		row := fmt.Sprintf("egress/bank office %s %s %s %s", a, strings.Join(candidates, ","), node, node)
		if !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool { return strings.Join(strings.Fields(line), " ") == row }) {
			t.Errorf("no row %s, %v in:\n%s", row, err, out)
		}
	}
	p := w.far[0]
	namespace, name := split(p.name)
	for _, f := range families {
		node := w.home[p.seen[f]]
		out, err := world.coelan(ctx, "trace", "-n", namespace, name, netip.AddrPortFrom(outside(f), 80).String())
		if err != nil {
			t.Error(err)
		}
		for _, text := range []string{"node " + p.node, "tunnel to node " + node, "node " + node, "Egress bank: the source becomes " + p.seen[f].String(), "to the physical network office"} {
			if !strings.Contains(out, text) {
				t.Errorf("a trace does not say %q:\n%s", text, out)
			}
		}
		out, err = world.coelan(ctx, "trace", "outside:"+outside(f).String(), netip.AddrPortFrom(p.seen[f], 80).String())
		if text := "Egress bank: " + p.seen[f].String(); err != nil || !strings.Contains(out, text) {
			t.Errorf("a trace from outside does not say %q, %v:\n%s", text, err, out)
		}
	}
}

// destinations limits what leaves by the Egress.
func (w *payers) destinations(t *testing.T) {
	ctx := within(t, time.Minute)
	changeEgress(ctx, t, "bank", `"destinations": ["203.0.113.0/24", "2001:db8:cafe::/48"]`)
	for _, p := range w.pods() {
		node := ofNode(ctx, t, p.node)
		for _, f := range families {
			seenAs(ctx, t, p.place, netip.AddrPortFrom(officeGateway[f].Addr(), 80), node[f])
		}
		leavesNow(ctx, t, p.place, p.seen)
	}
	changeEgress(ctx, t, "bank", `"destinations": null`)
	w.leave(ctx, t)
}

// rivals has a pod leave by the older one of two Egresses, and by the younger one when the older
// one does not select it any more.
func (w *payers) rivals(t *testing.T) {
	ctx := within(t, time.Minute)
	late := named(&v1alpha1.Egress{}, "late")
	apply(ctx, t, "{apiVersion: coelan.io/v1alpha1, kind: Egress, metadata: {name: late}, "+
		"spec: {podSelector: {matchExpressions: [{key: app, operator: In, values: [payment, late]}]}, network: office, count: 1}}")
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "egress", "late") })
	if err := wait(ctx, late, func(o *v1alpha1.Egress) error {
		return says(o.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonPodsTaken)
	}); err != nil {
		t.Fatal(err)
	}
	message := late.Status.Conditions[0].Message
	if !strings.Contains(message, "Egress") || !strings.Contains(message, "bank") || !strings.Contains(message, shop+"/") {
		t.Errorf("the younger Egress says %q, want the name of a pod and of the other Egress", message)
	}
	if _, err := warning(ctx, metav1.NamespaceDefault+"/late", "bank"); err != nil {
		t.Error(err)
	}
	addresses, err := parseAddresses(late.Status.Addresses)
	if err != nil || len(addresses) != len(families) {
		t.Fatalf("the younger Egress has %v, %v; want an address of each family", late.Status.Addresses, err)
	}
	agreed(ctx, t, addresses...)
	for _, p := range w.pods() {
		leavesNow(ctx, t, p.place, p.seen)
	}
	t.Run("label", func(t *testing.T) {
		label(ctx, t, w.pay1.name, "app", "late", "payment")
		leaves(ctx, t, w.pay1.place, map[family]netip.Addr{ipv4: addresses[0], ipv6: addresses[1]})
		leavesNow(ctx, t, w.pay2.place, w.pay2.seen)
	})
	leaves(ctx, t, w.pay1.place, w.pay1.seen)
	closeEgress(ctx, t, "late", addresses...)
	for _, p := range w.pods() {
		leavesNow(ctx, t, p.place, p.seen)
	}
}

// privateRouter has the pods of a tenant be seen as one address, and those of another tenant, with
// the same subnets, as their nodes.
func (w *payers) privateRouter(t *testing.T) {
	ctx := within(t, time.Minute)
	o := openEgress(ctx, t, "red", "namespaceSelector: {matchLabels: {tenant: red}}, network: office")
	addresses, err := parseAddresses(o.Status.Addresses)
	if err != nil || len(addresses) != len(families) {
		t.Fatalf("the Egress has %v, %v; want an address of each family", o.Status.Addresses, err)
	}
	seen := map[family]netip.Addr{ipv4: addresses[0], ipv6: addresses[1]}
	for _, key := range []string{"red/client1", "red/web1", "red/web2"} {
		leaves(ctx, t, world.tenant(ctx, t, key), seen)
	}
	leaves(ctx, t, world.tenant(ctx, t, "blue/shop1"), ofNode(ctx, t, worker1))
	leaves(ctx, t, world.tenant(ctx, t, "blue/shop2"), ofNode(ctx, t, worker2))
	closeEgress(ctx, t, "red", addresses...)
	leaves(ctx, t, world.tenant(ctx, t, "red/web1"), ofNode(ctx, t, worker1))
}

// removed has pods leave as without an Egress. Nothing answers for the addresses, which another
// Egress may have.
func (w *payers) removed(t *testing.T) {
	ctx := within(t, time.Minute)
	closeEgress(ctx, t, "bank", w.all()...)
	free := map[netip.Addr]string{}
	for _, a := range w.all() {
		free[a] = ""
	}
	for _, p := range w.pods() {
		leaves(ctx, t, p.place, ofNode(ctx, t, p.node))
	}
	answerAlone(ctx, t, free)
	out, err := world.coelan(ctx, "get", "egress")
	if err != nil || strings.Contains(out, "office") {
		t.Errorf("nodes know addresses, %v:\n%s", err, out)
	}
	openEgress(ctx, t, "next", "podSelector: {matchLabels: {app: payment}}, network: office, addresses: "+inFlow(w.all()))
	for _, p := range w.pods() {
		leaves(ctx, t, p.place, p.seen)
	}
}
