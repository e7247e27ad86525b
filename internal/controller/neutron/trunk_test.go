// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/neutronfake"
)

// A node that becomes a machine of OpenStack while the controller runs has its ports put on the
// trunk, and its agent knows the VLANs of its own and of pods. Pods that come and go then take no
// call, and after it is no machine any more no VLAN is left.
func TestTrunk(t *testing.T) {
	c := newChurn(t)
	made := func(collection, body string) (id string) {
		_, answer, err := neutronfake.Call(t.Context(), "POST", c.neutron.URL+"/v2.0/"+collection, body)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range answer {
			id, _ = o.(map[string]any)["id"].(string)
		}
		return id
	}
	network := made("networks", `{"network": {"project_id": "p"}}`)
	subnet := made("subnets", fmt.Sprintf(`{"subnet": {"project_id": "p", "network_id": %q, "cidr": "192.0.2.0/24", "ip_version": 4}}`, network))
	parent := made("ports", fmt.Sprintf(`{"port": {"project_id": "p", "network_id": %q, "device_id": "vm", "fixed_ips":
		[{"subnet_id": %q, "ip_address": "192.0.2.1"}]}}`, network, subnet))
	made("trunks", fmt.Sprintf(`{"trunk": {"project_id": "p", "port_id": %q}}`, parent))
	c.start()

	n := &corev1.Node{}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	is := func(what, trunk string, vlan func(text string) bool) {
		t.Helper()
		must(c.get(client.ObjectKey{Name: "n1"}, n))
		n = n.DeepCopy()
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[v1alpha1.AnnotationTrunkPort] = trunk
		c.set(n)
		c.await(what, c.changes.Changed, func() bool {
			return c.get(client.ObjectKey{Name: "n1"}, n) == nil && n.Annotations[v1alpha1.AnnotationNeutronPort] != "" &&
				vlan(n.Annotations[v1alpha1.AnnotationNeutronVLAN])
		})
		c.settle()
	}
	is("the node has no VLAN", parent, func(text string) bool { return text != "" })
	c.await("ports are not on the trunk", c.changes.Changed, func() bool {
		return !slices.ContainsFunc(c.neutron.All("ports"), func(p map[string]any) bool {
			return p["device_owner"] == "compute:kuryr"
		})
	})
	before := c.calls()
	for range 3 {
		l := c.add(app{name: "web"})
		p := &v1alpha1.Port{}
		must(c.get(client.ObjectKeyFromObject(l.port), p))
		if p.Status.Neutron.VLAN == 0 || fmt.Sprint(p.Status.Neutron.VLAN) == n.Annotations[v1alpha1.AnnotationNeutronVLAN] {
			t.Errorf("the pod's port is %+v", p.Status.Neutron)
		}
		c.remove(app{name: "web"}, l)
	}
	if after := c.calls(); !maps.Equal(after, before) {
		t.Errorf("pods take calls: %v, before %v", after, before)
	}
	is("the node has a VLAN", "", func(text string) bool { return text == "" })
	for _, trunk := range c.neutron.All("trunks") {
		if on, _ := trunk["sub_ports"].([]any); len(on) > 0 {
			t.Errorf("on the trunk are %v", on)
		}
	}
}
