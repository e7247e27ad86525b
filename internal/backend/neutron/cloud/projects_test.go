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

// inProject wants what another Set wants in a project, but for routers.
func inProject(from *resource.Set, project string) *resource.Set {
	s := resource.NewSet()
	moved := func(r resource.Ref) resource.Ref {
		if _, wanted := from.Get(r); wanted && collections[r.Kind].everywhere || r.Kind == resource.Interface {
			return r.In(project)
		}
		return r
	}
	var change func(value any) any
	change = func(value any) any {
		switch v := value.(type) {
		case resource.Ref:
			return moved(v)
		case resource.Attributes:
			out := resource.Attributes{}
			for name, item := range v {
				out[name] = change(item)
			}
			return out
		case []any:
			out := []any{}
			for _, item := range v {
				out = append(out, change(item))
			}
			return out
		}
		return value
	}
	for _, k := range resource.Kinds() {
		for _, r := range from.All(k) {
			r.Ref = moved(r.Ref)
			r.Fixed, _ = change(r.Fixed).(resource.Attributes)
			r.Mutable, _ = change(r.Mutable).(resource.Attributes)
			s.Add(r)
		}
	}
	s.Asks("Network red", project)
	return s
}

// ofProject are the descriptions in a collection of what a project has of the cluster.
func (w *world) ofProject(collection, project string) (list []string) {
	for _, o := range w.neutron.All(collection) {
		if text, _ := o["description"].(string); o["project_id"] == project && strings.HasPrefix(text, "east/") {
			list = append(list, text)
		}
	}
	return list
}

// All that is wanted in a project is made there and goes from there, also if calls are not
// answered, and after a restart; what the settings do not name is found as well.
func TestProject(t *testing.T) {
	for _, fault := range []neutronfake.Fault{neutronfake.None, neutronfake.Busy, neutronfake.Lost} {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			w := newWorld(t)
			w.neutron.Fail(func(number int, _, _ string) neutronfake.Fault {
				if number%7 == 6 {
					return fault
				}
				return neutronfake.None
			})
			want := inProject(guarded(2, 80), "q")
			w.set(want)
			w.done()
			for collection, count := range map[string]int{
				"networks": 1, "subnets": 3, "ports": 4, "security-groups": 2, "security-group-rules": 1,
			} {
				if got := w.ofProject(collection, "q"); len(got) != count {
					t.Errorf("%s of the project: %v, want %d", collection, got, count)
				}
				if got := w.ofProject(collection, "p"); len(got) > 0 {
					t.Errorf("%s of the cluster's project: %v", collection, got)
				}
			}
			w.stop()
			changes := 0
			w.neutron.Fail(func(_ int, method, _ string) neutronfake.Fault {
				if method != http.MethodGet {
					changes++
				}
				return neutronfake.None
			})
			w.start()
			w.done()
			w.stop()
			if changes > 0 {
				t.Errorf("%d calls change something after a restart", changes)
			}
			w.start()
			w.done()
			w.neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.None })
			w.set(tenant(0))
			w.await("nothing is left in the project", func(outcome) bool {
				return len(w.ofProject("networks", "q"))+len(w.ofProject("ports", "q"))+len(w.ofProject("security-groups", "q")) == 0
			})
		})
	}
}

// What the cluster has in a project that the settings name goes when it is not wanted any more,
// also after a restart.
func TestLeftInProject(t *testing.T) {
	w := newWorld(t)
	w.set(inProject(tenant(2), "q"))
	w.done()
	w.stop()
	w.projects = []string{"q"}
	w.mu.Lock()
	w.want = resource.NewSet()
	w.mu.Unlock()
	w.start()
	w.await("nothing is left", func(outcome) bool {
		return len(w.described("networks"))+len(w.described("ports"))+len(w.described("routers")) == 0
	})
}

// People of a project can describe what they make as the cluster does: it is not taken for what is
// wanted elsewhere, however old it is, and a router of theirs is nothing to the cluster.
func TestForgedDescription(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.projects = []string{"q"}
	w.call("POST", "networks", `{"network": {"project_id": "q", "name": "theirs", "description": "east/Network/red"}}`)
	w.call("POST", "routers", `{"router": {"project_id": "q", "name": "theirs", "description": "east/Router/red"}}`)
	w.call("POST", "security-groups", `{"security_group": {"project_id": "q", "name": "theirs", "description": "east/Peers/app"}}`)
	w.start()
	w.set(guarded(2, 80))
	w.done()
	for _, collection := range []string{"networks", "security-groups"} {
		if got := w.ofProject(collection, "q"); len(got) > 0 {
			t.Errorf("%s that are described as the cluster's stay: %v", collection, got)
		}
	}
	names := []string{}
	for _, n := range slices.Concat(w.neutron.All("networks"), w.neutron.All("routers")) {
		names = append(names, fmt.Sprint(n["name"], " of ", n["project_id"]))
	}
	if want := []string{"net-red of p", "theirs of q", "router-red of p"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

// A port cannot be given to another project: it is made anew, though its MAC and address are taken
// until the old one is gone.
func TestAnotherProject(t *testing.T) {
	w := newWorld(t)
	w.set(inProject(tenant(2), "q"))
	w.done()
	w.set(tenant(2))
	w.await("all is the cluster's", func(o outcome) bool {
		return len(o.problems) == 0 && o.err == nil && len(w.ofProject("ports", "p")) == 2 && len(w.ofProject("ports", "q")) == 0
	})
}

// The quota of one project is no matter of another: ports that stay for pods that may come do not
// go.
func TestQuotaOfProject(t *testing.T) {
	w := newWorld(t)
	w.set(tenant(6))
	w.done()
	both := resource.NewSet()
	for _, r := range tenant(6).All(resource.Port) {
		r.Spare, r.Optional = true, true
		both.Add(r)
	}
	theirs := inProject(tenant(1), "q")
	for _, k := range resource.Kinds() {
		for _, r := range tenant(0).All(k) {
			both.Add(r)
		}
		for _, r := range theirs.All(k) {
			if r.Project != "" && k != resource.Interface {
				both.Add(r)
			}
		}
	}
	both.Asks("Network red", "q")
	w.neutron.Quota("ports", 0)
	w.set(both)
	o := w.await("a refusal", func(o outcome) bool { return len(o.problems) > 0 })
	w.await("another one", func(o outcome) bool { return len(o.problems) > 0 })
	if len(w.ofProject("ports", "p")) != 6 || o.problems[0].Reason != reasonQuota {
		t.Errorf("problems %+v; ports of the cluster %v", o.problems, w.ofProject("ports", "p"))
	}
	w.neutron.Quota("ports", -1)
	w.await("a port in the project", func(outcome) bool { return len(w.ofProject("ports", "q")) == 1 })
}

// A project that keystone does not have is a problem of what asks for it, and has security groups
// alone; one that keystone does not answer about may be there.
func TestProjectIsGone(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.keystone = newKeystone(t, w.neutron)
	w.start()
	w.keystone.has("q", http.StatusNotFound)
	w.set(inProject(guarded(2, 80), "q"))
	o := w.await("a problem", func(o outcome) bool { return len(o.problems) > 0 && len(w.ofProject("security-group-rules", "q")) == 1 })
	says := func(p resource.Problem) bool {
		return p.Object == "Network red" && p.Reason == reasonNoProject && strings.Contains(p.Message, "no project q")
	}
	if !slices.ContainsFunc(o.problems, says) {
		t.Errorf("problems %+v", o.problems)
	}
	if got := slices.Concat(w.ofProject("networks", "q"), w.ofProject("subnets", "q"), w.ofProject("ports", "q")); len(got) > 0 {
		t.Errorf("in a project that is not there: %v", got)
	}
	w.keystone.has("q", http.StatusForbidden)
	w.stop()
	w.start()
	w.done()
	w.keystone.has("q", http.StatusNotFound)
	w.stop()
	w.start()
	w.await("what is there stays, and the problem is back", func(o outcome) bool {
		return slices.ContainsFunc(o.problems, says) && len(w.ofProject("ports", "q")) == 4
	})
}
