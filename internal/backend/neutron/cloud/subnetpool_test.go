// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
)

// pool is one for subnets of a length.
func pool(all *resource.Set, bits int) resource.Ref {
	return all.Add(resource.Resource{
		Ref: resource.Ref{Kind: resource.SubnetPool, Key: "SubnetPool/10.128.0.0/14"}, Object: "Network default",
		Fixed: resource.Attributes{"prefixes": []any{"10.128.0.0/14"}},
		Mutable: resource.Attributes{
			"name": "namespaces", "default_prefixlen": bits, "min_prefixlen": 14, "max_prefixlen": 32,
		},
	})
}

// subnets are on a network each, of a pool.
func subnets(all *resource.Set, of resource.Ref, cidrs ...string) {
	for _, cidr := range cidrs {
		network := all.Add(resource.Resource{
			Ref: resource.Ref{Kind: resource.Network, Key: "Network/" + cidr}, Object: "Network " + cidr, Mutable: resource.Attributes{"name": cidr},
		})
		all.Add(resource.Resource{
			Ref: resource.Ref{Kind: resource.Subnet, Key: "Network/" + cidr + " " + cidr}, Object: "Network " + cidr,
			Fixed:   resource.Attributes{"network_id": network, "cidr": cidr, "ip_version": 4},
			Mutable: resource.Attributes{"gateway_ip": nil}, Initial: resource.Attributes{"subnetpool_id": of},
		})
	}
}

// pools are what there is of pools and of their subnets.
func (w *world) pools() (list []string) {
	names := map[any]any{}
	for _, p := range w.neutron.All("subnetpools") {
		names[p["id"]] = p["name"]
		list = append(list, fmt.Sprint(p["description"], " ", p["project_id"], " ", p["prefixes"], " ", p["default_prefixlen"]))
	}
	for _, s := range w.neutron.All("subnets") {
		list = append(list, fmt.Sprint(s["cidr"], " of ", names[s["subnetpool_id"]]))
	}
	return list
}

// A pool is made before its subnets, follows the setting, stays while a subnet is of it that is
// wanted, also when the pool is not any more, and goes with the last.
func TestSubnetPools(t *testing.T) {
	w := newWorld(t)
	set := func(bits int, cidrs ...string) {
		t.Helper()
		all := resource.NewSet()
		of := resource.Ref{Kind: resource.SubnetPool, Key: "SubnetPool/none"}
		if bits > 0 {
			of = pool(all, bits)
		}
		subnets(all, of, cidrs...)
		w.set(all)
		w.done()
	}
	want := func(list ...string) {
		t.Helper()
		if diff := cmp.Diff(list, w.pools()); diff != "" {
			t.Errorf("pools and subnets (-want +got):\n%s", diff)
		}
	}
	const made = "east/SubnetPool/10.128.0.0/14 p [10.128.0.0/14] "
	set(24, "10.128.0.0/24", "10.128.1.0/24")
	want(made+"24", "10.128.0.0/24 of namespaces", "10.128.1.0/24 of namespaces")
	calls := w.neutron.Calls()
	set(24, "10.128.0.0/24", "10.128.1.0/24")
	if more := w.neutron.Calls() - calls; more > 0 {
		t.Errorf("%d calls for nothing", more)
	}
	w.stop()
	w.start()
	set(26, "10.128.0.0/24", "10.128.2.0/26")
	want(made+"26", "10.128.0.0/24 of namespaces", "10.128.2.0/26 of namespaces")
	set(0, "10.128.0.0/24")
	want(made+"26", "10.128.0.0/24 of namespaces")
	set(0)
	want()
}

// A subnet that overlaps what another program has made in the pool is a problem of its Network; the
// rest is made.
func TestSubnetOfAnotherInThePool(t *testing.T) {
	w := newWorld(t)
	all := resource.NewSet()
	pool(all, 24)
	w.set(all)
	w.done()
	call := func(path, body string) map[string]any {
		t.Helper()
		_, answer, err := neutronfake.Call(t.Context(), "POST", w.neutron.URL+"/v2.0/"+path, body)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	network := call("networks", `{"network": {"project_id": "z", "name": "theirs"}}`)["network"].(map[string]any)
	call("subnets", fmt.Sprintf(`{"subnet": {"project_id": "z", "network_id": %q, "cidr": "10.128.1.0/24", "ip_version": 4,
		"subnetpool_id": %q}}`, network["id"], w.neutron.All("subnetpools")[0]["id"]))
	both := resource.NewSet()
	subnets(both, pool(both, 24), "10.128.0.0/24", "10.128.1.0/24")
	w.set(both)
	o := w.await("one is refused", func(o outcome) bool { return o.of == both && len(o.problems) > 0 })
	if p := o.problems[0]; len(o.problems) != 1 || p.Object != "Network 10.128.1.0/24" || p.Reason != "NeutronFailed" {
		t.Errorf("problems %+v", o.problems)
	}
	if got := w.pools(); len(got) != 3 || got[2] != "10.128.0.0/24 of namespaces" {
		t.Errorf("there are %v", got)
	}
}

// A Neutron without pools is one in which the cluster has none.
func TestNoSubnetPools(t *testing.T) {
	w := newWorldWith(t, func(*Client) {})
	w.neutron.Fail(func(_ int, _, path string) neutronfake.Fault {
		if path == "subnetpools" {
			return neutronfake.Missing
		}
		return neutronfake.None
	})
	w.set(tenant(1))
	w.done()
}

// A subnet is of a pool of another program, which stays as it is, waits while there is none, and is
// known with what others have of the pool.
func TestGivenSubnetPool(t *testing.T) {
	w := newWorld(t)
	theirs := w.make("subnetpools", "subnetpool", `"name": "office", "project_id": "z", "prefixes": ["10.128.0.0/14"], "shared": true`)
	network := w.make("networks", "network", `"name": "theirs", "project_id": "z"`)
	w.make("subnets", "subnet", fmt.Sprintf(`"network_id": %q, "cidr": "10.128.1.0/24", "ip_version": 4, "subnetpool_id": %q, "project_id": "z"`, network, theirs))
	lent := resource.LentSubnetPool(theirs)
	given := func(cidrs ...string) *resource.Set {
		all := resource.NewSet()
		all.Add(resource.Resource{Ref: lent, Object: "Network default", Optional: true})
		subnets(all, lent, cidrs...)
		return all
	}
	w.set(given("10.128.0.0/24"))
	o := w.await("it waits", func(o outcome) bool { return len(o.problems) > 0 })
	if p := o.problems[0]; p.Reason != "Waiting" || p.Object != "Network 10.128.0.0/24" {
		t.Errorf("problems %+v", o.problems)
	}
	w.stop()
	w.change = func(c *Client) { c.o.SubnetPools = []string{theirs} }
	w.start()
	w.set(given("10.128.0.0/24"))
	w.done()
	office := NewSubnetPools(Access{Endpoint: w.neutron.URL, Project: "p"}, []string{theirs})
	pools, taken, err := office.Read(t.Context())
	if loan, _ := pools.Loan(lent); err != nil || loan.ID != theirs || fmt.Sprint(taken) != "[10.128.1.0/24 10.128.0.0/24]" {
		t.Errorf("of %+v are taken %v, %v", loan, taken, err)
	}
	missing := NewSubnetPools(Access{Endpoint: w.neutron.URL, Project: "p"}, []string{network})
	pools, taken, err = missing.Read(t.Context())
	if loan, _ := pools.Loan(resource.LentSubnetPool(network)); err != nil || len(taken) > 0 || loan.Refused != "Neutron has no subnet pool "+network {
		t.Errorf("of %+v are taken %v, %v", loan, taken, err)
	}
	w.set(resource.NewSet())
	w.done()
	if diff := cmp.Diff([]string{"<nil> z [10.128.0.0/14] 8", "10.128.1.0/24 of office"}, w.pools()); diff != "" {
		t.Errorf("pools and subnets (-want +got):\n%s", diff)
	}
	away := NewSubnetPools(Access{Endpoint: "http://127.0.0.1:1", Project: "p"}, []string{theirs})
	if _, _, err := away.Read(t.Context()); err == nil {
		t.Error("without a Neutron it is known what is taken")
	}
}

// While Neutron does not answer, it is asked once for all callers, and not again at once.
func TestSubnetPoolsOfABusyNeutron(t *testing.T) {
	n := neutronfake.Start(t)
	asked := 0
	n.Fail(func(int, string, string) neutronfake.Fault { asked++; return neutronfake.Busy })
	p := NewSubnetPools(Access{Endpoint: n.URL, Project: "p"}, []string{"1"})
	for range 3 {
		if _, _, err := p.Read(t.Context()); err == nil {
			t.Fatal("it is known what is taken")
		}
	}
	if asked != 1 {
		t.Errorf("Neutron was asked %d times, want once", asked)
	}
}
