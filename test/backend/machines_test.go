// SPDX-License-Identifier: Apache-2.0

//go:build integration

package backend

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/neutrontest"
	"coelan.io/coelan/test/lab"
)

// machine is one that another program plugs in: a Port of Coelan, or with Neutron a port of
// OpenStack's own.
type machine struct {
	namespace, name, network string
	mac                      intent.MAC
	prefixes                 []netip.Prefix
}

// port makes the port of a machine on a node, and returns by what external_ids:iface-id it is
// plugged.
func (w *world) port(t *testing.T, n *lab.Node, m machine) (ifaceID string) {
	t.Helper()
	if w.Neutron == nil {
		var addresses []string
		for _, p := range m.prefixes {
			addresses = append(addresses, p.Addr().String())
		}
		w.API.AddPort(m.namespace, m.name, m.network, m.mac.String(), addresses...)
		return m.namespace + "/" + m.name
	}
	network := w.neutronNetwork(t, m.network, len(m.prefixes))
	var addresses []string
	for _, p := range m.prefixes {
		addresses = append(addresses, fmt.Sprintf(`{"ip_address": %q}`, p.Addr()))
	}
	made := w.ask(t, "POST", "ports", fmt.Sprintf(`{"port": {"project_id": %q, "network_id": %q, "name": %q, "mac_address": %q,
		"fixed_ips": [%s], "device_owner": "compute:nova", "binding:host_id": %q, "port_security_enabled": false}}`,
		neutrontest.Project, network, m.name, m.mac, strings.Join(addresses, ", "), n.Name))
	return made["port"].(map[string]any)["id"].(string)
}

// movePort has a machine's port be plugged on another node.
func (w *world) movePort(t *testing.T, ifaceID string, to *lab.Node) {
	t.Helper()
	if w.Neutron != nil {
		w.ask(t, "PUT", "ports/"+ifaceID, fmt.Sprintf(`{"port": {"binding:host_id": %q}}`, to.Name))
	}
}

// removePort removes a machine's port.
func (w *world) removePort(t *testing.T, ifaceID, namespace, name string) {
	t.Helper()
	if w.Neutron != nil {
		w.ask(t, "DELETE", "ports/"+ifaceID, "")
		return
	}
	w.API.RemovePort(namespace, name)
}

// neutronNetwork waits until a Network is in Neutron with so many subnets, and returns its id.
func (w *world) neutronNetwork(t *testing.T, name string, subnets int) (id string) {
	t.Helper()
	eventually(t, "Network "+name+" in Neutron", func(context.Context) error {
		list, _ := w.ask(t, "GET", "networks?name=net-"+name, "")["networks"].([]any)
		for _, n := range list {
			network := n.(map[string]any)
			if has, _ := network["subnets"].([]any); len(has) == subnets {
				id = network["id"].(string)
				return nil
			}
		}
		return errors.New("it is not there with its subnets")
	})
	return id
}

// ask makes a call of Neutron's, as another program of OpenStack does.
func (w *world) ask(t *testing.T, method, path, body string) map[string]any {
	t.Helper()
	status, answer, err := neutronfake.Call(t.Context(), method, w.Neutron.Endpoint+"v2.0/"+path, body)
	if err != nil || status >= http.StatusBadRequest {
		t.Fatalf("%s %s: %d, %v, %v", method, path, status, answer, err)
	}
	return answer
}
