// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
)

// A port that an object names is looked up at once, taken when it is wanted, and given back when it
// is not: again and again, also if calls are not answered, and in the project of a namespace.
func TestBorrows(t *testing.T) {
	for _, tc := range []struct {
		project string
		fault   neutronfake.Fault
	}{{"", neutronfake.None}, {"", neutronfake.Busy}, {"", neutronfake.Lost}, {"q", neutronfake.None}, {"q", neutronfake.Lost}} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			w := newWorld(t)
			w.lender = tc.project
			plain := w.tenant()
			w.set(plain)
			w.done()
			ids := w.lend()
			w.failing(tc.fault)
			for round := range 2 {
				asker := fmt.Sprint("u", round)
				w.offered("", asker, ids["port"])
				w.unchanged(ids["port"])

				w.ask(asker, ids["port"], lentMAC)
				w.set(w.borrowing(ids["port"]))
				w.done()
				got := w.portOf("Port shop/web")
				if p := w.port(ids["port"]); got != ids["port"] || p["binding:host_id"] != "n1" {
					t.Errorf("the port is %s, %v", got, p)
				}
				w.stop()
				w.start()
				w.done()

				w.ask("", "", "")
				w.set(plain)
				w.done()
				w.unchanged(ids["port"])
			}
		})
	}
}

// A port that is wanted again before it is known whether it was given back is taken again.
func TestGivenBackUnanswered(t *testing.T) {
	w := newWorld(t)
	w.set(tenant(0))
	w.done()
	ids := w.lend()
	borrow := func(asker string) {
		w.ask(asker, ids["port"], lentMAC)
		w.set(w.borrowing(ids["port"]))
	}
	borrow("u1")
	w.done()
	lost := false
	w.neutron.Fail(func(_ int, method, path string) neutronfake.Fault {
		if !lost && method == http.MethodPut && path == "ports/"+ids["port"] {
			lost = true
			return neutronfake.Lost
		}
		return neutronfake.None
	})
	w.ask("", "", "")
	w.set(tenant(0))
	w.await("no answer", func(o outcome) bool { return o.err != nil })
	borrow("u2")
	w.done()
	if p := w.port(ids["port"]); p["binding:host_id"] != "n1" {
		t.Errorf("the port is %v", p)
	}
}

// Ports of other projects than the network's, and those that the cluster has for another object,
// are not there.
func TestDoesNotLend(t *testing.T) {
	for _, project := range []string{"", "q"} {
		t.Run("in "+project, func(t *testing.T) {
			w := newWorld(t)
			w.stop()
			w.lender, w.projects = project, []string{"q", "r"}
			w.start()
			w.set(w.inProject(tenant(1)))
			w.done()
			own := ""
			for _, p := range w.neutron.All("ports") {
				if text, _ := p["description"].(string); strings.HasPrefix(text, "east/Port/") {
					own = fmt.Sprint(p["id"])
				}
			}
			ids := w.lend()
			for name, tc := range map[string]struct{ id, want string }{
				"own":     {own, "none of this id that is not Coelan's already"},
				"foreign": {ids["foreign"], "none of this id"},
				"another": {ids["another"], "none of this id"},
				"nowhere": {"a28c7404-7495-4557-b7fc-3e293508dbc6", "none of this id"},
				"other":   {ids["other"], "device_id is other, and not uid-1"},
			} {
				w.ask(name, tc.id, "")
				w.await(name+" is refused", func(outcome) bool { return strings.Contains(w.answer(name), tc.want) })
			}
			// The positive control.
			w.offered("", "mine", ids["port"])
		})
	}
}

// inProject is a Set in the project that ports are lent in.
func (w *world) inProject(s *resource.Set) *resource.Set {
	if w.lender == "" {
		return s
	}
	return inProject(s, w.lender)
}

// tenant is the network that ports are lent on.
func (w *world) tenant() *resource.Set { return w.inProject(tenant(0)) }

// lentMAC is the MAC of the port that is lent.
const lentMAC = "fa:16:3e:0a:00:07"

// lend makes ports of another program on the network of tenant: for a pod, for another one, and in
// two other projects. It returns their ids.
func (w *world) lend() map[string]string {
	w.Helper()
	network, subnet := "", ""
	for _, o := range w.neutron.All("networks") {
		network = fmt.Sprint(o["id"])
	}
	for _, o := range w.neutron.All("subnets") {
		if o["cidr"] == "10.90.0.0/16" {
			subnet = fmt.Sprint(o["id"])
		}
	}
	ids := map[string]string{}
	in, foreign := cmp.Or(w.lender, "p"), "p"
	if w.lender == "" {
		foreign = "q"
	}
	for i, p := range []struct{ name, project, device string }{
		{"port", in, "uid-1"}, {"other", in, "other"}, {"foreign", foreign, "uid-1"}, {"another", "r", "uid-1"},
	} {
		status, answer, err := neutronfake.Call(w.Context(), "POST", w.neutron.URL+"/v2.0/ports", fmt.Sprintf(
			`{"port": {"project_id": %q, "network_id": %q, "mac_address": "fa:16:3e:0a:00:%02x", "device_id": %q,
			"fixed_ips": [{"subnet_id": %q, "ip_address": "10.90.7.%d"}]}}`, p.project, network, i+7, p.device, subnet, i+7))
		if err != nil || status != 201 {
			w.Fatalf("%d, %v, %v", status, answer, err)
		}
		made, _ := answer["port"].(map[string]any)
		ids[p.name] = fmt.Sprint(made["id"])
	}
	return ids
}

// ask has the object shop/web ask for a port; nothing: no object does.
func (w *world) ask(asker, id, mac string) { w.askOn("", asker, id, mac) }

// askOn is ask for a port on the trunk of a node; empty: on none.
func (w *world) askOn(node, asker, id, mac string) {
	w.mu.Lock()
	w.asks = nil
	if id != "" {
		w.asks = []resource.Claim{{
			Kind: resource.Port, ID: id, By: "Port shop/web", Ref: resource.BorrowedPort("Port/shop/web", id).In(w.lender), Asker: asker, MAC: mac,
			Trunk: node,
			Has: map[string][]any{
				"device_id": {"uid-1"}, "network_id": {resource.Ref{Kind: resource.Network, Key: "Network/red", Project: w.lender}},
			},
		}}
		w.answers[asker] = "not answered"
	}
	w.mu.Unlock()
	w.client.Changed()
}

// offered asks for a port on the trunk of a node, or on none, and waits until the answer is that it
// can be had.
func (w *world) offered(node, asker, id string) {
	w.Helper()
	w.askOn(node, asker, id, "")
	w.await("it is offered to "+asker, func(outcome) bool { return w.answer(asker) == "" })
}

func (w *world) answer(asker string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answers[asker]
}

// borrowing is tenant with the port that is lent.
func (w *world) borrowing(id string) *resource.Set {
	s := tenant(0)
	s.Add(resource.Resource{
		Ref: resource.BorrowedPort("Port/shop/web", id), Object: "Port shop/web", Optional: true,
		Fixed: resource.Attributes{"network_id": resource.Ref{Kind: resource.Network, Key: "Network/red"}, "mac_address": lentMAC},
		Mutable: resource.Attributes{
			"name": "shop/web", "device_id": "uid-1", "device_owner": "compute:kuryr", "binding:host_id": "n1",
		},
	})
	return w.inProject(s)
}

func (w *world) port(id string) map[string]any {
	for _, p := range w.neutron.All("ports") {
		if p["id"] == id {
			return p
		}
	}
	w.Fatalf("the port %s is gone", id)
	return nil
}

// unchanged fails if a port is not as another program has left it to its pod.
func (w *world) unchanged(id string) {
	w.Helper()
	p := w.port(id)
	description, _ := p["description"].(string)
	host, _ := p["binding:host_id"].(string)
	if description != "" || host != "" || p["device_id"] != "uid-1" || p["mac_address"] != lentMAC {
		w.Errorf("the port is not given back: %v", p)
	}
}

// failing has each third call fail.
func (w *world) failing(fault neutronfake.Fault) {
	w.neutron.Fail(func(number int, _, _ string) neutronfake.Fault {
		if number%3 == 2 {
			return fault
		}
		return neutronfake.None
	})
}
