// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// oneService compiles a Service, and returns its flows by table, its groups and the
// problems.
func oneService(t *testing.T, change func(*intent.NodeService)) (flows map[uint8][]openflow.Flow, groups []openflow.Group, problems []Problem) {
	t.Helper()
	o := manyServices(1, 2)
	change(&o.NodeServices[0])
	c := New()
	d := c.Compile(inputOf(stateFrom(t, o)))
	flows = map[uint8][]openflow.Flow{}
	if r := d.Get("service/" + o.NodeServices[0].Namespace + "/" + o.NodeServices[0].Name); r != nil {
		for _, f := range r.Flows {
			flows[f.Table] = append(flows[f.Table], f)
		}
		groups = r.Groups
	}
	return flows, groups, c.Problems()
}

func many(n int) func(*intent.NodeService) {
	return func(v *intent.NodeService) { v.Ports[0].Endpoints = serviceOfMany(0, n).Ports[0].Endpoints }
}

// However many endpoints a Service has, each is in one group that Open vSwitch can hold,
// every client has one group, and each endpoint can be committed.
func TestManyEndpoints(t *testing.T) {
	for _, seconds := range []int{0, 600} {
		for _, n := range []int{1, 5, 10, 100, 128, 129, 256, 257, 1000, 1300, 1301, 5000, 20000} {
			t.Run(fmt.Sprintf("%d endpoints, affinity %d", n, seconds), func(t *testing.T) {
				flows, groups, problems := oneService(t, func(v *intent.NodeService) {
					many(n)(v)
					v.AffinitySeconds = seconds
				})
				if len(problems) > 0 {
					t.Fatal(problems)
				}
				most, choosing := maxByConnection, flows[serviceFrontend.ID]
				if seconds > 0 {
					most = maxByClient
					choosing = slices.DeleteFunc(slices.Clone(flows[affinity.ID]), func(f openflow.Flow) bool { return f.Priority == 100 })
				}
				if n == 1 && seconds == 0 { // the flow itself writes the endpoint
					if len(groups) != 1 || len(choosing) != 1 || choosing[0].Goto != serviceRoute.ID || len(flows[serviceEndpoint.ID]) != 1 {
						t.Errorf("groups %v, frontends %v", groups, choosing)
					}
					return
				}
				seen := map[uint32]bool{}
				for _, g := range groups {
					if err := g.Validate(); err != nil {
						t.Error(err)
					}
					weights := map[openflow.Action]int{}
					for _, b := range g.Buckets {
						if b.ID != 0 { // a part of the first one
							seen[b.ID] = true
						}
						weights[b.Actions[0]] += int(b.Weight)
					}
					if len(weights) == 0 || len(weights) > most {
						t.Errorf("group %d has %d endpoints", g.ID, len(weights))
					}
					if total, n := sum(weights), len(weights); total%n != 0 || total > maxSlots && seconds == 0 {
						t.Errorf("group %d has weights %v", g.ID, weights)
					}
					for _, weight := range weights {
						if weight*len(weights) != sum(weights) {
							t.Fatalf("group %d has weights %v", g.ID, weights)
						}
					}
				}
				if len(seen) != n || len(flows[serviceEndpoint.ID]) != n {
					t.Errorf("%d endpoints in groups, %d can be committed, of %d", len(seen), len(flows[serviceEndpoint.ID]), n)
				}
				if len(choosing) != len(groups) {
					t.Errorf("%d flows lead to %d groups", len(choosing), len(groups))
				}
				used := map[string]bool{}
				for _, f := range choosing {
					used[openflow.ActionsString(f.Actions[len(f.Actions)-1:])] = true
				}
				if len(used) != len(groups) {
					t.Errorf("%d groups are used, of %d", len(used), len(groups))
				}
			})
		}
	}
}

func sum(weights map[openflow.Action]int) (total int) {
	for _, weight := range weights {
		total += weight
	}
	return total
}

// More than Open vSwitch could hold is told, and the other ports are served.
func TestTooManyEndpoints(t *testing.T) {
	flows, _, problems := oneService(t, func(v *intent.NodeService) {
		more := v.Ports[0]
		more.Name, more.Port = "second", 81
		v.Ports = append(v.Ports, more)
		many(200_000)(v)
	})
	if len(problems) != 1 || !strings.Contains(problems[0].Text, "port http: 200000 endpoints need") {
		t.Errorf("problems %v", problems)
	}
	if n := len(flows[serviceEndpoint.ID]); n != 2 {
		t.Errorf("%d endpoints of the other port", n)
	}
}

// A Service has numbers for 512 ports.
func TestTooManyPorts(t *testing.T) {
	flows, groups, problems := oneService(t, func(v *intent.NodeService) {
		for i := range 600 {
			more := v.Ports[0]
			more.Name, more.Port = fmt.Sprint("p", i), uint16(1000+i)
			v.Ports = append(v.Ports, more)
		}
	})
	if len(problems) != 1 || !strings.Contains(problems[0].Text, "601 ports, of which the first 512 are served") {
		t.Errorf("problems %v", problems)
	}
	if len(groups) != 512 || len(flows[serviceFrontend.ID]) != 512 {
		t.Errorf("%d groups, %d frontends", len(groups), len(flows[serviceFrontend.ID]))
	}
}

// One endpoint more or less leaves the others' buckets, but for their weights, and flows as
// they are, as long as it needs no other number of groups.
func TestEndpointsKeepTheirNumbers(t *testing.T) {
	before, wereGroups, _ := oneService(t, many(1000))
	after, areGroups, _ := oneService(t, func(v *intent.NodeService) {
		many(1000)(v)
		v.Ports[0].Endpoints = slices.Delete(v.Ports[0].Endpoints, 500, 501)
	})
	gone := 0
	for i := range wereGroups {
		for _, b := range wereGroups[i].Buckets {
			if b.ID != 0 && !slices.ContainsFunc(areGroups[i].Buckets, func(o openflow.Bucket) bool { o.Weight = b.Weight; return o.Equal(&b) }) {
				gone++
			}
		}
	}
	if gone != 1 {
		t.Errorf("%d buckets changed", gone)
	}
	gone = 0
	for _, f := range before[serviceEndpoint.ID] {
		if !slices.ContainsFunc(after[serviceEndpoint.ID], func(o openflow.Flow) bool { return o.Equal(&f) }) {
			gone++
		}
	}
	if gone != 1 {
		t.Errorf("%d flows changed", gone)
	}
}

// Services that share a Slot have groups of their own.
func TestSharedSlot(t *testing.T) {
	o := manyServices(0, 0)
	for _, name := range sharedSlot() {
		v := serviceOfMany(len(o.NodeServices), 2)
		v.Namespace, v.Name = "default", name
		o.NodeServices = append(o.NodeServices, v)
	}
	c := New()
	d := c.Compile(inputOf(stateFrom(t, o)))
	seen := map[uint32]string{}
	for owner, r := range rulesOf(d, c) {
		for _, g := range r.Groups {
			if other, taken := seen[g.ID]; taken {
				t.Errorf("%s and %s have group %d", owner, other, g.ID)
			}
			seen[g.ID] = owner
		}
	}
	if len(seen) != len(sharedSlot()) || len(c.Problems()) > 0 {
		t.Errorf("groups of %v, problems %v", seen, c.Problems())
	}
}

// What is wrong with a Service is told, by its name.
func TestServiceProblems(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*intent.NodeService)
		want   string
	}{
		{"no such router", func(v *intent.NodeService) { v.Router = "gone" }, `service/team-0/service-0: router "gone" does not exist`},
		{"endpoint of the other family", func(v *intent.NodeService) { v.Ports[0].Endpoints[0].Address = address6(1, 2, 3) },
			"service/team-0/service-0: port http: [fd00:1:0:2::3]:8080 is no endpoint of its family"},
		{"endpoint without a port", func(v *intent.NodeService) { v.Ports[0].Endpoints[0].Port = 0 }, "is no endpoint of its family"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, problems := oneService(t, tc.change)
			if len(problems) != 1 || !strings.Contains(problems[0].Error(), tc.want) {
				t.Errorf("problems %v", problems)
			}
		})
	}
}

// Where the host's kernel balances, Services have no flows here.
func TestKubeProxyHasNoServices(t *testing.T) {
	o := manyServices(3, 2)
	o.Local.ServiceMode = intent.KubeProxy
	c := New()
	d := c.Compile(inputOf(stateFrom(t, o)))
	for owner := range rulesOf(d, c) {
		if strings.HasPrefix(owner, "service") {
			t.Errorf("%s has rules", owner)
		}
	}
}

// TestEndpointIDs: the numbers of endpoints are distinct, and what an endpoint alone has,
// it has among others.
func TestEndpointIDs(t *testing.T) {
	at := func(addresses ...string) (list []intent.Endpoint) {
		for _, a := range addresses {
			e := netip.MustParseAddrPort(a)
			list = append(list, intent.Endpoint{Address: e.Addr(), Port: e.Port()})
		}
		return list
	}
	colliding := at("[fd00::8631:6760:df0b:dd60]:80", "[fd00::e1e4:ac5b:d9f6:cfc7]:80")
	for name, list := range map[string][]intent.Endpoint{
		"none": nil, "endpoints": at("10.0.0.7:80", "10.0.0.8:80", "[fd00::7]:80"), "colliding": colliding,
	} {
		ids := endpointIDs(list)
		for i, id := range ids {
			if id == 0 || id > openflow.BucketMax || slices.Contains(ids[:i], id) {
				t.Errorf("%s: %v", name, ids)
			}
		}
		if name == "colliding" {
			continue
		}
		slices.Reverse(list)
		back := endpointIDs(list)
		if slices.Reverse(back); !slices.Equal(ids, back) {
			t.Errorf("%s: %v, in other order %v", name, ids, back)
		}
	}
	if got, alone := endpointIDs(colliding), endpointIDs(colliding[1:])[0]; got[0] != alone || got[1] != alone+1 {
		t.Errorf("colliding: %v, alone %d", got, alone)
	}
	if got := endpointIDs(at("10.0.0.7:8080"))[0]; got != 3241567117 {
		// What restarts must find again.
		t.Errorf("the numbers of endpoints have changed: %d", got)
	}
}

// The flows are of what the node serves: all that the cluster has of a Service makes none.
func TestFlowsAreOfNodeServices(t *testing.T) {
	o := manyServices(1, 2)
	served := o.NodeServices[0]
	port := intent.ServicePort{Protocol: intent.TCP, Port: 80, ClusterIP: served.Ports[0].ClusterIP}
	for _, e := range served.Ports[0].Endpoints {
		port.Endpoints = append(port.Endpoints, intent.ServiceEndpoint{Address: e.Address, Port: e.Port})
	}
	o.Services = []intent.Service{{Namespace: served.Namespace, Name: served.Name, Router: served.Router, Ports: []intent.ServicePort{port}}}
	owner := "service/" + served.Namespace + "/" + served.Name
	if New().Compile(inputOf(stateFrom(t, o))).Get(owner) == nil {
		t.Error("no flows of a Service that the node serves")
	}
	o.NodeServices = nil
	if r := New().Compile(inputOf(stateFrom(t, o))).Get(owner); r != nil {
		t.Errorf("flows of a Service that the node does not serve: %v", r.Flows)
	}
}
