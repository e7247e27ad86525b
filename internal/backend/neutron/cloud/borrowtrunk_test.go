// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
)

// lendsOnTrunk is a world with a network that ports are lent on, and n1 a machine with a trunk.
func lendsOnTrunk(t *testing.T) (w *world, trunk string, ids map[string]string) {
	t.Helper()
	w = newWorld(t)
	trunk = w.trunk(w.machine("p"))
	w.set(tenant(0))
	w.done()
	return w, trunk, w.lend()
}

// askOnTrunk has the object shop/web ask for a port on the node n1.
func (w *world) askOnTrunk(asker, id, mac string) { w.askOn("n1", asker, id, mac) }

// borrowingOnTrunk is borrowing for the trunk of n1.
func (w *world) borrowingOnTrunk(id string) *resource.Set {
	s := onTrunks(w.borrowing(id))
	for _, p := range s.All(resource.Port) {
		delete(p.Mutable, "device_id")
		delete(p.Mutable, "binding:host_id")
	}
	return s
}

// joined fails if a port is not on the trunk, as shop/web has been told.
func (w *world) joined(id, description, device string) {
	w.Helper()
	w.mu.Lock()
	vlan := w.vlans["Port shop/web"]
	w.mu.Unlock()
	p := w.port(id)
	if p["description"] != description || p["device_id"] != device || vlan < 1 || w.tagged()[description] != vlan {
		w.Errorf("with VLAN %d there is %v of %v", vlan, p, w.tagged())
	}
}

// describedOf is the description of a port that has been put on the trunk by Coelan.
func describedOf(id string) string { return "east/Borrowed/Port/shop/web " + id + " of uid-1" }

// A port that an object names is put on a trunk when it is wanted, and given back with its device
// when it is not: again and again, also if calls are not answered, with new clients, and if it is
// asked for while it is borrowed.
func TestBorrowsOnTrunk(t *testing.T) {
	for _, fault := range []neutronfake.Fault{neutronfake.None, neutronfake.Busy, neutronfake.Lost} {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			w, _, ids := lendsOnTrunk(t)
			w.failing(fault)
			for round := range 2 {
				asker := fmt.Sprint("u", round)
				w.offered("n1", asker, ids["port"])
				w.unchanged(ids["port"])

				w.askOnTrunk(asker, ids["port"], lentMAC)
				w.set(w.borrowingOnTrunk(ids["port"]))
				w.taken(ids["port"])
				w.joined(ids["port"], describedOf(ids["port"]), "")
				w.stop()
				w.start()
				w.offered("n1", "next"+asker, ids["port"]) // while it is borrowed
				w.taken(ids["port"])
				w.joined(ids["port"], describedOf(ids["port"]), "")

				w.ask("", "", "")
				w.set(tenant(0))
				w.done()
				w.unchanged(ids["port"])
				if on := w.tagged(); len(on) != 1 {
					t.Errorf("on the trunk are %v", on)
				}
			}
		})
	}
}

// taken waits until a port is the one of shop/web, and all is as wanted.
func (w *world) taken(id string) {
	w.Helper()
	w.await("it is taken", func(o outcome) bool {
		return len(o.problems) == 0 && o.err == nil && w.portOf("Port shop/web") == id &&
			strings.HasPrefix(fmt.Sprint(w.port(id)["description"]), "east/Borrowed/") && len(w.tagged()) == 2
	})
}

// A client may end between any two calls: what it leaves is taken, or given back, by the next one.
func TestBorrowOnTrunkIsCut(t *testing.T) {
	for name, tc := range map[string]struct{ returning, wanted bool }{
		"before it joins": {wanted: true},
		"before it joins, and it is wanted no more":               {},
		"before it gets its device back":                          {returning: true},
		"before it gets its device back, and it is wanted again ": {returning: true, wanted: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, ids := lendsOnTrunk(t)
			borrow := func() {
				w.askOnTrunk("u", ids["port"], lentMAC)
				w.set(w.borrowingOnTrunk(ids["port"]))
			}
			giveBack := func() {
				w.ask("", "", "")
				w.set(tenant(0))
			}
			if tc.returning {
				borrow()
				w.taken(ids["port"])
				w.cutAt(func(method, path string) bool { return method == http.MethodPut && strings.HasPrefix(path, "ports/") })
				giveBack()
			} else {
				w.cutAt(func(_, path string) bool { return strings.HasSuffix(path, "add_subports") })
				borrow()
			}
			w.await("a call fails", func(o outcome) bool { return o.err != nil })
			w.stop()
			if p := w.port(ids["port"]); p["description"] != describedOf(ids["port"]) || p["device_id"] != "" || len(w.tagged()) != 1 {
				t.Errorf("between is %v, on the trunk %v", p, w.tagged())
			}
			w.neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.None })
			if tc.wanted {
				borrow()
				w.start()
				w.taken(ids["port"])
				w.joined(ids["port"], describedOf(ids["port"]), "")
				return
			}
			giveBack()
			w.start()
			w.done()
			w.unchanged(ids["port"])
		})
	}
}

// cutAt has all calls fail from the first one on that a test names.
func (w *world) cutAt(at func(method, path string) bool) {
	cut := false
	w.neutron.Fail(func(_ int, method, path string) neutronfake.Fault {
		if cut = cut || at(method, path); cut {
			return neutronfake.Busy
		}
		return neutronfake.None
	})
}

// A port that the program has put on the node's trunk itself, be it a moment ago, keeps its VLAN
// and its device, and stays there. One that is on another trunk is not taken.
func TestBorrowsSubport(t *testing.T) {
	w, trunk, ids := lendsOnTrunk(t)
	subport := func(trunk string, vlan int) {
		t.Helper()
		// Neutron takes it while it has no device.
		w.put("ports/"+ids["port"], `{"port": {"device_id": ""}}`)
		w.put("trunks/"+trunk+"/add_subports", fmt.Sprintf(
			`{"sub_ports": [{"port_id": %q, "segmentation_type": "vlan", "segmentation_id": %d}]}`, ids["port"], vlan))
		w.put("ports/"+ids["port"], `{"port": {"device_id": "uid-1"}}`)
	}
	subport(trunk, 77)
	w.offered("n1", "u", ids["port"])
	w.askOnTrunk("u", ids["port"], lentMAC)
	w.set(w.borrowingOnTrunk(ids["port"]))
	w.taken(ids["port"])
	w.joined(ids["port"], "east/Borrowed/Port/shop/web "+ids["port"], "uid-1")
	w.stop()
	w.start()
	w.taken(ids["port"])
	w.ask("", "", "")
	w.set(tenant(0))
	w.done()
	w.unchanged(ids["port"])
	if got := w.tagged(); got[""] != 77 {
		t.Errorf("it does not stay on the trunk: %v", got)
	}

	w.put("trunks/"+trunk+"/remove_subports", fmt.Sprintf(`{"sub_ports": [{"port_id": %q}]}`, ids["port"]))
	network := w.makes("networks", `{"network": {"project_id": "p"}}`)
	other := w.makes("ports", fmt.Sprintf(`{"port": {"project_id": "p", "network_id": %q, "device_id": "vm2"}}`, network))
	elsewhere := w.makes("trunks", fmt.Sprintf(`{"trunk": {"project_id": "p", "port_id": %q}}`, other))
	subport(elsewhere, 5)
	for _, when := range []string{"moved", "read anew"} {
		w.askOnTrunk(when, ids["port"], "")
		w.await("it is refused", func(outcome) bool { return strings.Contains(w.answer(when), "it is on another trunk") })
		w.client.Reread()
	}
}

// While the trunk lets no port go, its port is not given back: the program's would be on the trunk.
// When the trunk is gone, or the port, nothing is left to do.
func TestTrunkKeepsBorrowed(t *testing.T) {
	for name, then := range map[string]func(w *world, trunk, port string){
		"it is enabled": func(w *world, trunk, _ string) {
			w.put("trunks/"+trunk, `{"trunk": {"admin_state_up": true}}`)
		},
		"it is deleted": func(w *world, trunk, _ string) {
			w.request("DELETE", "trunks/"+trunk, "")
		},
		"both are deleted": func(w *world, trunk, port string) {
			w.request("DELETE", "trunks/"+trunk, "")
			w.request("DELETE", "ports/"+port, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, trunk, ids := lendsOnTrunk(t)
			w.askOnTrunk("u", ids["port"], lentMAC)
			w.set(w.borrowingOnTrunk(ids["port"]))
			w.taken(ids["port"])
			w.put("trunks/"+trunk, `{"trunk": {"admin_state_up": false}}`)
			w.ask("", "", "")
			w.set(tenant(0))
			w.await("the trunk refuses", func(o outcome) bool { return len(o.problems) > 0 })
			w.joined(ids["port"], describedOf(ids["port"]), "")
			then(w, trunk, ids["port"])
			w.client.Reread()
			w.done()
			if name != "both are deleted" {
				w.unchanged(ids["port"])
			}
		})
	}
}
