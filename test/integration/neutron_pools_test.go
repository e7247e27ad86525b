// SPDX-License-Identifier: Apache-2.0

//go:build integration && neutron

package integration

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// A namespace's Network has subnets of pools that Neutron has: its pods are reached on all nodes,
// by pods of other namespaces and by nodes; those of an isolated one by its own pods alone. The
// pools stay when the Network goes, and go with the setting. One that is given stays.
func neutronPools(t *testing.T, w *world) {
	list := func(collection, query string) (found []map[string]any) {
		t.Helper()
		all, _ := neutronCall(t, w, "GET", collection+"?"+query, "")[collection].([]any)
		for _, o := range all {
			found = append(found, o.(map[string]any))
		}
		return found
	}
	restart := func(pools ...intent.SubnetPool) {
		t.Helper()
		w.Neutron.StopController()
		w.Neutron.SubnetPools = pools
		must(t, w.Neutron.StartController())
	}
	v4, v6 := netip.MustParsePrefix("10.128.0.0/14"), netip.MustParsePrefix("fd00:128::/48")
	restart(intent.SubnetPool{Prefix: v4, Bits: 24}, intent.SubnetPool{Prefix: v6, Bits: 64})
	defer restart()

	add := func(namespace string, router v1alpha1.RouterSpec, cidrs ...string) {
		t.Helper()
		w.API.AddNamespace(namespace, map[string]string{corev1.LabelMetadataName: namespace})
		network := w.API.AddNetworkOf(namespace, router, cidrs...)
		neutronPoll(t, func() bool { return len(list("subnets", "name=net-"+network+"%20"+cidrs[0])) == 1 },
			func() { t.Fatalf("the subnet of %s is not made: %s", namespace, neutronFailure(w)) })
	}
	add("pooled", lab.Shared(), "10.128.7.0/24", "fd00:128:0:7::/64")
	add("apart", v1alpha1.RouterSpec{}, "10.128.8.0/24", "fd00:128:0:8::/64")
	for _, prefix := range []netip.Prefix{v4, v6} {
		pool := list("subnetpools", fmt.Sprintf("description=coelan/SubnetPool/%s", prefix))
		if len(pool) != 1 || !slices.Equal(pool[0]["prefixes"].([]any), []any{prefix.String()}) {
			t.Fatalf("the pool of %s is %v", prefix, pool)
		}
		if subnets := list("subnets", fmt.Sprint("subnetpool_id=", pool[0]["id"])); len(subnets) != 2 {
			t.Errorf("subnets of the pool %s: %v", prefix, subnets)
		}
	}

	one := addPodAs(t, w.n1, lab.PodSpec{Namespace: "pooled", Name: "one"})
	two := addPodAs(t, w.n2, lab.PodSpec{Namespace: "pooled", Name: "two"})
	if a := one.Address(lab.IPv4); !netip.MustParsePrefix("10.128.7.0/24").Contains(a) {
		t.Errorf("the pod has %s", a)
	}
	for f := range lab.Dual.Each {
		for _, p := range []path{
			{"pod to pod on another node", one.Host, two.Host, two.Address, one.Address},
			{"pod to pod of another namespace", one.Host, w.c.Host, w.c.Address, one.Address},
			{"pod of another namespace to pod", w.c.Host, one.Host, one.Address, w.c.Address},
			{"node to its pod", w.n1.Host, one.Host, one.Address, of(management(w.n1))},
		} {
			neutronReaches(t, p, f)
		}
	}
	near := addPodAs(t, w.n1, lab.PodSpec{Namespace: "apart", Name: "near"})
	far := addPodAs(t, w.n2, lab.PodSpec{Namespace: "apart", Name: "far"})
	reached := func(from *lab.Pod, to netip.Addr) bool {
		r, err := (&probe.Ping{Dst: to, Count: 1}).Run(t.Context(), from.Host)
		return err == nil && r.Lost() == 0
	}
	neutronPoll(t, func() bool { return reached(near, far.Own("eth0", lab.IPv4)) },
		func() { t.Error("pods of the isolated namespace do not reach each other") })
	if reached(one, far.Own("eth0", lab.IPv4)) || reached(near, two.Address(lab.IPv4)) {
		t.Error("an isolated namespace and another one reach each other")
	}

	for _, pod := range []*lab.Pod{one, two, near, far} {
		must(t, pod.Delete(t.Context()))
	}
	for _, name := range []string{"ns-pooled", "ns-apart"} {
		w.API.RemoveNetwork(name)
		w.API.RemoveRouter(name)
		neutronPoll(t, func() bool { return len(list("networks", "name=net-"+name)) == 0 },
			func() { t.Errorf("the network of %s is still there: %s", name, neutronFailure(w)) })
	}
	if pools := list("subnetpools", ""); len(pools) != 2 {
		t.Errorf("pools without subnets: %v", pools)
	}
	restart()
	neutronPoll(t, func() bool { return len(list("subnetpools", "")) == 0 },
		func() { t.Errorf("the pools are still there: %v", list("subnetpools", "")) })

	// A pool of an administrator takes the place of that of its family.
	made, _ := neutronCall(t, w, "POST", "subnetpools",
		`{"subnetpool": {"name": "office", "project_id": "theirs", "shared": true, "prefixes": ["10.128.0.0/9"]}}`)["subnetpool"].(map[string]any)
	office := fmt.Sprint(made["id"])
	w.Neutron.GivenPools = []string{office}
	defer func() { w.Neutron.GivenPools = nil }()
	restart(intent.SubnetPool{Prefix: v4, Bits: 24}, intent.SubnetPool{Prefix: v6, Bits: 64})
	add("given", lab.Shared(), "10.128.9.0/24", "fd00:128:0:9::/64")
	if subnets := list("subnets", "subnetpool_id="+office); len(subnets) != 1 || subnets[0]["cidr"] != "10.128.9.0/24" {
		t.Errorf("subnets of the given pool: %v", subnets)
	}
	if pools := list("subnetpools", ""); len(pools) != 2 {
		t.Errorf("pools: %v, want the given one and one of IPv6", pools)
	}
	w.API.RemoveNetwork("ns-given")
	w.API.RemoveRouter("ns-given")
	w.Neutron.GivenPools = nil
	restart()
	neutronPoll(t, func() bool {
		return len(list("subnetpools", "")) == 1 && len(list("subnets", "subnetpool_id="+office)) == 0
	},
		func() { t.Errorf("pools %v, subnets %v", list("subnetpools", ""), list("subnets", "")) })
	neutronCall(t, w, "DELETE", "subnetpools/"+office, "")
}
