// SPDX-License-Identifier: Apache-2.0

//go:build neutron && integration

package integration

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/neutrontest"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// namedOnTrunk is a port that another program has made for a pod on a machine of OpenStack.
type namedOnTrunk struct {
	*world
	pod, other *lab.Pod // other is on another node, in the same network
	id, mac    string
	address    netip.Addr
}

// neutronNamedOnTrunk is neutronNamed for a pod on a node that is a machine of OpenStack.
func neutronNamedOnTrunk(t *testing.T, w *world, machine *lab.Node) {
	w.API.AddNamespace("green", map[string]string{"tenant": "green"})
	w.API.AddRouter("green", v1alpha1.RouterSpec{})
	w.API.AddNetwork("green", v1alpha1.NetworkSpec{
		Role: v1alpha1.Primary, Router: "green",
		Subnets:           []v1alpha1.Subnet{{CIDR: "10.92.0.0/24", Ranges: []v1alpha1.AddressRange{{From: "10.92.0.2", To: "10.92.0.200"}}}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "green"}},
	})
	n := namedOnTrunk{world: w, other: addPodAs(t, w.n2, lab.PodSpec{Namespace: "green", Name: "other"})}
	var err error
	n.pod, err = machine.NewPodAs(lab.PodSpec{Namespace: "green", Name: "web"})
	must(t, err)
	port := neutronCall(t, w, "POST", "ports", fmt.Sprintf(`{"port": {"project_id": %q, "network_id": %q, "device_id": %q}}`,
		neutrontest.Project, neutronOne(t, w, "networks", "name=net-green")["id"], n.pod.UID))["port"].(map[string]any)
	n.id, n.mac = port["id"].(string), port["mac_address"].(string)
	ip, _ := port["fixed_ips"].([]any)[0].(map[string]any)
	n.address = netip.MustParseAddr(ip["ip_address"].(string))

	n.refused(t, machine)
	n.pod.Args = [][2]string{{"PORT_UUID", n.id}, {"PORT_TYPE", "vlan"}, {"IPV4", n.address.String() + "/24"}}
	for _, plug := range []struct {
		name string
		do   func() error
	}{
		{"ADD", func() error { return n.pod.Add(t.Context()) }}, {"repeated ADD", func() error { return n.pod.Add(t.Context()) }},
		{"another sandbox", func() error { return n.pod.Restart(t.Context()) }},
	} {
		must(t, plug.do())
		n.has(t, plug.name, "coelan/Borrowed/Port/green/web.eth0 "+n.id+" of "+n.pod.UID, "")
	}
	before := n.set(t)
	w.Neutron.StopController()
	must(t, w.Neutron.StartController())
	// The controller has compared all when another pod has its port.
	must(t, addPodAs(t, w.n2, lab.PodSpec{Namespace: "green", Name: "next"}).Delete(t.Context()))
	if diff := cmp.Diff(before, n.set(t)); diff != "" {
		t.Errorf("a controller that starts changes the port: %s", diff)
	}

	// The controller that gives it back has not seen the Port.
	w.Neutron.StopController()
	must(t, n.pod.Del(t.Context()))
	must(t, w.Neutron.StartController())
	n.back(t, func(p map[string]any) bool { return p["device_owner"] == "compute:kuryr" && n.vlan(t) == 0 })

	// The program puts it on the trunk itself, as Kuryr did: Neutron takes it without a device.
	trunk := neutronOne(t, w, "trunks", "")["id"]
	neutronCall(t, w, "PUT", "ports/"+n.id, `{"port": {"device_id": ""}}`)
	neutronCall(t, w, "PUT", fmt.Sprintf("trunks/%v/add_subports", trunk), fmt.Sprintf(
		`{"sub_ports": [{"port_id": %q, "segmentation_type": "vlan", "segmentation_id": 777}]}`, n.id))
	neutronCall(t, w, "PUT", "ports/"+n.id, fmt.Sprintf(`{"port": {"device_id": %q}}`, n.pod.UID))
	must(t, n.pod.Add(t.Context()))
	n.has(t, "on the trunk already", "coelan/Borrowed/Port/green/web.eth0 "+n.id, n.pod.UID)
	must(t, n.pod.Delete(t.Context()))
	n.back(t, func(map[string]any) bool { return n.vlan(t) == 777 })
	neutronCall(t, w, "PUT", fmt.Sprintf("trunks/%v/remove_subports", trunk), fmt.Sprintf(`{"sub_ports": [{"port_id": %q}]}`, n.id))
	neutronCall(t, w, "DELETE", "ports/"+n.id, "")
	must(t, n.other.Delete(t.Context()))
}

// refused fails if a pod gets the port that it is not for, or as what it cannot be on its node.
func (n namedOnTrunk) refused(t *testing.T, machine *lab.Node) {
	t.Helper()
	stranger, err := machine.NewPodAs(lab.PodSpec{Namespace: "green", Name: "stranger"})
	must(t, err)
	elsewhere, err := n.n2.NewPodAs(lab.PodSpec{Namespace: "green", Name: "elsewhere"})
	must(t, err)
	uuid := [2]string{"PORT_UUID", n.id}
	for _, tc := range []struct {
		name string
		pod  *lab.Pod
		args [][2]string
		want string
	}{
		{"another pod's", stranger, [][2]string{uuid, {"PORT_TYPE", "vlan"}}, "device_id is " + n.pod.UID},
		{"another type", n.pod, [][2]string{uuid, {"PORT_TYPE", "ovs"}}, "ask for vlan"},
		{"no machine", elsewhere, [][2]string{uuid, {"PORT_TYPE", "vlan"}}, "ask for ovs"},
	} {
		tc.pod.Args = tc.args
		if err := tc.pod.Add(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
		must(t, tc.pod.Del(t.Context()))
	}
	must(t, stranger.Delete(t.Context()))
	must(t, elsewhere.Delete(t.Context()))
}

// vlan is that of the port on the trunk; 0: it is not there.
func (n namedOnTrunk) vlan(t *testing.T) float64 {
	t.Helper()
	on, _ := neutronOne(t, n.world, "trunks", "")["sub_ports"].([]any)
	for _, s := range on {
		if sub := s.(map[string]any); sub["port_id"] == n.id {
			return sub["segmentation_id"].(float64)
		}
	}
	return 0
}

// set is what the port has, and its VLAN, without what Neutron itself says of it, which follows
// late.
func (n namedOnTrunk) set(t *testing.T) map[string]any {
	t.Helper()
	p := neutronOne(t, n.world, "ports", "id="+n.id)
	for _, own := range []string{"status", "revision_number", "updated_at", "binding:host_id"} {
		delete(p, own)
	}
	p["vlan"] = n.vlan(t)
	return p
}

// has fails if the pod has not the port, or if packets do not reach it.
func (n namedOnTrunk) has(t *testing.T, when, description, device string) {
	t.Helper()
	if own := n.pod.Own("eth0", lab.IPv4); own != n.address || n.pod.MAC.String() != n.mac {
		t.Errorf("%s: the pod has %s and %s, the port %s and %s", when, own, n.pod.MAC, n.address, n.mac)
	}
	must(t, n.pod.Check(t.Context()))
	// Nothing says on a machine when OVN below it has connected a port.
	neutronPoll(t, func() bool {
		r, err := (&probe.Ping{Dst: n.address, Count: 2}).Run(t.Context(), n.other.Host)
		return err == nil && r.Lost() == 0
	}, func() { t.Errorf("%s: the pod is not reached", when) })
	if p := neutronOne(t, n.world, "ports", "id="+n.id); p["description"] != description || p["device_id"] != device ||
		p["device_owner"] != "trunk:subport" || n.vlan(t) == 0 {
		t.Errorf("%s: in VLAN %v is %v", when, n.vlan(t), p)
	}
}

// back waits until the port is the program's again.
func (n namedOnTrunk) back(t *testing.T, more func(map[string]any) bool) {
	t.Helper()
	neutronPoll(t, func() bool {
		p := neutronOne(t, n.world, "ports", "id="+n.id)
		return p["description"] == "" && p["name"] == "" && p["device_id"] == n.pod.UID && p["mac_address"] == n.mac && more(p)
	}, func() { t.Errorf("in VLAN %v is %v", n.vlan(t), neutronOne(t, n.world, "ports", "id="+n.id)) })
}
