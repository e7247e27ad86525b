// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
)

// machine makes, as another program, the port of a machine that is the node n1, with the address
// 10.80.0.2, its trunk, and a port on that in VLAN 1.
func (w *world) machine(project string) (port string) {
	w.Helper()
	network := w.makes("networks", fmt.Sprintf(`{"network": {"project_id": %q}}`, project))
	subnet := w.makes("subnets", fmt.Sprintf(`{"subnet": {"project_id": %q, "network_id": %q, "cidr": "10.80.0.0/24", "ip_version": 4}}`,
		project, network))
	port = w.makes("ports", fmt.Sprintf(`{"port": {"project_id": %q, "network_id": %q, "device_id": "vm", "fixed_ips":
		[{"subnet_id": %q, "ip_address": "10.80.0.2"}]}}`, project, network, subnet))
	w.parent(port, "10.80.0.2")
	return port
}

// trunk makes the trunk of a port, with another program's port.
func (w *world) trunk(port string) (id string) {
	w.Helper()
	id = w.makes("trunks", fmt.Sprintf(`{"trunk": {"project_id": "p", "port_id": %q}}`, port))
	network := w.makes("networks", `{"network": {"project_id": "p"}}`)
	other := w.makes("ports", fmt.Sprintf(`{"port": {"project_id": "p", "network_id": %q, "name": "other"}}`, network))
	w.put("trunks/"+id+"/add_subports", fmt.Sprintf(`{"sub_ports": [{"port_id": %q, "segmentation_type": "vlan", "segmentation_id": 1}]}`, other))
	return id
}

// parent has n1 be plugged by a port; empty: it is no machine.
func (w *world) parent(port, address string) {
	w.mu.Lock()
	w.parents = nil
	if port != "" {
		w.parents = []Parent{{Node: "n1", Port: port, Addresses: []netip.Addr{netip.MustParseAddr(address)}}}
	}
	w.mu.Unlock()
	w.client.Reread()
}

// makes makes a resource, and put changes one.
func (w *world) makes(collection, body string) (id string) {
	w.Helper()
	for _, o := range w.request("POST", collection, body) {
		if made, is := o.(map[string]any); is {
			id, _ = made["id"].(string)
		}
	}
	return id
}

func (w *world) put(path, body string) { w.Helper(); w.request("PUT", path, body) }

func (w *world) request(method, path, body string) map[string]any {
	w.Helper()
	status, answer, err := neutronfake.Call(w.Context(), method, w.neutron.URL+"/v2.0/"+path, body)
	if err != nil || status >= http.StatusBadRequest {
		w.Fatalf("%s %s: %d, %v, %v", method, path, status, answer, err)
	}
	return answer
}

// onTrunks has the ports of a Set be on the trunk of n1.
func onTrunks(s *resource.Set) *resource.Set {
	all := resource.NewSet()
	for _, k := range resource.Kinds() {
		for _, r := range s.All(k) {
			if k == resource.Port {
				r.Trunk, r.Initial = "n1", resource.Attributes{"device_owner": "compute:kuryr"}
				delete(r.Mutable, "device_owner")
				r.Mutable["device_id"] = ""
			}
			all.Add(r)
		}
	}
	return all
}

// tagged are the VLANs of ports by their names, or for ours what is said of them.
func (w *world) tagged() map[string]int {
	names := map[any]string{}
	for _, p := range w.neutron.All("ports") {
		names[p["id"]], _ = p["name"].(string)
		if text, _ := p["description"].(string); text != "" {
			names[p["id"]] = text
		}
	}
	vlans := map[string]int{}
	for _, t := range w.neutron.All("trunks") {
		for _, s := range t["sub_ports"].([]any) {
			sub := s.(map[string]any)
			vlans[names[sub["port_id"]]] = int(sub["segmentation_id"].(float64))
		}
	}
	return vlans
}

// Ports are put on a trunk and taken off it, in batches, beside those of another program, also if
// calls are not answered or the client is started anew, and nothing is left.
func TestTrunk(t *testing.T) {
	for _, fault := range []neutronfake.Fault{neutronfake.None, neutronfake.Busy, neutronfake.Lost} {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			w := newWorld(t)
			w.trunk(w.machine("p"))
			w.neutron.Fail(func(number int, _, _ string) neutronfake.Fault {
				if number%5 == 4 {
					return fault
				}
				return neutronfake.None
			})
			for _, ports := range []int{3, 6, 2} {
				w.set(onTrunks(tenant(ports)))
				w.done()
				got := w.tagged()
				w.mu.Lock()
				for i := range ports {
					key := fmt.Sprintf("Port/shop/web-%04d", i)
					if vlan := got["east/"+key]; vlan < 2 || vlan != w.vlans[strings.Replace(key, "/", " ", 1)] {
						t.Errorf("%s has VLAN %d, and %v are told", key, vlan, w.vlans)
					}
				}
				w.mu.Unlock()
				if len(got) != ports+1 || got["other"] != 1 {
					t.Errorf("of %d ports there are %v", ports, got)
				}
				w.stop()
				w.start()
				w.done()
				if now := w.tagged(); !maps.Equal(now, got) {
					t.Errorf("a new client makes %v of %v", now, got)
				}
			}
			w.parent("", "")
			w.set(tenant(2))
			w.done()
			for _, p := range w.neutron.All("ports") {
				if text, _ := p["description"].(string); text != "" && p["device_owner"] != "compute:kuryr" {
					t.Errorf("n1 is no machine any more, and there is %v", p)
				}
			}
			w.set(tenant(0))
			w.done()
			if got := w.tagged(); len(got) != 1 || got["other"] != 1 {
				t.Errorf("left are %v", got)
			}
		})
	}
}

// All ports that come together are put on the trunk by one call, and go by one.
func TestTrunkInOneCall(t *testing.T) {
	w := newWorld(t)
	w.trunk(w.machine("p"))
	w.set(onTrunks(tenant(1)))
	w.done()
	var calls []string
	w.neutron.Fail(func(_ int, method, path string) neutronfake.Fault {
		if method != http.MethodGet {
			name, _, _ := strings.Cut(path, "/")
			calls = append(calls, method+" "+name)
		}
		return neutronfake.None
	})
	w.set(onTrunks(tenant(5)))
	w.done()
	w.set(onTrunks(tenant(1)))
	w.done()
	slices.Sort(calls)
	want := slices.Concat(slices.Repeat([]string{"DELETE ports"}, 4), slices.Repeat([]string{"POST ports"}, 4), []string{"PUT trunks", "PUT trunks"})
	if !slices.Equal(calls, want) {
		t.Errorf("calls %v, not %v", calls, want)
	}
}

// A port that leaves a trunk and is not deleted before the client ends is deleted by the next one.
func TestTrunkLeftover(t *testing.T) {
	w := newWorld(t)
	w.trunk(w.machine("p"))
	w.set(onTrunks(tenant(1)))
	w.done()
	w.neutron.Fail(func(_ int, method, path string) neutronfake.Fault {
		if method == http.MethodDelete && strings.HasPrefix(path, "ports") {
			return neutronfake.Broken
		}
		return neutronfake.None
	})
	w.set(tenant(0))
	w.await("the port is not deleted", func(o outcome) bool { return len(o.problems) > 0 })
	w.stop()
	if got := w.tagged(); len(got) != 1 {
		t.Errorf("on the trunk are %v", got)
	}
	w.neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.None })
	w.start()
	w.done()
}

// A VLAN is given to another port as late as possible: its node may not know yet that the former
// one is gone.
func TestTrunkVLANs(t *testing.T) {
	w := newWorld(t)
	w.trunk(w.machine("p"))
	w.set(onTrunks(tenant(1)))
	w.done()
	if got := w.tagged()["east/Port/shop/web-0000"]; got != 2 {
		t.Fatalf("the first port has VLAN %d", got)
	}
	w.set(onTrunks(tenant(0)))
	w.done()
	w.set(onTrunks(tenant(1)))
	w.done()
	if got := w.tagged()["east/Port/shop/web-0000"]; got != 3 {
		t.Errorf("the next port has VLAN %d", got)
	}
}

// What keeps ports off a node's trunk is found out.
func TestTrunkProblems(t *testing.T) {
	const node = "10.80.0.2"
	for name, tc := range map[string]struct {
		make   func(*world)
		reason string
	}{
		"as it is to be":           {func(w *world) { w.trunk(w.machine("p")) }, ""},
		"no extension":             {func(w *world) { w.machine("p"); w.neutron.NoTrunks() }, "TrunksUnsupported"},
		"no such port":             {func(w *world) { w.parent("00000000-0000-0000-0000-000000000000", node) }, "TrunkPortNotFound"},
		"no UUID":                  {func(w *world) { w.parent("eth0", node) }, "TrunkPortNotFound"},
		"a port of another":        {func(w *world) { w.machine("q") }, "TrunkPortOfAnother"},
		"no trunk":                 {func(w *world) { w.machine("p") }, "TrunkNotFound"},
		"another machine's":        {func(w *world) { p := w.machine("p"); w.trunk(p); w.parent(p, "10.80.0.3") }, "TrunkPortElsewhere"},
		"a trunk of another":       {func(w *world) { w.makes("trunks", `{"trunk": {"project_id": "q", "port_id": "`+w.machine("p")+`"}}`) }, "TrunkNotFound"},
		"nothing of OpenStack yet": {func(*world) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.stop()
			tc.make(w)
			api, project, err := Access{Endpoint: w.neutron.URL, Project: "p"}.connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s := newSession(api, project, tenants{}, Options{
				Claims: noClaims, Lent: noneLent, Parents: func() []Parent { return w.parents },
			}, func() {})
			have, err := s.read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := have.Trunks()["n1"]
			if got.Reason != tc.reason || (got.Why == "") != (tc.reason == "") {
				t.Errorf("%+v, want %q", got, tc.reason)
			}
		})
	}
}

// A port for which the trunk has no VLAN is a problem of its object, and others work.
func TestTrunkFull(t *testing.T) {
	w := newWorld(t)
	id := w.trunk(w.machine("p"))
	network := w.makes("networks", `{"network": {"project_id": "p"}}`)
	var items []string
	for vlan := 3; vlan <= vlans; vlan++ {
		items = append(items, fmt.Sprintf(`{"port_id": %q, "segmentation_type": "vlan", "segmentation_id": %d}`,
			w.makes("ports", fmt.Sprintf(`{"port": {"project_id": "p", "network_id": %q}}`, network)), vlan))
	}
	w.put("trunks/"+id+"/add_subports", `{"sub_ports": [`+strings.Join(items, ",")+`]}`)
	w.client.Reread()
	w.set(onTrunks(tenant(2)))
	o := w.await("the trunk is full", func(o outcome) bool { return len(o.problems) > 0 })
	if o.problems[0].Reason != "VLANsUsedUp" || o.problems[0].Object != "Port shop/web-0001" {
		t.Errorf("problems %+v", o.problems)
	}
	if got := w.tagged()["east/Port/shop/web-0000"]; got != 2 {
		t.Errorf("the first port has VLAN %d", got)
	}
}
