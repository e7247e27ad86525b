// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

// testRefused applies what the API server is to refuse, with the words that its user reads.
func testRefused(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	for _, c := range []struct{ name, spec, says string }{
		{"subnet too small", `subnets: [{cidr: 10.63.0.0/31}]`, "too small"},
		{"gateway outside", `subnets: [{cidr: 10.63.0.0/24, gateway: 10.64.0.1}]`, "must be an address of the subnet"},
		{"subnets of one Network overlap", `subnets: [{cidr: 10.63.0.0/24}, {cidr: 10.63.0.0/16}]`, "must not overlap"},
		{"bits after the length", `subnets: [{cidr: 10.63.0.1/24}]`, "no bits set after its length"},
		{"range outside", `subnets: [{cidr: 10.63.0.0/24, ranges: [{from: 10.63.0.9, to: 10.63.1.9}]}]`, "must lie in the subnet"},
		{"primary without a selector", "role: Primary\n  subnets: [{cidr: 10.63.0.0/24}]", "needs a namespaceSelector"},
		{"VLAN without its id", "type: VLAN\n  physicalNetwork: x\n  subnets: [{cidr: 10.63.0.0/24}]", "needs a vlan"},
		{"no subnet", "type: Overlay", "needs a subnet"},
	} {
		err := world.Apply(ctx, "apiVersion: coelan.io/v1alpha1\nkind: Network\nmetadata: {name: refused}\nspec:\n  "+c.spec)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
	err := world.Apply(ctx, "apiVersion: coelan.io/v1alpha1\nkind: Port\nmetadata: {name: refused, namespace: e2e}\nspec: {network: side, mac: 01:00:00:00:00:01}")
	if err == nil || !strings.Contains(err.Error(), "MAC address of one interface") {
		t.Errorf("multicast MAC: %v", err)
	}
}

// conflicts are objects that only together make no sense: the younger one has no
// effect, and says why.
const conflicts = `
apiVersion: coelan.io/v1alpha1
kind: Router
metadata: {name: lab}
---
apiVersion: coelan.io/v1alpha1
kind: Network
metadata: {name: lab1}
spec: {router: lab, vni: 50001, subnets: [{cidr: 10.70.0.0/24}]}
`

// testConflicts makes objects that do not go with those that are there. Each has a condition with
// the reason, and an Event; those that were there first stay as they were.
func testConflicts(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	apply(ctx, t, conflicts)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		remove(ctx, t, "-n", namespace, "ports.coelan.io", "first", "taken", "macs", "outside", "stranger")
		remove(ctx, t, "networks.coelan.io", "lab1", "lab2", "lab3", "lab4")
		remove(ctx, t, "routers.coelan.io", "lab")
	})
	lab1 := named(&v1alpha1.Network{}, "lab1")
	if err := wait(ctx, lab1, networkReady); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, spec, reason string }{
		{"lab2", "router: lab, subnets: [{cidr: 10.70.0.0/16}]", v1alpha1.ReasonSubnetOverlaps},
		{"lab3", "vni: 50001, subnets: [{cidr: 10.71.0.0/24}]", v1alpha1.ReasonVNITaken},
		{"lab4", "router: nowhere, subnets: [{cidr: 10.72.0.0/24}]", v1alpha1.ReasonRouterNotFound},
	} {
		apply(ctx, t, fmt.Sprintf("{apiVersion: coelan.io/v1alpha1, kind: Network, metadata: {name: %s}, spec: {%s}}", c.name, c.spec))
		n := named(&v1alpha1.Network{}, c.name)
		if err := wait(ctx, n, func(n *v1alpha1.Network) error {
			return says(n.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionFalse, c.reason)
		}); err != nil {
			t.Error(err)
		}
		if _, err := warning(ctx, "default/"+c.name, ""); err != nil {
			t.Error(err)
		}
	}
	apply(ctx, t, portManifest("first", "lab1", `addresses: [10.70.0.9], mac: "0a:00:00:00:70:09"`))
	if err := wait(ctx, named(&v1alpha1.Port{}, "e2e/first"), portIn(v1alpha1.PortReady)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, network, spec, reason string }{
		{"taken", "lab1", "addresses: [10.70.0.9]", v1alpha1.ReasonAddressTaken},
		{"macs", "lab1", `mac: "0a:00:00:00:70:09"`, v1alpha1.ReasonMACTaken},
		{"outside", "lab1", "addresses: [10.80.0.9]", v1alpha1.ReasonAddressOutside},
		{"stranger", "red", "addresses: [10.50.200.9]", v1alpha1.ReasonNotAllowed},
	} {
		apply(ctx, t, portManifest(c.name, c.network, c.spec))
		p := named(&v1alpha1.Port{}, "e2e/"+c.name)
		if err := wait(ctx, p, func(p *v1alpha1.Port) error {
			if p.Status.LastError == "" {
				return fmt.Errorf("no lastError: %+v", p.Status)
			}
			return says(p.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionFalse, c.reason)
		}); err != nil {
			t.Error(err)
		}
		if _, err := warning(ctx, c.name, ""); err != nil {
			t.Error(err)
		}
	}
	if err := wait(ctx, lab1, networkReady); err != nil {
		t.Errorf("the first one: %v", err)
	}
}

func portManifest(key, network, spec string) string {
	namespace, name := split(key)
	return fmt.Sprintf("{apiVersion: coelan.io/v1alpha1, kind: Port, metadata: {name: %s, namespace: %s}, spec: {network: %s, %s}}",
		name, namespace, network, spec)
}

// testPending starts pods that ask for what they cannot have. Each stays pending with an Event that
// says why; a pod that starts beside them is not touched.
func testPending(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	makePod(ctx, t, annotated(sleeper("p0", worker1), networksAnnotation,
		`[{"name": "tiny"}, {"name": "side", "ips": ["10.60.9.9"], "mac": "0a:00:00:00:09:09"}]`))
	names := []string{"p0"}
	defer func() { removePods(context.WithoutCancel(ctx), t, names...) }()
	if err := world.waitReady(ctx, "p0"); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ asked, says string }{
		{`nothere`, "nothere does not exist"},
		{`nowhere`, "network nowhere does not exist"},
		{`[{"name": "side",`, networksAnnotation},
		{`[{"name": "side", "ips": ["10.60.9.999"]}]`, "10.60.9.999"},
		{`red`, "network red does not take pods of this namespace"},
		{`tiny`, "tiny"},
		{`[{"name": "side", "ips": ["10.60.9.9"]}]`, "10.60.9.9"},
		{`[{"name": "side", "mac": "0a:00:00:00:09:09"}]`, "0a:00:00:00:09:09"},
		{`[{"name": "side", "ips": ["10.99.9.9"]}]`, "10.99.9.9"},
	} {
		name := fmt.Sprintf("p%d", i+1)
		names = append(names, name)
		makePod(ctx, t, annotated(sleeper(name, []string{worker1, worker2}[i%2]), networksAnnotation, c.asked))
		defer func() { // they all start at once
			message, err := warning(ctx, name, c.says)
			if err != nil {
				t.Errorf("%s: %v", c.asked, err)
			}
			t.Logf("%s: %s", c.asked, message)
		}()
	}
	names = append(names, "p-good")
	makePod(ctx, t, annotated(sleeper("p-good", worker1), networksAnnotation, "side"))
	if err := world.waitReady(ctx, "p-good"); err != nil {
		t.Error(err)
	}
}
