// SPDX-License-Identifier: Apache-2.0

//go:build integration && neutron

package integration

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/podnets"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// Pods that name a definition of Kuryr's have an interface on its subnet, and reach each other
// there; those of a namespace that the Network does not take have none.
func neutronSubnet(t *testing.T, w *world) {
	add := func(name, cidr string, selector *metav1.LabelSelector) (subnet string) {
		t.Helper()
		w.API.AddNetwork(name, v1alpha1.NetworkSpec{
			Role: v1alpha1.Secondary, NamespaceSelector: selector,
			Subnets: []v1alpha1.Subnet{{CIDR: cidr}, {CIDR: "fd00:92::/64"}},
		})
		made := func() []any {
			list, _ := neutronCall(t, w, "GET", "subnets?cidr="+cidr, "")["subnets"].([]any)
			return list
		}
		neutronPoll(t, func() bool { return len(made()) == 1 }, func() { t.Fatalf("the subnet of %s is not made", name) })
		id := made()[0].(map[string]any)["id"].(string)
		w.API.AddDefinitionAs("lab", name, map[string]string{
			podnets.AnnotationKuryrConfig: fmt.Sprintf(`{"subnetId": %q}`, id),
		}, "")
		return id
	}
	subnet := add("side", "10.92.0.0/24", nil)
	add("bank", "10.93.0.0/24", &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "bank"}})
	var pods []*lab.Pod
	for i, n := range []*lab.Node{w.n1, w.n2} {
		asks := map[string]string{asksNetworks: "side@eth1"}
		p := addPodAs(t, n, lab.PodSpec{Name: fmt.Sprint("side", i), Annotations: asks})
		pods = append(pods, p)
		port := neutronOne(t, w, "ports", "fixed_ips=ip_address%3D"+p.Own("eth1", lab.IPv4).String())
		addresses, _ := port["fixed_ips"].([]any)
		if len(addresses) != 1 || addresses[0].(map[string]any)["subnet_id"] != subnet || port["device_id"] != n.Name {
			t.Errorf("the addresses of the port are %v, and that of the pod is %s", addresses, p.Own("eth1", lab.IPv4))
		}
	}
	from, to := pods[0], pods[1].Own("eth1", lab.IPv4)
	if !netip.MustParsePrefix("10.92.0.0/24").Contains(to) {
		t.Errorf("the pod has the address %s", to)
	}
	poll(within(t, time.Minute), t, func() bool {
		r, err := (&probe.Ping{Dst: to, Count: 1}).Run(t.Context(), from.Host)
		return err == nil && r.Lost() == 0
	}, func() { t.Error("the pods do not reach each other") })
	asks := map[string]string{asksNetworks: "bank"}
	_, err := w.n1.AddPodAs(within(t, time.Minute), lab.PodSpec{Name: "thief", Annotations: asks})
	if err == nil || !strings.Contains(err.Error(), "network bank does not take pods of this namespace") {
		t.Errorf("a pod on the network of another namespace: %v", err)
	}
	for _, p := range pods {
		must(t, p.Delete(t.Context()))
	}
}
