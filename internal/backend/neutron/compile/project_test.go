// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"maps"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
)

// projects has the policies of the namespace shop, and a Network for it, in a project; bank may not
// have the one that it asks for, and the Network empty selects no namespace.
func projects(o *intent.Objects) {
	policies(o)
	o.Tenants = []intent.Tenant{{Namespace: "shop", Project: "T1"}, {Namespace: "bank", Denied: `"T2"`}}
	o.Networks = append(o.Networks,
		intent.Network{Name: "shop", Router: "default", Project: "T1", Subnets: intenttest.Subnets("10.20.0.0/24")},
		intent.Network{Name: "empty", Router: "default", Undecided: true, Subnets: intenttest.Subnets("10.21.0.0/24")})
	named := intenttest.Port("shop", "named", "shop", "n1", "10.20.0.6")
	named.NeutronPort = "k"
	o.Ports = append(o.Ports, named, intenttest.Port("shop", "cart", "shop", "n1", "10.20.0.5"), intenttest.Port("empty", "pod", "empty", "n1", "10.21.0.5"))
	o.FloatingIPs = []intent.FloatingIP{{Name: "shop/cart", Network: "office", Address: addr("198.51.100.32"), Port: "shop/cart.eth0"}}
}

// in are the kinds that a Set wants in a project, without what they are made of.
func in(s *resource.Set, project string) string {
	found := ""
	for _, k := range resource.Kinds() {
		for _, r := range s.All(k) {
			if r.Project == project && (k == resource.Network || k == resource.Port || k == resource.SecurityGroup) {
				found += r.Kind.String() + " " + r.Key + "; "
			}
		}
	}
	return found
}

func hasProblem(s *resource.Set, object, reason string) bool {
	for _, p := range s.Problems {
		if p.Object == object && p.Reason == reason {
			return true
		}
	}
	return false
}

// What another project is asked for is in it, unless the network is in the cluster's own already:
// there it stays with its ports.
func TestProjects(t *testing.T) {
	const policies = "security group Policy/NetworkPolicy shop/db of ingress/1/6-5432; security group Policy/NetworkPolicy shop/lab in red; " +
		"security group Policy/NetworkPolicy shop/web; security group Policy/SecurityGroup shop/ping; "
	for name, tc := range map[string]struct {
		options  Options
		in       string
		problems map[string]string
		network  bool // of the Network empty
	}{
		"new": {
			in:       policies + "network Network/shop; port Borrowed/Port/shop/named k; port Port/shop/cart; ",
			problems: map[string]string{"Namespace bank": "ProjectNotAllowed", "Network empty": "NamespaceMissing"},
		},
		"in the cluster's own already": {
			options: Options{Placed: Placed{"shop": true, "empty": true}}, in: policies,
			problems: map[string]string{"Network shop": "ProjectKept"}, network: true,
		},
		"the cluster's own": {options: Options{Own: "T1"}},
	} {
		t.Run(name, func(t *testing.T) {
			set := Compile(stateOf(projects), tc.options)
			for _, problem := range dangling(set) {
				t.Error(problem)
			}
			if got := in(set, "T1"); got != tc.in {
				t.Errorf("in the project: %s\nwant %s", got, tc.in)
			}
			for object, reason := range tc.problems {
				if !hasProblem(set, object, reason) {
					t.Errorf("%s has not the problem %s: %v", object, reason, set.Problems)
				}
			}
			if _, made := set.Get(NetworkRef("empty")); made != tc.network {
				t.Errorf("the network without a namespace is made: %v", made)
			}
			if got := strings.Join(set.Projects["T1"], ","); (got == "") != (tc.in == "") {
				t.Errorf("asked for by %q", got)
			}
		})
	}
}

// The port of a pod on the nodes' ranges is the cluster's, also if its namespace has a project: it
// is ready before the pod comes.
func TestReadyPortsAreTheClusters(t *testing.T) {
	o := func(o *intent.Objects) {
		o.Ports, o.Tenants = []intent.Port{podAt("web", 2)}, []intent.Tenant{{Namespace: "shop", Project: "T1"}}
	}
	with, without := Compile(stateOf(o), Options{Spare: 4}), Compile(stateOf(func(all *intent.Objects) { o(all); all.Tenants = nil }), Options{Spare: 4})
	if a, b := dump(with), dump(without); a != b {
		t.Errorf("the project changes\n%s\nto\n%s", b, a)
	}
}

func TestPlace(t *testing.T) {
	s := stateOf(projects)
	have := resource.NewInventory()
	check := func(what string, shop bool) {
		t.Helper()
		if got, want := Place(s, have), (Placed{"shop": shop, "empty": false}); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	check("nothing is there", false)
	have.Set(NetworkRef("shop").In("T1"), resource.Actual{ID: "theirs"})
	check("in its project", false)
	have.Set(NetworkRef("shop"), resource.Actual{ID: "ours"})
	check("in the cluster's own", true)
}
