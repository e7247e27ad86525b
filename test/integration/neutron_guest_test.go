// SPDX-License-Identifier: Apache-2.0

//go:build neutron && integration

package integration

import (
	"net/netip"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// neutronGuestOfPort has a machine that is plugged for a Port of Coelan, by the port that its
// status names: pods and it reach each other, on one node and after it has moved to another, and
// the port goes with the Port.
func neutronGuestOfPort(t *testing.T, w *world) {
	const address, mac = "10.91.0.50", "52:54:00:00:00:50"
	w.API.AddNamespace("vms", map[string]string{"tenant": "vms"})
	w.API.AddRouter("vms", v1alpha1.RouterSpec{})
	w.API.AddNetwork("vms", v1alpha1.NetworkSpec{
		Role: v1alpha1.Primary, Router: "vms",
		Subnets: []v1alpha1.Subnet{{
			CIDR: "10.91.0.0/24", Ranges: []v1alpha1.AddressRange{{From: "10.91.0.2", To: "10.91.0.40"}},
		}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "vms"}},
	})
	pod := addPodAs(t, w.n1, lab.PodSpec{Namespace: "vms", Name: "web"})
	w.API.AddPort("vms", "db", "vms", mac, address)
	t.Cleanup(func() { w.API.RemovePort("vms", "db") })
	db := func() v1alpha1.PortStatus {
		all := w.API.Ports()
		return all[slices.IndexFunc(all, func(p *v1alpha1.Port) bool { return p.Namespace+"/"+p.Name == "vms/db" })].Status
	}
	neutronPoll(t, func() bool { return db().Neutron != nil }, func() { t.Fatalf("no port in Neutron: %+v", db()) })
	id := db().Neutron.ID

	for _, node := range []*lab.Node{w.n2, w.n1} {
		guest, err := node.AddGuest(t.Context(), "db-on-"+node.Name, id, parseMAC(t, mac),
			[]netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(address), 24)}, netip.MustParseAddr("10.91.0.1"))
		must(t, err)
		poll(t.Context(), t, func() bool { return db().Phase == v1alpha1.PortBound && db().Node == node.Name },
			func() { t.Errorf("the Port is not bound on %s: %+v", node.Name, db()) })
		port := func() map[string]any { return neutronOne(t, w, "ports", "id="+id) }
		neutronPoll(t, func() bool { return port()["binding:host_id"] == node.Name },
			func() { t.Errorf("in Neutron the port is not on %s: %v", node.Name, port()) })
		var last probe.PingResult
		poll(t.Context(), t, func() bool {
			last, err = (&probe.Ping{Dst: netip.MustParseAddr(address), Count: 1}).Run(t.Context(), pod.Host)
			return err == nil && last.Lost() == 0
		}, func() { t.Errorf("the machine on %s is not reached: %+v, %v", node.Name, last, err) })
		if r := ping(t, guest.Host, probe.Ping{Dst: pod.Own("eth0", lab.IPv4), Count: 2}); r.Lost() > 0 {
			t.Errorf("the pod is not reached from %s: %+v", node.Name, r)
		}
		must(t, node.Check(t.Context()))
		must(t, guest.Unplug(t.Context()))
		poll(t.Context(), t, func() bool { return db().Phase == v1alpha1.PortReady && db().Node == "" },
			func() { t.Errorf("the Port is not free: %+v", db()) })
	}
	if now := db().Neutron.ID; now != id {
		t.Errorf("the port was %s, and is %s", id, now)
	}
	w.API.RemovePort("vms", "db")
	neutronPoll(t, func() bool {
		list, _ := neutronCall(t, w, "GET", "ports?id="+id, "")["ports"].([]any)
		return len(list) == 0
	}, func() { t.Errorf("port %s is still there", id) })
	must(t, pod.Delete(t.Context()))
}
