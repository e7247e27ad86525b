// SPDX-License-Identifier: Apache-2.0

//go:build neutron && integration

package integration

import (
	"fmt"
	"net/netip"
	"testing"

	"coelan.io/coelan/internal/neutrontest"
	"coelan.io/coelan/test/lab"
)

// neutronMachineNode has a machine of OpenStack on n1, plugged by the parent port of a trunk, be a
// node of the cluster.
func neutronMachineNode(t *testing.T, w *world) *lab.Node {
	t.Helper()
	made := func(collection, body string, args ...any) map[string]any {
		for _, o := range neutronCall(t, w, "POST", collection, fmt.Sprintf(body, args...)) {
			return o.(map[string]any)
		}
		return nil
	}
	network := made("networks", `{"network": {"project_id": %q, "name": "machines"}}`, neutrontest.Project)
	subnet := made("subnets", `{"subnet": {"project_id": %q, "network_id": %q, "cidr": "10.80.0.0/24", "ip_version": 4}}`,
		neutrontest.Project, network["id"])
	port := made("ports", `{"port": {"project_id": %q, "network_id": %q, "name": "worker", "device_id": "worker",
		"device_owner": "compute:nova", "binding:host_id": "n1", "fixed_ips": [{"subnet_id": %q, "ip_address": "10.80.0.5"}]}}`,
		neutrontest.Project, network["id"], subnet["id"])
	made("trunks", `{"trunk": {"project_id": %q, "port_id": %q}}`, neutrontest.Project, port["id"])
	n, err := w.AddMachine(t.Context(), lab.Machine{
		On: w.n1, Port: port["id"].(string), MAC: parseMAC(t, port["mac_address"].(string)),
		Address: netip.MustParsePrefix("10.80.0.5/24"), Gateway: netip.MustParseAddr("10.80.0.1"),
		MTU: int(network["mtu"].(float64)),
	})
	must(t, err)
	return n
}

// Pods of a node that is a machine of OpenStack, and it itself, reach those of other nodes and each
// other by the trunk. CHECK agrees, and so does the agent.
func neutronTrunk(t *testing.T, w *world) {
	machine := neutronMachineNode(t, w)
	near, far := addPodAs(t, machine, lab.PodSpec{Name: "near"}), addPodAs(t, machine, lab.PodSpec{Name: "far"})
	own, other := of(management(machine)), of(management(w.n1))
	for _, p := range []path{
		{"pod to pod on the machine", near.Host, far.Host, far.Address, near.Address},
		{"pod to pod on the node below", near.Host, w.a.Host, w.a.Address, near.Address},
		{"pod to pod on another node", near.Host, w.c.Host, w.c.Address, near.Address},
		{"pod of another node to pod", w.c.Host, near.Host, near.Address, w.c.Address},
		{"pod to the machine", near.Host, machine.Host, own, near.Address},
		{"machine to its pod", machine.Host, near.Host, near.Address, own},
		{"machine to pod on another node", machine.Host, w.c.Host, w.c.Address, own},
		{"pod to another node's management address", near.Host, w.n1.Host, other, near.Address},
	} {
		for f := range lab.Dual.Each {
			t.Run(p.name+" "+f.String(), func(t *testing.T) { neutronReaches(t, p, f) })
		}
	}
	for _, p := range []*lab.Pod{near, far} {
		must(t, p.Check(t.Context()))
	}
	must(t, machine.Check(t.Context()))

	port := neutronPort(t, w, near)
	if port["device_owner"] != "trunk:subport" {
		t.Errorf("the pod's port: %v", port)
	}
	trunk := neutronOne(t, w, "trunks", "")
	if on, _ := trunk["sub_ports"].([]any); len(on) < 3 {
		t.Errorf("on the trunk are %v", on)
	}
	must(t, near.Delete(t.Context()))
	next := addPodAs(t, machine, lab.PodSpec{Name: "next"})
	neutronReaches(t, path{"a pod that comes next", next.Host, w.c.Host, w.c.Address, next.Address}, lab.IPv4)
	if neutronPort(t, w, next)["device_owner"] != "trunk:subport" {
		t.Error("the next pod's port is not on the trunk")
	}
	t.Run("named port", func(t *testing.T) { neutronNamedOnTrunk(t, w, machine) })
}
