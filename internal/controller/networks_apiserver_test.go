// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/metricsaccess"
)

// testDefaults are the objects that Coelan creates by itself, and creates again.
func testDefaults(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	address := freeAddress(t)
	stop := w.start(func(o *controller.Options) { o.MetricsBindAddress, o.MetricsAccess = address, metricsaccess.Open })
	check := func() {
		n := w.ready("default")
		if n.Status.ID != 1 || n.Status.VNI != 1 || n.Status.Router != "default" {
			t.Errorf("network default: %+v", n.Status)
		}
		r := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		w.until(func() string {
			return want(w.get(r) && r.Status.ID == 1 && r.Status.VNI == 1 && r.Status.RouteDistinguisher == "64512:1", fmt.Sprintf("router default: %+v", r.Status))
		})
	}
	check()
	answers := func(path, part string) {
		w.until(func() string {
			response, err := http.Get("http://" + address + path)
			if err != nil {
				return err.Error()
			}
			text, err := io.ReadAll(response.Body)
			response.Body.Close()
			return want(err == nil && response.StatusCode == http.StatusOK && strings.Contains(string(text), part),
				fmt.Sprintf("%s answers %d: %s, %v", path, response.StatusCode, text, err))
		})
	}
	answers("/healthz", "")
	answers("/readyz", "") // some time after the first objects are known: policies have to be, too
	answers("/metrics", `coelan_networks{reason="Ready"} 1`)
	http.DefaultClient.CloseIdleConnections()
	w.delete(w.ready("default"))
	w.until(func() string {
		n := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		return want(w.get(n) && n.DeletionTimestamp == nil, "not back")
	})
	check()

	w.node(1)
	w.namespace("in-use", nil)
	pod := w.pod("in-use", "p", "worker1")
	w.delete(w.ready("default"))
	w.blocked(&v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, "pod in-use/p")
	stop()
	w.start(nil)
	w.delete(pod)
	w.until(func() string {
		n := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		return want(w.get(n) && n.DeletionTimestamp == nil, "not back")
	})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// blocked waits until a deletion waits and says for what.
func (w *world) blocked(n *v1alpha1.Network, users ...string) {
	w.Helper()
	w.until(func() string {
		if !w.get(n) {
			return "network " + n.Name + " is gone"
		}
		c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionDeletionBlocked)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonInUse {
			return fmt.Sprintf("network %s: %+v", n.Name, n.Status.Conditions)
		}
		for _, u := range users {
			if !strings.Contains(c.Message, u) {
				return fmt.Sprintf("%q does not name %s", c.Message, u)
			}
		}
		return ""
	})
	w.event("Network", n.Name, v1alpha1.ReasonInUse)
}

// testNumbersStay over restarts of the controller and of the API server, and are
// not given out twice.
func testNumbersStay(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	stop := w.start(nil)
	numbers := map[string][2]int32{}
	make := func(name string) {
		w.create(overlay(name, "", "10.70.0.0/16"))
		n := w.ready(name)
		numbers[name] = [2]int32{n.Status.ID, n.Status.VNI}
	}
	check := func() {
		t.Helper()
		seen := map[int32]string{}
		for name, has := range numbers {
			n := w.ready(name)
			if n.Status.ID != has[0] || n.Status.VNI != has[1] {
				t.Errorf("network %s has %d and %d, had %v", name, n.Status.ID, n.Status.VNI, has)
			}
			if other, twice := seen[has[1]]; twice {
				t.Errorf("%s and %s have VNI %d", name, other, has[1])
			}
			seen[has[1]] = name
		}
	}
	make("zebra")
	make("lion")
	stop()
	w.create(overlay("ant", "", "10.70.0.0/16")) // first by name
	stop = w.start(nil)
	make("bear")
	check()
	w.ready("ant")

	api.StopServer()
	if err := api.StartServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	make("cat")
	check()
	stop()
	w.delete(w.ready("lion"))
	delete(numbers, "lion")
	w.start(nil)
	make("dog")
	check()
	w.objects("ant bear cat dog zebra", "ant bear cat dog zebra")
}

// testInUse is a Network and a Router that are deleted while something uses them.
func testInUse(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(nil)
	w.node(1)
	w.namespace("user", nil)
	w.create(router("r", nil, nil), overlay("n", "r", "10.71.0.0/16"), overlay("own", "", "10.72.0.0/16"))
	n, r := w.ready("n"), &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	port := userPort("user", "vm", "n")
	block := &v1alpha1.AddressBlock{
		ObjectMeta: metav1.ObjectMeta{Name: "n-10-71-0-0-26"},
		Spec:       v1alpha1.AddressBlockSpec{Network: "n", CIDR: "10.71.0.0/26", Node: "worker1"},
	}
	w.create(port, block)
	w.port("user", "vm", isReady)
	w.get(r)
	w.delete(r)
	w.delete(n)
	w.blocked(n, "port user/vm", "node worker1 (block 10.71.0.0/26)")
	w.until(func() string {
		w.get(r)
		c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionDeletionBlocked)
		return want(c != nil && strings.Contains(c.Message, "network n"), fmt.Sprintf("router: %+v", r.Status.Conditions))
	})
	w.event("Router", "r", v1alpha1.ReasonInUse)
	if w.get(n); n.Status.ID == 0 || !meta.IsStatusConditionTrue(n.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("a Network that is used has no effect any more: %+v", n.Status)
	}
	w.create(userPort("user", "late", "n"))
	w.port("user", "late", func(p *v1alpha1.Port) bool {
		return p.Status.Phase == v1alpha1.PortPending && strings.Contains(p.Status.LastError, "is being deleted")
	})

	w.delete(port)
	w.delete(&v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "user", Name: "late"}})
	w.blocked(n, "node worker1")
	w.delete(block)
	w.objects("own", "own")
	w.until(func() string { return want(w.names(&v1alpha1.AddressBlockList{}) == "", "blocks are left") })

	// The Router that a Network has for itself goes with it.
	w.delete(w.ready("own"))
	w.objects("", "")
}

// testBadNetworks is bad input that only all objects together show: each a condition and an Event,
// and no harm to others.
func testBadNetworks(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.start(nil)
	w.node(1)
	seven := int32(70777)
	first := overlay("first", "r", "10.73.0.0/16")
	first.Spec.VNI = &seven
	w.create(router("r", nil, nil), router("shared", []string{"64512:1"}, []string{"64512:1"}), first)
	// Its addresses are counted apart from its numbers, perhaps after it is ready.
	w.until(func() string { return want(w.ready("first").Status.AddressesFree > 0, "the addresses are not counted") })
	before := w.ready("first")

	time.Sleep(time.Second) // the age of objects has whole seconds
	second := overlay("same-vni", "r", "10.74.0.0/16")
	second.Spec.VNI = &seven
	w.create(second, overlay("overlaps", "r", "10.73.5.0/24"), overlay("on-podcidr", "", "10.244.0.0/16"),
		overlay("on-node", "shared", "192.168.33.0/24"), overlay("no-router", "missing", "10.73.0.0/16"))
	w.refused("same-vni", v1alpha1.ReasonVNITaken)
	w.refused("overlaps", v1alpha1.ReasonSubnetOverlaps)
	w.refused("on-podcidr", v1alpha1.ReasonSubnetOverlaps)
	w.refused("on-node", v1alpha1.ReasonSubnetOverlaps)
	w.refused("no-router", v1alpha1.ReasonRouterNotFound)
	vlan := int32(7)
	for _, name := range []string{"wire", "wire-too"} {
		w.create(&v1alpha1.Network{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.NetworkSpec{Type: v1alpha1.VLAN, VLAN: &vlan, PhysicalNetwork: "p", IPAM: v1alpha1.Blocks, Role: v1alpha1.Secondary},
		})
		time.Sleep(time.Second)
	}
	w.ready("wire")
	w.refused("wire-too", v1alpha1.ReasonVLANTaken)

	if now := w.ready("first"); now.Status.ID != before.Status.ID || now.ResourceVersion != before.ResourceVersion {
		t.Errorf("another Network was touched: %+v, was %+v", now.Status, before.Status)
	}
	// What was in the way goes, what was missing comes.
	w.delete(first)
	w.ready("same-vni")
	w.ready("overlaps")
	w.create(router("missing", nil, nil))
	w.ready("no-router")
	w.delete(w.ready("wire"))
	w.ready("wire-too")
}

// testMany prints how long it takes until 1,000 Networks have effect.
func testMany(t *testing.T, api *apitest.API) {
	const count = 300 // as many as there is time for
	w := newWorld(t, api)
	w.start(nil)
	w.ready("default")
	started := time.Now()
	w.each(count, func(i int) {
		w.create(overlay(fmt.Sprintf("n%d", i), "", fmt.Sprintf("10.%d.%d.0/24", i/250, i%250)))
	})
	created := time.Since(started)
	list := &v1alpha1.NetworkList{}
	w.within(3*time.Minute, func() string {
		if err := w.client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		ready := 0
		for _, n := range list.Items {
			if n.Status.ID != 0 {
				ready++
			}
		}
		return want(ready == count+1, fmt.Sprintf("%d of %d have effect", ready, count))
	})
	t.Logf("%d Networks created in %v, and in effect %v after that", count, created.Round(time.Millisecond), (time.Since(started) - created).Round(time.Millisecond))
	ids, vnis := map[int32]bool{}, map[int32]bool{}
	for _, n := range list.Items {
		if ids[n.Status.ID] || vnis[n.Status.VNI] {
			t.Fatalf("network %s has what another one has: %+v", n.Name, n.Status)
		}
		ids[n.Status.ID], vnis[n.Status.VNI] = true, true
	}
}

// each runs something many times, some at a time.
func (w *world) each(count int, do func(int)) {
	const together = 8
	done := make(chan struct{})
	for k := range together {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := k; i < count; i += together {
				do(i)
			}
		}()
	}
	for range together {
		<-done
	}
}
