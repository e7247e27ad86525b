// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/broadcast"
)

// bound is how long a test waits for what it wants, on a machine that does much else.
const bound = 2 * time.Minute

// world is a Client at work with a Neutron in memory.
type world struct {
	*testing.T
	neutron *neutronfake.Neutron
	client  *Client
	change  func(*Client)
	stop    func()
	calls   atomic.Int32 // see count
	claims  []resource.Claim
	// projects are those of the settings, and keystone is asked if there is one.
	projects []string
	keystone *keystone
	file     string // clouds.yaml
	// lender is the project that ports are lent in, if it is not the cluster's.
	lender string
	lent   []Wanted

	mu      sync.Mutex
	want    *resource.Set
	given   *resource.Set // what the Client compares with
	reports chan outcome
	found   map[string]string // ids of ports by object
	vlans   map[string]int    // and their VLANs
	parents []Parent
	asks    []resource.Claim
	answers map[string]string // why a Claim is refused, by its asker
	refused string            // why there is no network of another program
	telling broadcast.Broadcast
}

type outcome struct {
	problems []resource.Problem
	err      error
	of       *resource.Set // what was wanted
	// same says that there is no error, and the ports are so, while the Client waits for its report
	// to be taken.
	same  bool
	calls int32 // those that are counted
}

func newWorld(t *testing.T) *world { return newWorldWith(t, func(*Client) {}) }

// newWorldWith changes the Client before it works.
func newWorldWith(t *testing.T, change func(*Client)) *world {
	t.Parallel() // worlds have nothing in common, and Clients pause for seconds
	w := &world{
		T: t, neutron: neutronfake.Start(t), change: change, want: resource.NewSet(), found: map[string]string{},
		vlans: map[string]int{}, answers: map[string]string{},
	}
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// start lets a new Client work.
func (w *world) start() {
	w.reports = make(chan outcome)
	ctx, cancel := context.WithCancel(context.Background())
	reports := w.reports
	access := Access{Endpoint: w.neutron.URL, Project: "p"}
	if w.keystone != nil {
		w.file = w.keystone.cloudsFile(w.T, byPassword)
		access = Access{CloudsFile: w.file, Cloud: "c"}
	}
	w.client = New(Options{
		Access: access, Projects: w.projects, Cluster: "east", Log: slog.New(slog.DiscardHandler),
		Claims: w.claimed,
		Asks:   func(context.Context) []resource.Claim { w.mu.Lock(); defer w.mu.Unlock(); return w.asks },
		Answered: func(c resource.Claim, _ resource.Actual, refused string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.answers[c.Asker] = refused
		},
		Parents: func() []Parent { w.mu.Lock(); defer w.mu.Unlock(); return slices.Clone(w.parents) },
		Lent:    func() []Wanted { w.mu.Lock(); defer w.mu.Unlock(); return slices.Clone(w.lent) },
		Want: func(have *resource.Inventory) *resource.Set {
			w.mu.Lock()
			defer w.mu.Unlock()
			if loan, looked := have.Loan(resource.LentNetwork("Network red")); looked {
				w.refused = loan.Refused
			}
			w.given = w.want
			return w.want
		},
		Found: func(r resource.Resource, a resource.Actual) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if r.Kind == resource.Port {
				w.found[r.Object], w.vlans[r.Object] = a.ID, a.VLAN
				w.telling.Send()
			}
		},
		Report: func(problems []resource.Problem, err error) {
			select {
			case reports <- w.outcome(problems, err):
			case <-ctx.Done():
			}
		},
	})
	w.change(w.client)
	var running sync.WaitGroup
	running.Go(func() { w.client.Run(ctx) })
	w.stop = func() { cancel(); running.Wait() }
}

// set has something else wanted.
func (w *world) set(want *resource.Set) {
	w.mu.Lock()
	w.want = want
	w.mu.Unlock()
	w.client.Changed()
}

// await returns when a report is as a test wants it.
func (w *world) await(what string, fits func(outcome) bool) outcome {
	w.Helper()
	last := outcome{}
	for end := time.After(bound); ; {
		select {
		case last = <-w.reports:
			if fits(last) {
				return last
			}
		case <-end:
			w.Fatalf("%s: the last report is %+v", what, last)
		}
	}
}

func (w *world) done() {
	w.Helper()
	w.await("all is as wanted", w.settled)
}

// settled reports whether an outcome is of what is wanted now, which is there.
func (w *world) settled(o outcome) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(o.problems) == 0 && o.err == nil && o.same && o.of == w.want
}

// outcome is what a Client reports, and how things are meanwhile.
func (w *world) outcome(problems []resource.Problem, err error) outcome {
	w.mu.Lock()
	of := w.given
	w.mu.Unlock()
	return outcome{problems, err, of, err == nil && of != nil && w.difference(of) == "", w.calls.Load()}
}

// difference is that of the ports that are wanted, each once, and those that there are.
func (w *world) difference(of *resource.Set) string {
	var want []string
	for _, r := range of.All(resource.Port) {
		want = append(want, "east/"+r.Key)
	}
	return cmp.Diff(want, w.described("ports"))
}

// described are the descriptions of what is the cluster's in a collection, sorted.
func (w *world) described(collection string) (list []string) {
	for _, o := range w.neutron.All(collection) {
		if text, _ := o["description"].(string); strings.HasPrefix(text, "east/") {
			list = append(list, text)
		}
	}
	slices.Sort(list)
	return list
}

// tenant wants a network with a subnet on a router, and ports there.
func tenant(ports int, routes ...any) *resource.Set {
	s := resource.NewSet()
	network := s.Add(resource.Resource{
		Ref: resource.Ref{Kind: resource.Network, Key: "Network/red"}, Object: "Network red", Mutable: resource.Attributes{"name": "net-red"},
	})
	subnet := s.Add(resource.Resource{
		Ref: resource.Ref{Kind: resource.Subnet, Key: "Network/red 10.90.0.0/16"}, Object: "Network red",
		Fixed:   resource.Attributes{"network_id": network, "cidr": "10.90.0.0/16", "ip_version": 4},
		Mutable: resource.Attributes{"gateway_ip": "10.90.0.1", "enable_dhcp": false},
	})
	router := s.Add(resource.Resource{
		Ref: resource.Ref{Kind: resource.Router, Key: "Router/red"}, Object: "Router red", Mutable: resource.Attributes{"name": "router-red"},
	})
	s.Add(resource.Resource{
		Ref: resource.Ref{Kind: resource.Interface, Key: subnet.Key}, Object: "Network red",
		Fixed: resource.Attributes{"router_id": router, "subnet_id": subnet},
	})
	for i := range 2 {
		v6 := fmt.Sprintf("fd00:9%d::", i)
		subnet := s.Add(resource.Resource{
			Ref: resource.Ref{Kind: resource.Subnet, Key: "Network/red " + v6 + "/64"}, Object: "Network red",
			Fixed:   resource.Attributes{"network_id": network, "cidr": v6 + "/64", "ip_version": 6},
			Mutable: resource.Attributes{"gateway_ip": v6 + "1", "enable_dhcp": false},
		})
		s.Add(resource.Resource{
			Ref: resource.Ref{Kind: resource.Interface, Key: subnet.Key}, Object: "Network red",
			Fixed: resource.Attributes{"router_id": router, "subnet_id": subnet},
		})
	}
	if routes == nil {
		routes = []any{}
	}
	s.Add(resource.Resource{
		Ref: resource.Ref{Kind: resource.Routes, Key: router.Key}, Object: "Router red", Mutable: resource.Attributes{"routes": routes},
	})
	for i := range ports {
		s.Add(resource.Resource{
			Ref: resource.Ref{Kind: resource.Port, Key: fmt.Sprintf("Port/shop/web-%04d", i)}, Object: fmt.Sprintf("Port shop/web-%04d", i),
			Fixed: resource.Attributes{
				"network_id": network, "mac_address": fmt.Sprintf("0a:58:0a:5a:%02x:%02x", i/200+1, i%200),
			},
			Mutable: resource.Attributes{
				"device_owner": "compute:kuryr",
				"fixed_ips": []any{resource.Attributes{
					"subnet_id": subnet, "ip_address": fmt.Sprintf("10.90.%d.%d", i/200+1, i%200+1),
				}},
			},
		})
	}
	return s
}

// unguarded wants ports without security groups.
func unguarded() *resource.Set {
	all := tenant(4)
	for _, p := range all.All(resource.Port) {
		p.Mutable["security_groups"] = []any{}
	}
	return all
}

// guarded wants the first ports in a security group that lets in what the others send to ports.
func guarded(first int, ports ...int) *resource.Set {
	all := unguarded()
	peers := all.Add(resource.Resource{
		Ref: resource.Ref{Kind: resource.SecurityGroup, Key: "Peers/app"}, Object: "NetworkPolicy shop/web", Mutable: resource.Attributes{"name": "app"},
	})
	group := all.Add(resource.Resource{
		Ref: resource.Ref{Kind: resource.SecurityGroup, Key: "Policy/web"}, Object: "NetworkPolicy shop/web", Mutable: resource.Attributes{"name": "web"},
	})
	for _, p := range ports {
		all.Add(resource.Resource{
			Ref:    resource.Ref{Kind: resource.SecurityGroupRule, Key: fmt.Sprint("Policy/web ", p)},
			Object: "NetworkPolicy shop/web",
			Fixed: resource.Attributes{"security_group_id": group, "remote_group_id": peers, "direction": "ingress",
				"ethertype": "IPv4", "protocol": "tcp", "port_range_min": p, "port_range_max": p},
		})
	}
	for i, p := range all.All(resource.Port) {
		p.Mutable["security_groups"] = []any{peers}
		if i < first {
			p.Mutable["security_groups"] = []any{group}
		}
	}
	return all
}

// rules are those of all security groups, as text.
func (w *world) rules() (list []string) {
	names := map[any]any{}
	for _, g := range w.neutron.All("security-groups") {
		names[g["id"]] = g["name"]
	}
	for _, r := range w.neutron.All("security-group-rules") {
		list = append(list, fmt.Sprint(names[r["security_group_id"]], " ", r["direction"], " ", r["port_range_min"], " from ",
			names[r["remote_group_id"]]))
	}
	slices.Sort(list)
	return list
}

// awaitRules returns when all is as wanted and these rules are all.
func (w *world) awaitRules(rules ...string) {
	w.Helper()
	w.await(fmt.Sprintf("rules %v", rules), func(o outcome) bool {
		return w.settled(o) && slices.Equal(rules, w.rules())
	})
}

// A policy's rules follow it, and those of a new group that let everything out are deleted. The
// group goes when ports have left it.
func TestSecurityGroups(t *testing.T) {
	for _, fault := range []neutronfake.Fault{neutronfake.None, neutronfake.Busy, neutronfake.Lost} {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			w := newWorld(t)
			w.neutron.Fail(func(number int, _, _ string) neutronfake.Fault {
				if number%7 == 6 {
					return fault
				}
				return neutronfake.None
			})
			for _, step := range []struct {
				want  *resource.Set
				rules []string
			}{
				{unguarded(), nil},
				{guarded(1, 80), []string{"web ingress 80 from app"}},
				{guarded(3, 80, 81), []string{"web ingress 80 from app", "web ingress 81 from app"}},
				{guarded(2, 82), []string{"web ingress 82 from app"}},
				{unguarded(), nil},
			} {
				w.set(step.want)
				w.awaitRules(step.rules...)
			}
			if left := w.described("security-groups"); len(left) > 0 {
				t.Errorf("groups are left: %v", left)
			}
		})
	}
}

// What is done to groups by hand is mended at the next reading.
func TestSecurityGroupsAreMended(t *testing.T) {
	w := newWorld(t)
	w.set(guarded(4, 80, 81))
	rules := []string{"web ingress 80 from app", "web ingress 81 from app"}
	w.awaitRules(rules...)
	w.stop()
	ids := map[string]string{}
	for _, g := range w.neutron.All("security-groups") {
		ids[g["name"].(string)] = g["id"].(string)
	}
	w.call("POST", "security-group-rules", fmt.Sprintf(`{"security_group_rule": {"project_id": "p", "security_group_id": %q,
		"direction": "ingress", "ethertype": "IPv6"}}`, ids["web"]))
	w.call("PUT", "security-groups/"+ids["web"], `{"security_group": {"name": "by hand"}}`)
	w.call("DELETE", "security-groups/"+ids["app"], "") // which no port has; the rules go with it
	w.call("PUT", "ports/"+w.portOf("Port shop/web-0001"), `{"port": {"security_groups": []}}`)
	w.start()
	w.awaitRules(rules...)
	for _, p := range w.neutron.All("ports") {
		if groups, _ := p["security_groups"].([]any); p["device_owner"] == "compute:kuryr" && len(groups) != 1 {
			t.Errorf("port %v has the groups %v", p["name"], groups)
		}
	}
}

// A group that is deleted while a port is about to join it is made anew.
func TestGroupIsGone(t *testing.T) {
	w := newWorld(t)
	w.set(guarded(0, 80))
	w.awaitRules("web ingress 80 from app")
	for _, g := range w.neutron.All("security-groups") {
		if g["name"] == "web" {
			w.call("DELETE", "security-groups/"+g["id"].(string), "")
		}
	}
	w.set(guarded(2, 80))
	w.awaitRules("web ingress 80 from app")
}

// A quota of groups or rules is said with the policy that did not fit.
func TestQuotaOfGroups(t *testing.T) {
	for collection, most := range map[string]int{"security-groups": 1, "security-group-rules": 2} {
		t.Run(collection, func(t *testing.T) {
			w := newWorld(t)
			w.neutron.Quota(collection, most)
			w.set(guarded(1, 80, 81, 82))
			o := w.await("a refusal", func(o outcome) bool { return len(o.problems) > 0 })
			if !slices.ContainsFunc(o.problems, func(p resource.Problem) bool {
				return p.Object == "NetworkPolicy shop/web" && p.Reason == reasonQuota && strings.Contains(p.Message, "security_group")
			}) {
				t.Errorf("problems %+v", o.problems)
			}
			w.neutron.Quota(collection, -1)
			w.done()
		})
	}
}

func route(to, by string) resource.Attributes {
	return resource.Attributes{"destination": to, "nexthop": by}
}

func (w *world) call(method, path, body string) {
	w.Helper()
	status, answer, err := neutronfake.Call(w.Context(), method, w.neutron.URL+"/v2.0/"+path, body)
	if err != nil || status >= http.StatusBadRequest {
		w.Fatalf("%s %s: %d, %v, %v", method, path, status, answer, err)
	}
}

// All is made, each by one call, and goes again; what others have stays.
func TestComesAndGoes(t *testing.T) {
	w := newWorld(t)
	w.call("POST", "networks", `{"network": {"project_id": "p", "name": "theirs", "description": "west/Network/red"}}`)
	w.set(tenant(120, route("10.99.0.0/24", "10.90.1.1")))
	w.done()
	// Each kind is read, and that of the other cluster was made by a call.
	const readings, others = 10, 1
	if calls, want := w.neutron.Calls(), readings+others+tenant(120).Len(); calls != want {
		t.Errorf("%d calls for 120 ports, want %d", calls, want)
	}
	if id := w.portOf("Port shop/web-0007"); id == "" {
		t.Error("the port's id has not been told")
	}
	w.set(tenant(3))
	w.done()
	w.set(resource.NewSet())
	w.done()
	for _, collection := range []string{"networks", "subnets", "routers", "ports"} {
		if left := w.described(collection); len(left) > 0 {
			t.Errorf("left of %s: %v", collection, left)
		}
	}
	if all := w.neutron.All("networks"); len(all) != 1 || all[0]["name"] != "theirs" {
		t.Errorf("networks %v, want that of the other cluster", all)
	}
}

// A restart changes nothing when nothing has changed, page by page.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	w.neutron.Page(7)
	w.set(tenant(30, route("10.99.0.0/24", "10.90.1.1")))
	w.done()
	w.stop()
	var mu sync.Mutex
	var written []string
	w.neutron.Fail(func(_ int, method, path string) neutronfake.Fault {
		mu.Lock()
		defer mu.Unlock()
		if method != http.MethodGet {
			written = append(written, method+" "+path)
		}
		return neutronfake.None
	})
	clear(w.found)
	w.start()
	w.done()
	mu.Lock()
	defer mu.Unlock()
	if len(written) > 0 {
		t.Errorf("a start without changes makes the calls %v", written)
	}
	if len(w.ports()) != 30 {
		t.Errorf("%d ports are found", len(w.ports()))
	}
}

// What Neutron refuses is said of the object, and the others are made.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	w.set(tenant(0))
	w.done()
	subnet := w.neutron.All("subnets")[0]
	w.call("POST", "ports", fmt.Sprintf(`{"port": {"project_id": "p", "network_id": %q, "fixed_ips": [{"subnet_id": %q,
		"ip_address": "10.90.1.2"}]}}`, subnet["network_id"], subnet["id"]))
	theirs := w.neutron.All("ports")
	w.set(tenant(3))
	o := w.await("a refusal", func(o outcome) bool { return len(o.problems) > 0 })
	if len(o.problems) != 1 || o.problems[0].Object != "Port shop/web-0001" || o.problems[0].Reason != reasonRefused ||
		!strings.Contains(o.problems[0].Message, "10.90.1.2 already allocated") {
		t.Errorf("problems %+v", o.problems)
	}
	if got := w.described("ports"); !slices.Equal(got, []string{"east/Port/shop/web-0000", "east/Port/shop/web-0002"}) {
		t.Errorf("ports %v", got)
	}
	w.call("DELETE", "ports/"+theirs[len(theirs)-1]["id"].(string), "")
	w.done()
}

// A quota is said with the object that did not fit.
func TestQuota(t *testing.T) {
	w := newWorld(t)
	w.neutron.Quota("ports", 4) // the router has two
	w.set(tenant(3))
	o := w.await("a refusal", func(o outcome) bool { return len(o.problems) > 0 })
	there := w.described("ports")
	if len(o.problems) != 1 || o.problems[0].Reason != reasonQuota || len(there) != 2 ||
		slices.Contains(there, "east/"+strings.Replace(o.problems[0].Object, "Port ", "Port/", 1)) {
		t.Errorf("problems %+v, ports %v", o.problems, there)
	}
	w.neutron.Quota("ports", -1)
	w.done()
}

// While Neutron is away that is said, and what has changed meanwhile is done when it is back.
func TestAway(t *testing.T) {
	w := newWorld(t)
	w.set(tenant(1))
	w.done()
	w.neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.Busy })
	w.set(tenant(2))
	w.await("an error", func(o outcome) bool { return o.err != nil })
	w.neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.None })
	w.done()
}

// spare has the last ports be for pods that may come.
func spare(all *resource.Set, first int) *resource.Set {
	s := resource.NewSet()
	for _, k := range resource.Kinds() {
		for i, r := range all.All(k) {
			if k == resource.Port && i >= first {
				r.Spare, r.Object = true, "Node n1"
			}
			s.Add(r)
		}
	}
	return s
}

// Ports that are ready take no call when an object comes for one, and are told of then: also while
// Neutron is away.
func TestSparePorts(t *testing.T) {
	w := newWorld(t)
	w.set(spare(tenant(20), 0))
	w.done()
	if len(w.ports()) > 0 {
		t.Errorf("told of ports of no object: %v", w.ports())
	}
	calls := w.neutron.Calls()
	w.set(spare(tenant(20), 1))
	w.await("a port for the first", func(outcome) bool { return w.told("Port shop/web-0000") })
	if n := w.neutron.Calls() - calls; n > 0 {
		t.Errorf("%d calls", n)
	}
	w.neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.Busy })
	w.set(spare(tenant(21), 2)) // one port more has to be made
	w.await("an error", func(o outcome) bool { return o.err != nil })
	w.set(spare(tenant(21), 20))
	for end := time.After(bound); ; {
		changed := w.telling.Changed()
		if w.told("Port shop/web-0019") {
			break
		}
		select {
		case <-w.reports:
		case <-changed:
		case <-end:
			t.Fatal("no port is told of while Neutron is away")
		}
	}
	if w.told("Port shop/web-0020") {
		t.Error("told of a port that is not there")
	}
	w.neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.None })
	w.set(tenant(21))
	w.done()
	if !w.told("Port shop/web-0020") {
		t.Error("not told of the last port")
	}
}

func (w *world) told(object string) bool { return w.portOf(object) != "" }

// portOf is the id of the port that an object was told of; ports are all of them.
func (w *world) portOf(object string) string { return w.ports()[object] }

func (w *world) ports() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.found)
}

// A port of an object that is gone is the one of another that is to have the same MAC: what is
// plugged for it stays plugged.
func TestPortOfAnotherObject(t *testing.T) {
	w := newWorld(t)
	w.set(tenant(3))
	w.done()
	before := w.portOf("Port shop/web-0001")
	renamed := resource.NewSet()
	for _, k := range resource.Kinds() {
		for _, r := range tenant(3).All(k) {
			if r.Object == "Port shop/web-0001" {
				r.Key, r.Object = "Node/n1 10.90.1.2", "Port shop/app"
			}
			renamed.Add(r)
		}
	}
	calls := w.neutron.Calls()
	w.set(renamed)
	w.done()
	if n := w.neutron.Calls() - calls; n != 1 {
		t.Errorf("%d calls", n)
	}
	if after := w.portOf("Port shop/app"); after != before {
		t.Errorf("port %s, before it was %s", after, before)
	}
	w.stop()
	calls = w.neutron.Calls()
	w.start()
	w.done()
	if want := []string{"east/Node/n1 10.90.1.2", "east/Port/shop/web-0000", "east/Port/shop/web-0002"}; !slices.Equal(w.described("ports"), want) {
		t.Errorf("ports %v, want %v", w.described("ports"), want)
	}
	const readings = 10
	if n := w.neutron.Calls() - calls; n != readings {
		t.Errorf("%d calls after a restart", n)
	}
}

// Ports for pods that are there come before others, and a quota that ends these is said once.
func TestQuotaOfSparePorts(t *testing.T) {
	w := newWorld(t)
	w.neutron.Quota("ports", 6) // the router has two
	w.set(spare(tenant(20), 2))
	o := w.await("a refusal", func(o outcome) bool { return len(o.problems) > 0 })
	if len(o.problems) != 1 || o.problems[0].Reason != reasonQuota || !w.told("Port shop/web-0000") || !w.told("Port shop/web-0001") {
		t.Errorf("problems %+v, ports %v", o.problems, w.ports())
	}
	w.neutron.Quota("ports", -1)
	w.stop()
	w.start() // what was refused is tried again when all is read anew
	w.done()
}

// An address that another program's port has is not in the way of the other ports.
func TestSparePortThatIsRefused(t *testing.T) {
	w := newWorld(t)
	w.set(tenant(0))
	w.done()
	subnet := w.neutron.All("subnets")[0]
	for _, last := range []int{1, 2, 3, 5} {
		w.call("POST", "ports", fmt.Sprintf(`{"port": {"project_id": "p", "network_id": %q, "fixed_ips": [{"subnet_id": %q,
			"ip_address": "10.90.1.%d"}]}}`, subnet["network_id"], subnet["id"], last+1))
	}
	w.set(spare(tenant(9), 0))
	w.await("the others are there", func(outcome) bool { return len(w.described("ports")) == 5 })
}

// A call that fails inside of Neutron does not stop the others.
func TestBroken(t *testing.T) {
	w := newWorld(t)
	w.neutron.Fail(func(_ int, method, path string) neutronfake.Fault {
		if method == http.MethodPost && path == "routers" {
			return neutronfake.Broken
		}
		return neutronfake.None
	})
	w.set(tenant(2))
	o := w.await("a refusal", func(o outcome) bool { return len(o.problems) > 0 })
	waits := slices.ContainsFunc(o.problems, func(p resource.Problem) bool {
		return p.Object == "Network red" && strings.Contains(p.Message, "waits for router Router/red")
	})
	if !waits || len(w.described("ports")) != 2 {
		t.Errorf("problems %+v, ports %v", o.problems, w.described("ports"))
	}
	w.neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.None })
	w.done()
}
