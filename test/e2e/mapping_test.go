// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
)

// The mapping of the COE integration of Netvirt: TC 1 and TC 4 are test cases of its specification.

// mapped is the mapping of the installation as it is now.
var mapped = "flat"

// useMapping changes the mapping of agents and controllers. Pods that run keep their networks.
func useMapping(ctx context.Context, t *testing.T, mapping string) {
	t.Helper()
	if mapped == mapping {
		return
	}
	current, err := world.api.CoreV1().ConfigMaps(agents).Get(ctx, "coelan-config", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	current.Data["agent.yaml"] = strings.Replace(current.Data["agent.yaml"], "\nmapping: "+mapped, "\nmapping: "+mapping, 1)
	if _, err := world.api.CoreV1().ConfigMaps(agents).Update(ctx, current, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	deployment, err := world.api.AppsV1().Deployments(agents).Get(ctx, "coelan-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	args := deployment.Spec.Template.Spec.Containers[0].Args
	for i, arg := range args {
		if strings.HasPrefix(arg, "--mapping=") {
			args[i] = "--mapping=" + mapping
		}
	}
	if _, err := world.api.AppsV1().Deployments(agents).Update(ctx, deployment, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"rollout", "restart", "daemonset/coelan-agent"},
		{"rollout", "status", "daemonset/coelan-agent", "--timeout=120s"},
		{"rollout", "status", "deployment/coelan-controller", "--timeout=120s"},
	} {
		if _, err := world.Kubectl(ctx, append([]string{"-n", agents}, command...)...); err != nil {
			t.Fatal(err)
		}
	}
	mapped = mapping
}

// makeNamespace makes a namespace that is gone with all that is in it when the test ends.
func makeNamespace(ctx context.Context, t *testing.T, name, labels string) {
	t.Helper()
	apply(ctx, t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {%s}}}", name, labels))
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "namespace", name) })
}

// elan is the Network of a namespace on a node, and vpn its Router.
func elan(namespace, node string) *v1alpha1.Network {
	return named(&v1alpha1.Network{}, "ns-"+namespace+"-"+node)
}

func vpn(namespace string) *v1alpha1.Router { return named(&v1alpha1.Router{}, "ns-"+namespace) }

// TestTC1CreatePodInNamespaceOnNode is TC 1: create a pod within a node under a namespace. The
// first pod of the namespace makes the vpn-instance, the first on a node the elan-instance, and
// each pod its elan- and vpn-interface.
func TestTC1CreatePodInNamespaceOnNode(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	useMapping(ctx, t, "namespace")
	makeNamespace(ctx, t, "tc1", "")
	absent(ctx, t, vpn("tc1"), elan("tc1", worker1), elan("tc1", worker2))

	makePod(ctx, t, webServer("tc1/first", worker1))
	if err := world.waitReady(ctx, "tc1/first"); err != nil {
		t.Fatal(err)
	}
	checkVPN(ctx, t, "tc1", "ns-tc1-"+worker1)
	checkELAN(ctx, t, "tc1", worker1)
	checkInterface(ctx, t, "tc1/first", worker1)
	absent(ctx, t, elan("tc1", worker2))

	makePod(ctx, t, webServer("tc1/second", worker1)) // joins what is there
	makePod(ctx, t, webServer("tc1/third", worker2))
	if err := world.waitReady(ctx, "tc1/second", "tc1/third"); err != nil {
		t.Fatal(err)
	}
	checkVPN(ctx, t, "tc1", "ns-tc1-"+worker1, "ns-tc1-"+worker2)
	checkELAN(ctx, t, "tc1", worker2)
	checkInterface(ctx, t, "tc1/second", worker1)
	checkInterface(ctx, t, "tc1/third", worker2)
	for _, way := range [][2]string{
		{"tc1/first", "tc1/second"}, {"tc1/first", "tc1/third"}, // in the namespace
		{"tc1/first", "web2"}, {"client2", "tc1/first"}, {"client1", "tc1/third"}, // and others
	} {
		if err := ask(ctx, t, way[0], way[1]); err != nil {
			t.Error(err)
		}
	}
}

// TestTC4DeletePodFromNamespace is TC 4: delete a pod from a namespace. Its Port goes; with the
// last pod on a node, that node's elan-instance; with the last of all, the vpn-instance.
func TestTC4DeletePodFromNamespace(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	useMapping(ctx, t, "namespace")
	makeNamespace(ctx, t, "tc4", "")
	for name, node := range map[string]string{"first": worker1, "second": worker1, "third": worker2} {
		makePod(ctx, t, webServer("tc4/"+name, node))
	}
	if err := world.waitReady(ctx, "tc4/first", "tc4/second", "tc4/third"); err != nil {
		t.Fatal(err)
	}
	checkVPN(ctx, t, "tc4", "ns-tc4-"+worker1, "ns-tc4-"+worker2)

	removePods(ctx, t, "tc4/first")
	gone(ctx, t, named(&v1alpha1.Port{}, "tc4/first.eth0"))
	checkVPN(ctx, t, "tc4", "ns-tc4-"+worker1, "ns-tc4-"+worker2)
	checkInterface(ctx, t, "tc4/second", worker1)

	// Without kubelet's word.
	remove(ctx, t, "-n", "tc4", "pod", "second", "--force", "--grace-period=0")
	gone(ctx, t, named(&v1alpha1.Port{}, "tc4/second.eth0"), elan("tc4", worker1))
	checkVPN(ctx, t, "tc4", "ns-tc4-"+worker2)
	checkInterface(ctx, t, "tc4/third", worker2)

	removePods(ctx, t, "tc4/third")
	gone(ctx, t, named(&v1alpha1.Port{}, "tc4/third.eth0"), elan("tc4", worker2), vpn("tc4"))

	makePod(ctx, t, webServer("tc4/again", worker1)) // and from the beginning
	if err := world.waitReady(ctx, "tc4/again"); err != nil {
		t.Fatal(err)
	}
	checkVPN(ctx, t, "tc4", "ns-tc4-"+worker1)
}

// TestMappingIsolated isolates a namespace by its label, under pods that run, and ends that again.
func TestMappingIsolated(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	useMapping(ctx, t, "namespace")
	makeNamespace(ctx, t, "bank", "coelan.io/isolated: 'true'")
	makeNamespace(ctx, t, "street", "")
	for key, node := range map[string]string{"bank/vault1": worker1, "bank/vault2": worker2, "street/shop1": worker1} {
		makePod(ctx, t, webServer(key, node))
	}
	if err := world.waitReady(ctx, "bank/vault1", "bank/vault2", "street/shop1"); err != nil {
		t.Fatal(err)
	}
	inside := func() {
		t.Helper()
		for _, way := range [][2]string{{"bank/vault1", "bank/vault2"}, {"bank/vault2", "bank/vault1"}, {"street/shop1", "web2"}} {
			if err := ask(ctx, t, way[0], way[1]); err != nil {
				t.Error(err)
			}
		}
	}
	across := func(check func(from place, to netip.AddrPort)) {
		var group sync.WaitGroup
		defer group.Wait()
		for _, way := range [][2]string{
			{"street/shop1", "bank/vault1"}, {"street/shop1", "bank/vault2"}, {"client2", "bank/vault1"}, {"bank/vault1", "street/shop1"}, {"bank/vault2", "web1"},
		} {
			from := world.pod(ctx, t, way[0])
			for _, a := range world.pod(ctx, t, way[1]).addresses {
				group.Go(func() { check(from, netip.AddrPortFrom(a, webPort)) })
			}
		}
	}
	shut := func(from place, to netip.AddrPort) { closed(ctx, t, from, to) }
	open := func(from place, to netip.AddrPort) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := eventually(ctx, func() error { _, err := get(ctx, from, to, "/hostname"); return err }); err != nil {
			t.Errorf("%s to %s: %v", from.name, to, err)
		}
	}
	inside()
	across(shut)
	patch(ctx, t, "bank", "null")
	across(open)
	inside()
	patch(ctx, t, "bank", `"true"`)
	if err := wait(ctx, vpn("bank"), func(r *v1alpha1.Router) error {
		if strings.Join(r.Spec.ImportRouteTargets, "") == v1alpha1.DefaultRouteTarget {
			return fmt.Errorf("imports %v", r.Spec.ImportRouteTargets)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	ctxShut, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	shop, vault := world.pod(ctx, t, "street/shop1"), world.pod(ctx, t, "bank/vault1")
	if err := eventually(ctxShut, func() error { // the agents receive it
		short, cancel := context.WithTimeout(ctxShut, silence)
		defer cancel()
		if _, err := get(short, shop, netip.AddrPortFrom(vault.address(ipv4), webPort), "/hostname"); err == nil {
			return fmt.Errorf("%s answers", vault.name)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	across(shut)
	inside()
}

// TestMappingBack returns to the mapping that the other tests are written for.
func TestMappingBack(t *testing.T) {
	ctx := within(t, 4*time.Minute)
	useMapping(ctx, t, "flat")
	list := &v1alpha1.NetworkList{}
	err := eventually(ctx, func() error {
		if err := world.objects.List(ctx, list); err != nil {
			return err
		}
		for _, n := range list.Items {
			if n.Labels[v1alpha1.LabelNamespace] != "" {
				return fmt.Errorf("Network %s of the other mapping is there", n.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := allReach(ctx, t); err != nil {
		t.Error(err)
	}
	world.healthy(ctx, t)
}

// patch sets the label that isolates a namespace to a JSON value.
func patch(ctx context.Context, t *testing.T, namespace, value string) {
	t.Helper()
	data := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, v1alpha1.LabelIsolated, value)
	if _, err := world.api.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, []byte(data), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
