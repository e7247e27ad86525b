// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
)

// A pod of a StatefulSet is replaced up to 200 times, each time on the other node and as soon as it
// is gone. Each has a port of its own when its node is told so, which no other one has, and none is
// left of them.
func TestReplacedPods(t *testing.T) {
	mac := intent.MAC{0x02, 0, 0, 0, 0x71, 0x77}
	for _, tc := range []struct {
		name  string
		mac   *intent.MAC
		times int
	}{
		{"on ports that are ready", nil, 50}, {"with a MAC of its own", &mac, 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newChurn(t)
			sites := []*site{c.site, c.addSite(2)}
			c.start()
			db := app{name: "db", stable: true}
			var pod *live
			for i := range tc.times {
				pod = c.addTo(sites[i%len(sites)], db, tc.mac)
				c.hasPort(pod)
				c.detach(pod)
				c.delete(pod.pod)
			}
			c.absent(pod.port)
			c.settle()
			for _, p := range c.neutron.All("ports") {
				if text := fmt.Sprint(p["description"], p["device_id"]); strings.Contains(text, "db-0") || strings.Contains(text, "uid-") {
					t.Errorf("left: %v", p)
				}
			}
		})
	}
}

// hasPort has a pod's port in Neutron be on its node, with its addresses, and the only one with
// these or its MAC.
func (c *churn) hasPort(l *live) {
	c.Helper()
	now := &v1alpha1.Port{}
	if err := c.get(client.ObjectKeyFromObject(l.port), now); err != nil {
		c.Fatal(err)
	}
	for _, p := range c.neutron.All("ports") {
		var addresses []string
		ips, _ := p["fixed_ips"].([]any)
		for _, ip := range ips {
			addresses = append(addresses, fmt.Sprint(ip.(map[string]any)["ip_address"]))
		}
		own := slices.Equal(addresses, now.Status.Addresses) && p["mac_address"] == now.Status.MAC && p["binding:host_id"] == l.node
		shared := p["mac_address"] == now.Status.MAC ||
			slices.ContainsFunc(addresses, func(a string) bool { return slices.Contains(now.Status.Addresses, a) })
		if is := p["id"] == now.Status.Neutron.ID; is != own || !is && shared {
			c.Errorf("pod %s on %s has port %s, with %v and %s; there is %v", l.pod.UID, l.node, now.Status.Neutron.ID,
				now.Status.Addresses, now.Status.MAC, p)
		}
	}
}
