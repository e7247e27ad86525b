// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"testing"
	"time"
)

// damaged wants ports on a tenant's network, and returns what makes changes to them by hand, and
// what says which of these are not mended.
func damaged(w *world) (damage func(), left func() string) {
	w.set(tenant(3, route("10.99.0.0/24", "10.90.1.1")))
	w.done()
	ids := w.ports()
	router, subnet := w.neutron.All("routers")[0]["id"].(string), w.neutron.All("subnets")[0]["id"].(string)
	damage = func() {
		w.call("DELETE", "ports/"+ids["Port shop/web-0000"], "")
		w.call("PUT", "ports/"+ids["Port shop/web-0001"], `{"port": {"fixed_ips": []}}`)
		w.call("PUT", "routers/"+router, `{"router": {"routes": [], "name": "by hand"}}`)
		w.call("PUT", "routers/"+router+"/remove_router_interface", fmt.Sprintf(`{"subnet_id": %q}`, subnet))
	}
	return damage, func() string {
		if w.portOf("Port shop/web-0000") == ids["Port shop/web-0000"] || w.portOf("Port shop/web-0001") != ids["Port shop/web-0001"] {
			return fmt.Sprintf("ports were %v and are %v: the first is made anew, the second is changed", ids, w.ports())
		}
		r := w.neutron.All("routers")[0]
		if routes, _ := r["routes"].([]any); len(routes) != 1 || r["name"] != "router-red" {
			return fmt.Sprintf("router %v", r)
		}
		ports := w.neutron.All("ports")
		for _, p := range ports {
			if ips, _ := p["fixed_ips"].([]any); len(ips) == 0 {
				return fmt.Sprintf("port %v has no address", p["description"])
			}
		}
		if n := len(ports); n != 5 {
			return fmt.Sprintf("%d ports, want 3 and the router's, of which it has one for each family", n)
		}
		return ""
	}
}

// What is changed or deleted by hand while no client runs is mended by the next one.
func TestMends(t *testing.T) {
	w := newWorld(t)
	damage, left := damaged(w)
	w.stop()
	damage()
	w.start()
	w.done()
	if why := left(); why != "" {
		t.Error(why)
	}
}

// What is changed or deleted by hand is mended by a client that nothing else wakes than its timer.
func TestResync(t *testing.T) {
	w := newWorldWith(t, func(c *Client) { c.o.Resync = 20 * time.Millisecond })
	damage, left := damaged(w)
	for range 3 {
		damage()
		why := "nothing is reported"
		w.await("all is mended", func(o outcome) bool { why = left(); return w.settled(o) && why == "" })
		damage, left = damaged(w)
	}
}
