// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
)

// targeted has the router of a tenant with one port be in a BGPVPN; nil: in none.
func targeted(targets ...any) *resource.Set {
	s := tenant(1)
	if targets == nil {
		return s
	}
	router := resource.Ref{Kind: resource.Router, Key: "Router/red"}
	vpn := s.Add(resource.Resource{
		Ref: resource.Ref{Kind: resource.BGPVPN, Key: router.Key}, Object: "Router red",
		Fixed: resource.Attributes{"type": "l3"},
		Mutable: resource.Attributes{
			"route_targets": targets, "import_targets": []any{}, "export_targets": []any{}, "route_distinguishers": []any{},
		},
	})
	s.Add(resource.Resource{
		Ref: resource.AssociationOf(vpn, router), Object: "Router red",
		Fixed: resource.Attributes{"bgpvpn_id": vpn, "router_id": router},
	})
	return s
}

// vpns are all BGPVPNs as text: project, name, targets, and the names of their routers.
func (w *world) vpns() (list []string) {
	names := map[any]any{}
	for _, r := range w.neutron.All("routers") {
		names[r["id"]] = r["name"]
	}
	for _, v := range w.neutron.All("bgpvpns") {
		routers := []any{}
		for _, id := range v["routers"].([]any) {
			routers = append(routers, names[id])
		}
		list = append(list, fmt.Sprint(v["project_id"], " ", v["name"], " ", v["route_targets"], " ", routers))
	}
	slices.Sort(list)
	return list
}

// awaitVPNs returns when all is as wanted and these BGPVPNs are all.
func (w *world) awaitVPNs(vpns ...string) {
	w.Helper()
	w.await(fmt.Sprintf("BGPVPNs %q of %q", vpns, w.vpns()), func(o outcome) bool {
		return w.settled(o) && slices.Equal(vpns, w.vpns())
	})
}

// A BGPVPN comes, changes and goes, also if calls are not answered, and what others have stays. A
// new client changes nothing.
func TestBGPVPN(t *testing.T) {
	for _, fault := range []neutronfake.Fault{neutronfake.None, neutronfake.Busy, neutronfake.Lost} {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			w := newWorld(t)
			theirs := []string{"p coelan/Router/red [] []", "p east/VPN of sites [] []", "p west/Router/red [] []", "q east/Router/red [] []"}
			for _, vpn := range theirs {
				project, rest, _ := strings.Cut(vpn, " ")
				name, _ := strings.CutSuffix(rest, " [] []")
				w.makes("bgpvpn/bgpvpns", fmt.Sprintf(`{"bgpvpn": {"project_id": %q, "name": %q}}`, project, name))
			}
			w.neutron.Fail(func(number int, _, _ string) neutronfake.Fault {
				if number%6 == 5 {
					return fault
				}
				return neutronfake.None
			})
			for _, step := range []struct {
				want *resource.Set
				vpns []string
			}{
				{targeted("1:1"), []string{"p east/Router/red [1:1] [router-red]"}},
				{targeted("1:2", "1:3"), []string{"p east/Router/red [1:2 1:3] [router-red]"}},
				{targeted(), nil},
				{targeted("1:4"), []string{"p east/Router/red [1:4] [router-red]"}},
				{resource.NewSet(), nil},
			} {
				want := slices.Sorted(slices.Values(slices.Concat(theirs, step.vpns)))
				w.set(step.want)
				w.awaitVPNs(want...)
				w.stop()
				var written []string
				w.neutron.Arrive(func(method, path string) {
					if method != http.MethodGet {
						written = append(written, method+" "+path)
					}
				})
				w.start()
				w.awaitVPNs(want...)
				w.neutron.Arrive(func(string, string) {})
				if len(written) > 0 {
					t.Errorf("a new client makes %q", written)
				}
			}
			if left := w.described("routers"); len(left) > 0 {
				t.Errorf("left are %q", left)
			}
		})
	}
}

// What is done to a BGPVPN by hand is mended at the next reading. Routers of others stay in it.
func TestBGPVPNIsMended(t *testing.T) {
	w := newWorld(t)
	all := targeted("1:1")
	all.Add(resource.Resource{
		Ref: resource.Ref{Kind: resource.Router, Key: "Router/blue"}, Object: "Router blue", Mutable: resource.Attributes{"name": "router-blue"},
	})
	w.set(all)
	w.awaitVPNs("p east/Router/red [1:1] [router-red]")
	id := func(collection, name string) (id string) {
		for _, o := range w.neutron.All(collection) {
			if o["name"] == name {
				id, _ = o["id"].(string)
			}
		}
		return id
	}
	vpn := "bgpvpn/bgpvpns/" + id("bgpvpns", "east/Router/red")
	place := func() string {
		for _, a := range w.neutron.All("router_associations") {
			if a["router_id"] == id("routers", "router-red") {
				return vpn + "/router_associations/" + a["id"].(string)
			}
		}
		return ""
	}
	join := func(router string) {
		w.makes(vpn+"/router_associations", fmt.Sprintf(`{"router_association": {"project_id": "p", "router_id": %q}}`, id("routers", router)))
	}
	for _, step := range []struct {
		what string
		do   func()
		vpns string
	}{
		{"targets", func() { w.put(vpn, `{"bgpvpn": {"route_targets": ["9:9"]}}`) }, "[router-red]"},
		{"the router taken out", func() { w.request("DELETE", place(), "") }, "[router-red]"},
		{"another router of the cluster put in", func() { join("router-blue") }, "[router-red]"},
		{"a router of others put in", func() {
			w.makes("routers", `{"router": {"project_id": "p", "name": "theirs"}}`)
			join("theirs")
		}, "[router-red theirs]"},
		{"deleted", func() { w.request("DELETE", vpn, "") }, "[router-red]"},
	} {
		w.stop()
		step.do()
		w.start()
		w.awaitVPNs("p east/Router/red [1:1] " + step.vpns)
	}
}

// That Neutron has no BGPVPNs, or does not show them, is found out, and what there is of them
// stays.
func TestBGPVPNsUnusable(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*neutronfake.Neutron)
		want   resource.Extension
		says   string
	}{
		"as they are to be": {func(*neutronfake.Neutron) {}, resource.Extension{}, ""},
		"no extension":      {func(n *neutronfake.Neutron) { n.NoBGPVPNs(true) }, resource.Extension{Missing: true}, ""},
		"attributes that are hidden": {func(n *neutronfake.Neutron) { n.ForbidBGPVPNs(true) }, resource.Extension{Reason: reasonRefused},
			"get_bgpvpn"},
		"a plugin that fails": {func(n *neutronfake.Neutron) {
			n.Fail(func(_ int, _, path string) neutronfake.Fault {
				if strings.HasPrefix(path, "bgpvpn/") {
					return neutronfake.Broken
				}
				return neutronfake.None
			})
		}, resource.Extension{Reason: reasonFailed}, "internal server error"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.set(targeted("1:1"))
			w.done()
			w.stop()
			tc.change(w.neutron)
			have := w.read()
			got := have.BGPVPNs
			if !strings.Contains(got.Why, tc.says) || (got.Why == "") != (tc.says == "") {
				t.Errorf("why: %q, want %q", got.Why, tc.says)
			}
			if got.Why = ""; got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
			if found := len(have.All(resource.BGPVPN)) + len(have.All(resource.Association)); (found == 2) != tc.want.Usable() {
				t.Errorf("%d are found", found)
			}
			if plan := resource.Plan(tenant(1), have); len(plan) > 0 != tc.want.Usable() {
				t.Errorf("without one in wanted, the plan is %+v", plan)
			}
		})
	}
}

// That the policy lets administrators alone make one is a problem of its Router, with what to do,
// and so is a quota. All else is made.
func TestBGPVPNRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(n *neutronfake.Neutron, refused bool)
		reason string
		says   []string
	}{
		"by the policy": {(*neutronfake.Neutron).ForbidBGPVPNs, reasonRefused, []string{"rule:create_bgpvpn is disallowed", "let the cluster's user create_bgpvpn"}},
		"by a quota": {func(n *neutronfake.Neutron, refused bool) {
			n.Quota("bgpvpns", map[bool]int{true: 0, false: -1}[refused])
		}, reasonQuota, []string{"Quota exceeded for resources: ['bgpvpn']"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w.neutron, true)
			w.set(targeted("1:1"))
			o := w.await("a refusal", func(o outcome) bool { return len(o.problems) > 0 && o.same })
			if len(o.problems) != 1 || o.problems[0].Object != "Router red" || o.problems[0].Reason != tc.reason {
				t.Errorf("problems %+v", o.problems)
			}
			for _, text := range tc.says {
				if !strings.Contains(o.problems[0].Message, text) {
					t.Errorf("%q is not said: %s", text, o.problems[0].Message)
				}
			}
			tc.change(w.neutron, false)
			w.awaitVPNs("p east/Router/red [1:1] [router-red]")
		})
	}
}
