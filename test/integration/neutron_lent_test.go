// SPDX-License-Identifier: Apache-2.0

//go:build integration && neutron

package integration

import (
	"fmt"
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/neutrontest"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// A pod is on a network that another program has made, with its machines, and on no other. What the
// other program has made stays as it is.
func neutronLent(t *testing.T, w *world) {
	call := func(path, body string) map[string]any {
		t.Helper()
		return neutronCall(t, w, "POST", path, body)
	}
	network := call("networks", fmt.Sprintf(`{"network": {"project_id": %q, "name": "theirs"}}`, neutrontest.Project))["network"].(map[string]any)
	neutronCall(t, w, "PUT", "networks/"+network["id"].(string)+"/tags/legacy", "")
	subnet := call("subnets", fmt.Sprintf(`{"subnet": {"project_id": %q, "network_id": %q, "cidr": "10.91.0.0/24", "ip_version": 4,
		"gateway_ip": "10.91.0.1", "allocation_pools": [{"start": "10.91.0.200", "end": "10.91.0.250"}]}}`, neutrontest.Project,
		network["id"]))["subnet"].(map[string]any)
	state := func() string {
		return fmt.Sprint(neutronOne(t, w, "networks", "name=theirs"), neutronOne(t, w, "subnets", "id="+subnet["id"].(string)))
	}
	before := state()
	guest, address := neutronGuest(t, w, "legacy", network["id"], "10.91.0.1")

	for _, name := range []string{"legacy", network["id"].(string)} { // a tag, and a UUID
		t.Run(name, func(t *testing.T) {
			object := "theirs-" + name[:6]
			w.API.AddNamespace(object, map[string]string{"tenant": object})
			w.API.AddNetworkAs(object, map[string]string{v1alpha1.AnnotationNeutronNetwork: name}, v1alpha1.NetworkSpec{
				Role: v1alpha1.Primary, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": object}},
				Subnets: []v1alpha1.Subnet{{CIDR: "10.91.0.0/24", Ranges: []v1alpha1.AddressRange{{From: "10.91.0.2", To: "10.91.0.100"}}}},
			})
			pod := addPodAs(t, w.n1, lab.PodSpec{Namespace: object, Name: "web"})
			own := pod.Own("eth0", lab.IPv4)
			// ports are the ids of Coelan's on the network, by their addresses.
			path := fmt.Sprint("ports?device_owner=compute:kuryr&network_id=", network["id"])
			ports := func() map[netip.Addr]string {
				ids := map[netip.Addr]string{}
				list, _ := neutronCall(t, w, "GET", path, "")["ports"].([]any)
				for _, p := range list {
					port := p.(map[string]any)
					ip := port["fixed_ips"].([]any)[0].(map[string]any)
					ids[netip.MustParseAddr(ip["ip_address"].(string))] = port["id"].(string)
				}
				return ids
			}
			var ready map[netip.Addr]string
			neutronPoll(t, func() bool { ready = ports(); return len(ready) == 2*reserved.NeutronSpareOfNetwork },
				func() { t.Errorf("ports %v: too few are ready", ready) })
			if ready[own] == "" {
				t.Errorf("the pod has %s, without a port of %v", own, ready)
			}
			second := addPodAs(t, w.n1, lab.PodSpec{Namespace: object, Name: "web2"})
			its := second.Own("eth0", lab.IPv4)
			if id := ports()[its]; id == "" || id != ready[its] || id == ready[own] {
				t.Errorf("the second pod has %s and the port %q; %v were there", its, id, ready)
			}
			for _, p := range []struct {
				name string
				from *lab.Host
				to   netip.Addr
			}{{"the machine", pod.Host, address}, {"the pod", guest.Host, own}} {
				poll(t.Context(), t, func() bool {
					r, err := (&probe.Ping{Dst: p.to, Count: 1}).Run(t.Context(), p.from)
					return err == nil && r.Lost() == 0
				}, func() { t.Errorf("%s is not reached", p.name) })
			}
			if r, err := (&probe.Ping{Dst: w.c.Address(lab.IPv4), Count: 1}).Run(t.Context(), pod.Host); err == nil && r.Lost() == 0 {
				t.Error("the pod reaches one of the cluster's own network")
			}
			must(t, pod.Delete(t.Context()))
			must(t, second.Delete(t.Context()))
			w.API.RemoveNetwork(object)
			neutronPoll(t, func() bool { return len(ports()) == 0 }, func() { t.Errorf("ports %v are still there", ports()) })
			if after := state(); after != before {
				t.Errorf("what another program has made is\n%s\nand was\n%s", after, before)
			}
		})
	}
}
