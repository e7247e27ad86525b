// SPDX-License-Identifier: Apache-2.0

//go:build neutron && integration

package integration

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"coelan.io/coelan/internal/neutrontest"
	"coelan.io/coelan/test/lab"
)

// neutronMachines is a network of Neutron that machines of OpenStack are on, 10.I.0.0/24.
type neutronMachines struct {
	id, subnet string
	mtu, i     int
}

// neutronMade is what a call has made.
func neutronMade(t *testing.T, w *world, collection, body string, args ...any) map[string]any {
	t.Helper()
	for _, o := range neutronCall(t, w, "POST", collection, fmt.Sprintf(body, args...)) {
		return o.(map[string]any)
	}
	return nil
}

func newNeutronMachines(t *testing.T, w *world, i int) neutronMachines {
	t.Helper()
	network := neutronMade(t, w, "networks", `{"network": {"project_id": %q, "name": "machines"}}`, neutrontest.Project)
	subnet := neutronMade(t, w, "subnets",
		`{"subnet": {"project_id": %q, "network_id": %q, "cidr": "10.%d.0.0/24", "ip_version": 4}}`,
		neutrontest.Project, network["id"], i)
	return neutronMachines{network["id"].(string), subnet["id"].(string), int(network["mtu"].(float64)), i}
}

// address is the nth of the network.
func (m neutronMachines) address(n int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("10.%d.0.%d/24", m.i, n))
}

// port makes that of a machine on a node, with the nth address.
func (m neutronMachines) port(t *testing.T, w *world, on *lab.Node, n int) (id string, mac net.HardwareAddr) {
	t.Helper()
	port := neutronMade(t, w, "ports", `{"port": {"project_id": %q, "network_id": %q, "name": "worker", "device_id": "worker",
		"device_owner": "compute:nova", "binding:host_id": %q, "fixed_ips": [{"subnet_id": %q, "ip_address": %q}]}}`,
		neutrontest.Project, m.id, on.Name, m.subnet, m.address(n).Addr())
	return port["id"].(string), parseMAC(t, port["mac_address"].(string))
}

// node has a machine on n1, plugged by the parent port of a trunk, be a node of the cluster.
func (m neutronMachines) node(t *testing.T, w *world, bare bool) *lab.Node {
	t.Helper()
	id, mac := m.port(t, w, w.n1, 5)
	neutronMade(t, w, "trunks", `{"trunk": {"project_id": %q, "port_id": %q}}`, neutrontest.Project, id)
	n, err := w.AddMachine(t.Context(), lab.Machine{
		On: w.n1, Port: id, MAC: mac, Address: m.address(5), Gateway: m.address(1).Addr(), MTU: m.mtu, Bare: bare,
	})
	must(t, err)
	return n
}

// Pods of a node that is a machine of OpenStack, and it itself, reach those of other nodes and each
// other by the trunk. CHECK agrees, and so does the agent.
func neutronTrunk(t *testing.T, w *world) {
	machine := newNeutronMachines(t, w, 80).node(t, w, false)
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
