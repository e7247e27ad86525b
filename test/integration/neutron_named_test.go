// SPDX-License-Identifier: Apache-2.0

//go:build integration && neutron

package integration

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/neutrontest"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// A pod for which the runtime names a port that another program has made in Neutron has that port,
// with its address and MAC, and with another sandbox again. When the pod is gone the port is left
// to the program. No other pod gets it, and neither does one that expects something else of it.
func neutronNamed(t *testing.T, w *world) {
	w.API.AddNamespace("blue", map[string]string{"tenant": "blue"})
	w.API.AddRouter("blue", v1alpha1.RouterSpec{})
	w.API.AddNetwork("blue", v1alpha1.NetworkSpec{
		Role: v1alpha1.Primary, Router: "blue",
		Subnets:           []v1alpha1.Subnet{{CIDR: "10.91.0.0/24", Ranges: []v1alpha1.AddressRange{{From: "10.91.0.2", To: "10.91.0.200"}}}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "blue"}},
	})
	other := addPodAs(t, w.n2, lab.PodSpec{Namespace: "blue", Name: "other"})
	network := neutronOne(t, w, "networks", "name=net-blue")
	pod, err := w.n1.NewPodAs(lab.PodSpec{Namespace: "blue", Name: "web"})
	must(t, err)
	port := neutronCall(t, w, "POST", "ports", fmt.Sprintf(`{"port": {"project_id": %q, "network_id": %q, "name": "named",
		"device_id": %q, "binding:host_id": "n1"}}`, neutrontest.Project, network["id"], pod.UID))["port"].(map[string]any)
	id, mac := port["id"].(string), port["mac_address"].(string)
	ip, _ := port["fixed_ips"].([]any)[0].(map[string]any)
	address := netip.MustParseAddr(ip["ip_address"].(string))
	uuid := [2]string{"PORT_UUID", id}

	stranger, err := w.n1.NewPodAs(lab.PodSpec{Namespace: "blue", Name: "stranger"})
	must(t, err)
	elsewhere, err := w.n2.NewPodAs(lab.PodSpec{Namespace: "blue", Name: "elsewhere"})
	must(t, err)
	for _, tc := range []struct {
		name string
		pod  *lab.Pod
		args [][2]string
		want string
	}{
		{"another pod's", stranger, [][2]string{uuid}, "device_id is " + pod.UID},
		{"of another node", elsewhere, [][2]string{uuid}, "binding:host_id is n1, and not n2"},
		{"not there", pod, [][2]string{{"PORT_UUID", "a28c7404-7495-4557-b7fc-3e293508dbc6"}}, "none of this id"},
		{"another address", pod, [][2]string{uuid, {"IPV4", "10.91.0.77/24"}}, "10.91.0.77 is asked for"},
		{"another length", pod, [][2]string{uuid, {"IPV4", address.String() + "/16"}}, "the subnet has the length 24"},
		{"another gateway", pod, [][2]string{uuid, {"GW", "10.91.0.254"}}, "a gateway of its subnets is 10.91.0.1"},
		{"another type", pod, [][2]string{uuid, {"PORT_TYPE", "vlan"}}, "ask for ovs"},
	} {
		tc.pod.Args = tc.args
		if err := tc.pod.Add(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
		if on, err := tc.pod.On("eth0"); err == nil {
			t.Errorf("%s: the pod has %v", tc.name, on)
		}
		must(t, tc.pod.Del(t.Context()))
	}
	must(t, stranger.Delete(t.Context()))
	must(t, elsewhere.Delete(t.Context()))
	if now := neutronOne(t, w, "ports", "id="+id); now["description"] != "" || now["name"] != "named" {
		t.Errorf("a port that no pod has got is changed: %v", now)
	}

	pod.Args = [][2]string{uuid, {"IPV4", address.String() + "/24"}, {"GW", "10.91.0.1"}, {"PORT_TYPE", "ovs"}}
	for _, plug := range []struct {
		name string
		do   func() error
	}{
		{"ADD", func() error { return pod.Add(t.Context()) }}, {"repeated ADD", func() error { return pod.Add(t.Context()) }},
		{"another sandbox", func() error { return pod.Restart(t.Context()) }},
	} {
		if err := plug.do(); err != nil {
			t.Fatalf("%s: %v", plug.name, err)
		}
		if own := pod.Own("eth0", lab.IPv4); own != address || pod.MAC.String() != mac {
			t.Errorf("%s: the pod has %s and %s, the port %s and %s", plug.name, own, pod.MAC, address, mac)
		}
		must(t, pod.Check(t.Context()))
		if r := ping(t, other.Host, probe.Ping{Dst: address, Count: 2}); r.Lost() > 0 {
			t.Errorf("%s: the pod is not reached: %+v", plug.name, r)
		}
		neutronPoll(t, func() bool {
			now := neutronOne(t, w, "ports", "id="+id)
			return now["status"] == "ACTIVE" && now["binding:host_id"] == "n1" &&
				now["description"] == "coelan/Borrowed/Port/blue/web.eth0 "+id
		}, func() { t.Errorf("%s: %v", plug.name, neutronOne(t, w, "ports", "id="+id)) })
	}

	must(t, pod.Delete(t.Context()))
	neutronPoll(t, func() bool {
		now := neutronOne(t, w, "ports", "id="+id)
		return now["description"] == "" && now["binding:host_id"] == "" && now["device_id"] == pod.UID && now["mac_address"] == mac
	}, func() { t.Errorf("not given back: %v", neutronOne(t, w, "ports", "id="+id)) })
	neutronCall(t, w, "DELETE", "ports/"+id, "")
	must(t, other.Delete(t.Context()))
}
