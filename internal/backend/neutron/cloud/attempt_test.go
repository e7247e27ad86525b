// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
)

// count has outcomes say how many calls of a method there were for a collection, or for one of its
// resources.
func (w *world) count(method, collection string) {
	w.calls.Store(0)
	w.neutron.Arrive(func(m, path string) {
		if m == method && (path == collection || strings.HasPrefix(path, collection+"/")) {
			w.calls.Add(1)
		}
	})
}

// withAddress adds a floating IP to what is wanted, which comes after all ports; of a port, if one
// is named.
func (w *world) withAddress(s *resource.Set, port string) *resource.Set {
	w.Helper()
	r := resource.Resource{
		Ref: resource.Ref{Kind: resource.FloatingIP, Key: "FloatingIP/shop/web"}, Object: "FloatingIP shop/web",
		Fixed: resource.Attributes{"floating_network_id": w.outside()}, Mutable: resource.Attributes{"port_id": nil},
	}
	if port != "" {
		r.Mutable["port_id"] = resource.Ref{Kind: resource.Port, Key: port}
	}
	s.Add(r)
	return s
}

// outside is the id of an external network, which is made at once.
func (w *world) outside() any {
	w.Helper()
	for _, n := range w.neutron.All("networks") {
		if n["name"] == "outside" {
			return n["id"]
		}
	}
	id := w.makes("networks", `{"network": {"project_id": "q", "name": "outside", "router:external": true}}`)
	w.call("POST", "subnets",
		fmt.Sprintf(`{"subnet": {"project_id": "q", "network_id": %q, "cidr": "192.0.2.0/24", "ip_version": 4}}`, id))
	return id
}

// subnetOf is the subnet of a prefix.
func (w *world) subnetOf(cidr string) map[string]any {
	w.Helper()
	for _, s := range w.neutron.All("subnets") {
		if s["cidr"] == cidr {
			return s
		}
	}
	w.Fatalf("there is no subnet %s", cidr)
	return nil
}

// More calls that Neutron refuses than a round makes keep none behind them from being made, and are
// said of their objects; each is made once until the pause.
func TestManyAreRefused(t *testing.T) {
	const ports = 3 * maxCalls
	for name, tc := range map[string]struct {
		most   int32 // calls
		refuse func(w *world)
	}{
		// Two are the router's.
		"by their quota": {parallel, func(w *world) { w.neutron.Quota("ports", 2) }},
		"each for its address": {ports, func(w *world) {
			subnet := w.subnetOf("10.90.0.0/16")
			for i := range ports {
				w.call("POST", "ports", fmt.Sprintf(`{"port": {"project_id": "q", "network_id": %q, "fixed_ips": [{"subnet_id": %q,
					"ip_address": "10.90.%d.%d"}]}}`, subnet["network_id"], subnet["id"], i/200+1, i%200+1))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.set(tenant(0))
			w.done()
			tc.refuse(w)
			w.count(http.MethodPost, "ports")
			w.set(w.withAddress(tenant(ports), ""))
			o := w.await("refusals", func(o outcome) bool { return len(o.problems) > 0 })
			if len(o.problems) != ports {
				t.Errorf("problems of %d objects, want %d", len(o.problems), ports)
			}
			if n := len(w.described("floatingips")); n != 1 {
				t.Errorf("%d floating IPs: what comes behind is not made", n)
			}
			if o.calls > tc.most {
				t.Errorf("%d calls for %d ports before all is said", o.calls, ports)
			}
		})
	}
}

// Ports that are ready before, and wait for what Neutron refuses, do not keep others from being
// made, and it is said why.
func TestReadyPortsWait(t *testing.T) {
	w := newWorld(t)
	w.neutron.Quota("networks", 0)
	w.count(http.MethodPost, "networks")
	w.set(spare(tenant(20), 0))
	o := w.await("a refusal", func(o outcome) bool { return len(o.problems) > 0 })
	said := fmt.Sprint(o.problems)
	if !strings.Contains(said, reasonQuota) || !strings.Contains(said, "Node n1") || o.calls != 1 {
		t.Errorf("%d calls, problems %s", o.calls, said)
	}
	w.neutron.Quota("networks", -1)
	w.done()
}

// A change that Neutron answers with "not found" has all be read anew once. If it still says so,
// that is a problem of the object, and not a reason to ask again and again.
func TestChangeFindsNothing(t *testing.T) {
	w := newWorld(t)
	w.set(w.withAddress(tenant(1), ""))
	w.done()
	w.count(http.MethodGet, "networks")
	w.neutron.Fail(func(_ int, method, path string) neutronfake.Fault {
		if method == http.MethodPut && strings.HasPrefix(path, "floatingips/") {
			return neutronfake.Missing
		}
		return neutronfake.None
	})
	w.set(w.withAddress(tenant(1), "Port/shop/web-0000"))
	o := w.await("a refusal", func(o outcome) bool { return len(o.problems) > 0 })
	if len(o.problems) != 1 || o.problems[0].Object != "FloatingIP shop/web" ||
		!strings.Contains(o.problems[0].Message, "could not be found") {
		t.Errorf("problems %+v", o.problems)
	}
	if o.calls != 1 {
		t.Errorf("all is read %d times", o.calls)
	}
	before := o.calls
	for i := range 5 {
		want := w.withAddress(tenant(2+i), "Port/shop/web-0000")
		w.set(want)
		o = w.await("all ports", func(o outcome) bool { return o.of == want && o.same && o.err == nil })
	}
	if n := o.calls - before; n > 0 {
		t.Errorf("five changes elsewhere have all be read %d times", n)
	}
}

// Floating IPs of a port without a router that has a gateway to their network are refused, and are
// no reason to read all anew: their number is up to tenants.
func TestFloatingIPsWithoutAWay(t *testing.T) {
	w := newWorld(t)
	w.outside()
	w.set(tenant(1))
	w.done()
	w.count(http.MethodGet, "networks")
	for n := range 5 {
		want := tenant(1)
		for i := range n + 1 {
			object := fmt.Sprint("FloatingIP shop/web-", i)
			want.Add(resource.Resource{
				Ref: resource.Ref{Kind: resource.FloatingIP, Key: strings.Replace(object, " ", "/", 1)}, Object: object,
				Fixed:   resource.Attributes{"floating_network_id": w.outside()},
				Mutable: resource.Attributes{"port_id": resource.Ref{Kind: resource.Port, Key: "Port/shop/web-0000"}},
			})
		}
		w.set(want)
		o := w.await("all are refused", func(o outcome) bool { return o.of == want && len(o.problems) == n+1 })
		if !strings.Contains(o.problems[0].Message, "is not reachable") || o.calls > 0 {
			t.Errorf("%d floating IPs: all is read %d times, %+v", n+1, o.calls, o.problems[0])
		}
	}
}

// A network of another program that Neutron does not show for a while keeps its pods' ports.
func TestLentNetworkIsHidden(t *testing.T) {
	w := newWorld(t)
	w.stop()
	id := w.theirs("q")
	w.lent = []Wanted{{Object: "Network red", Name: id}}
	w.start()
	w.set(onTheirs(3))
	w.done()
	before := w.neutron.All("ports")
	w.neutron.Fail(func(_ int, method, path string) neutronfake.Fault {
		if method == http.MethodGet && path == "networks/"+id {
			return neutronfake.Broken
		}
		return neutronfake.None
	})
	w.client.Reread()
	w.await("that it is hidden", func(o outcome) bool { return w.loan() != "" && o.err == nil })
	w.set(onTheirs(3))
	w.await("another comparison", func(o outcome) bool { return o.err == nil })
	if now := w.neutron.All("ports"); fmt.Sprint(now) != fmt.Sprint(before) {
		t.Errorf("ports %v\nwere %v", now, before)
	}
	w.neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.None })
	w.client.Reread()
	w.await("that it is there", func(o outcome) bool { return w.loan() == "" && w.settled(o) })
}

// What one call meets, be it that it is never answered, does not keep others from being made: the
// rest of the cluster works, and it is said of which object the call is.
func TestOneCallFails(t *testing.T) {
	for name, tc := range map[string]struct {
		fault neutronfake.Fault
		says  string
	}{
		"no tenant network left": {neutronfake.UsedUp, "network of Neutron: Unable to create the network."},
		"no answer":              {neutronfake.Silent, "network of Neutron: it does not answer this call, but others"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.set(tenant(1))
			w.done()
			w.neutron.Fail(func(_ int, method, path string) neutronfake.Fault {
				if method == http.MethodPost && path == "networks" {
					return tc.fault
				}
				return neutronfake.None
			})
			want := tenant(3)
			want.Add(resource.Resource{
				Ref: resource.Ref{Kind: resource.Network, Key: "Network/blue"}, Object: "Network blue", Mutable: resource.Attributes{"name": "net-blue"},
			})
			w.set(want)
			o := w.await("ports", func(o outcome) bool { return o.of == want && o.same && o.err == nil })
			if len(o.problems) != 1 || o.problems[0].Object != "Network blue" ||
				!strings.HasPrefix(o.problems[0].Message, tc.says) {
				t.Errorf("problems %+v", o.problems)
			}
		})
	}
}

// A password that is replaced in the file is used when the old token is not taken any more.
func TestPasswordIsReplaced(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.keystone = newKeystone(t, w.neutron)
	w.start()
	w.set(tenant(1))
	w.done()
	text, err := os.ReadFile(w.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.file, []byte(strings.Replace(string(text), "password: s", "password: next", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	w.keystone.only("next")
	w.set(tenant(2))
	w.done()
}

// A Neutron that answers nothing is away, however long: no object has a problem for it.
func TestAwayForLong(t *testing.T) {
	w := newWorld(t)
	w.set(tenant(1))
	w.done()
	w.neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.Silent })
	w.set(tenant(2))
	w.await("an outage", func(o outcome) bool { return o.err != nil })
	for range maxUnanswered {
		if o := w.await("a report", func(outcome) bool { return true }); o.err == nil || len(o.problems) > 0 {
			t.Errorf("while no call is answered: %+v", o)
		}
	}
	w.neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.None })
	w.done()
}

// What Neutron has refused is still a problem of the object while Neutron is away.
func TestRefusedAndAway(t *testing.T) {
	w := newWorld(t)
	w.neutron.Quota("ports", 4) // the router has two
	w.set(tenant(3))
	refused := w.await("a refusal", func(o outcome) bool { return len(o.problems) > 0 })
	w.neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.Busy })
	w.client.Reread()
	away := w.await("an outage", func(o outcome) bool { return o.err != nil })
	if fmt.Sprint(away.problems) != fmt.Sprint(refused.problems) {
		t.Errorf("while Neutron is away the problems are %+v, and were %+v", away.problems, refused.problems)
	}
}

// A security group that is deleted by hand is made anew, and ports that were to join it come with
// it: none has a problem.
func TestGroupOfNewPortsIsGone(t *testing.T) {
	w := newWorld(t)
	joining := func(ports int) *resource.Set {
		s := ruled(tenant(ports), 2)
		for _, p := range s.All(resource.Port) {
			p.Mutable["security_groups"] = []any{resource.Ref{Kind: resource.SecurityGroup, Key: "Policy/shop/web"}}
		}
		return s
	}
	w.set(joining(0))
	w.done()
	for _, g := range w.neutron.All("security-groups") {
		if g["name"] == "web" {
			w.call("DELETE", "security-groups/"+g["id"].(string), "")
		}
	}
	want := joining(12)
	w.set(want)
	o := w.await("a report", func(o outcome) bool { return o.of == want })
	if !o.same || len(o.problems) > 0 {
		t.Errorf("the first report is of %d ports, with problems %+v", len(w.described("ports")), o.problems)
	}
}

// Ports that are ready make room for those of pods within one attempt.
func TestQuotaMakesRoom(t *testing.T) {
	const ports, ready, ofRouter = 2 * maxCalls, 20, 2
	w := newWorld(t)
	optional := func(all *resource.Set) *resource.Set {
		s := resource.NewSet()
		for _, k := range resource.Kinds() {
			for i, r := range all.All(k) {
				if k == resource.Port && i < ready {
					r.Spare, r.Optional = true, true
				}
				s.Add(r)
			}
		}
		return s
	}
	w.set(tenant(ready))
	w.done()
	w.neutron.Quota("ports", ready+ofRouter)
	want := optional(tenant(ready + ports))
	w.set(want)
	o := w.await("a report", func(o outcome) bool { return o.of == want })
	if n := len(w.described("ports")); n != ready || len(o.problems) != ports-ready {
		t.Errorf("%d ports where there is room for %d, problems of %d objects", n, ready, len(o.problems))
	}
	for _, p := range w.described("ports") {
		if p < fmt.Sprintf("east/Port/shop/web-%04d", ready) {
			t.Errorf("%s is there in place of a pod's", p)
		}
	}
}
