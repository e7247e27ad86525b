// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
)

// A pool of OpenStack is what subnets are of if it can have them; else it is said why not, and none
// is made in its place.
func TestGive(t *testing.T) {
	pools := []intent.SubnetPool{{Prefix: prefix("10.128.0.0/14"), Bits: 24}, {Prefix: prefix("fd00:128::/48"), Bits: 64}}
	of := func(version any, least, most any, prefixes ...any) resource.Loan {
		return resource.Loan{Actual: resource.Actual{ID: "u", Attributes: resource.Attributes{
			"ip_version": version, "prefixes": prefixes, "min_prefixlen": least, "max_prefixlen": most, "shared": true,
		}}}
	}
	v4, v6 := of(float64(4), 8, 32, "172.16.0.0/12", "10.0.0.0/8"), of(6, 64, 64, "fd00:128::/48")
	missing := resource.Loan{Refused: "Neutron has no subnet pool x"}
	for name, tc := range map[string]struct {
		ids     []string
		loans   map[string]resource.Loan
		want    map[string]string // id by prefix
		reasons string
		says    []string
	}{
		"none":   {},
		"both":   {ids: []string{"a", "b"}, loans: map[string]resource.Loan{"a": v4, "b": v6}, want: map[string]string{"10.128.0.0/14": "a", "fd00:128::/48": "b"}},
		"one":    {ids: []string{"b"}, loans: map[string]resource.Loan{"b": v6}, want: map[string]string{"fd00:128::/48": "b"}},
		"itself": {ids: []string{"a"}, loans: map[string]resource.Loan{"a": of(4, 24, 24, "10.128.0.0/14")}, want: map[string]string{"10.128.0.0/14": "a"}},
		"missing": {
			ids: []string{"a", "x"}, loans: map[string]resource.Loan{"a": v4, "x": missing},
			want: map[string]string{"10.128.0.0/14": "a", "fd00:128::/48": "x"}, reasons: "SubnetPoolNotFound",
			says: []string{"Neutron has no subnet pool x", "new namespaces wait"},
		},
		"not read yet": {ids: []string{"x"}, want: map[string]string{"10.128.0.0/14": "x", "fd00:128::/48": "x"}},
		"elsewhere": {
			ids: []string{"a"}, loans: map[string]resource.Loan{"a": of(4, 8, 32, "10.0.0.0/9", "10.128.0.0/15")},
			want: map[string]string{"10.128.0.0/14": "a"}, reasons: "SubnetPoolUnsuitable",
			says: []string{"the subnet pool a has the prefixes [10.0.0.0/9 10.128.0.0/15]", "in place of 10.128.0.0/14/24"},
		},
		"longer": {
			ids: []string{"a"}, loans: map[string]resource.Loan{"a": of(4, 25, 28, "10.0.0.0/8")},
			want: map[string]string{"10.128.0.0/14": "a"}, reasons: "SubnetPoolUnsuitable", says: []string{"prefix lengths from 25 to 28"},
		},
		"shorter": {
			ids: []string{"b"}, loans: map[string]resource.Loan{"b": of(6, 48, 63, "fd00::/16")},
			want: map[string]string{"fd00:128::/48": "b"}, reasons: "SubnetPoolUnsuitable", says: []string{"prefix lengths from 48 to 63"},
		},
		"two of a family": {
			ids: []string{"a", "b"}, loans: map[string]resource.Loan{"a": v4, "b": v4},
			want: map[string]string{"10.128.0.0/14": "a"}, reasons: "SubnetPoolUnsuitable", says: []string{"the subnet pool b is of one family"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			have := resource.NewInventory()
			for id, loan := range tc.loans {
				have.Lend(resource.LentSubnetPool(id), loan)
			}
			g := Give(pools, tc.ids, have)
			got := map[string]string{}
			for p, given := range g.Pools {
				for _, id := range tc.ids {
					if given.Ref == resource.LentSubnetPool(id) {
						got[p.String()] = id
					}
				}
				if _, there := tc.loans[got[p.String()]]; given.Shared != (there && tc.loans[got[p.String()]].Refused == "") {
					t.Errorf("the pool of %s is shared: %v", p, given.Shared)
				}
			}
			if tc.want == nil {
				tc.want = map[string]string{}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pools (-want +got):\n%s", diff)
			}
			if (tc.reasons == "") != (len(g.Problems) == 0) || len(g.Problems) > 1 {
				t.Fatalf("problems %+v", g.Problems)
			}
			for _, p := range g.Problems {
				if p.Object != "Network default" || p.Reason != tc.reasons {
					t.Errorf("problem %+v", p)
				}
				for _, text := range tc.says {
					if !strings.Contains(p.Message, text) {
						t.Errorf("%q is not said: %s", text, p.Message)
					}
				}
			}
		})
	}
	t.Run("missing beside one of the cluster's own", func(t *testing.T) {
		have := resource.NewInventory()
		have.Lend(resource.LentSubnetPool("x"), missing)
		have.Put(SubnetPoolRef(pools[1].Prefix), resource.Actual{ID: "own"})
		g := Give(pools, []string{"x"}, have)
		if len(g.Pools) != 1 || g.Pools[pools[0].Prefix].Ref != resource.LentSubnetPool("x") {
			t.Errorf("given are %v, want that for %s alone", g.Pools, pools[0])
		}
	})
	t.Run("of no family", func(t *testing.T) {
		have := resource.NewInventory()
		have.Lend(resource.LentSubnetPool("b"), v6)
		g := Give(pools[:1], []string{"b"}, have)
		if len(g.Pools) != 0 || len(g.Problems) != 1 || !strings.Contains(g.Problems[0].Message, "the subnet pool b is of IPv6") {
			t.Errorf("%+v", g)
		}
	})
}

// A subnet of a namespace in another project is of a given pool if that is shared.
func TestGivenPools(t *testing.T) {
	for _, shared := range []bool{false, true} {
		o := worlds["namespaces"]
		options := without["namespaces"]
		options.Given = Given{Pools: map[netip.Prefix]GivenPool{
			prefix("10.128.0.0/14"): {resource.LentSubnetPool("a"), shared},
		}}
		set := Compile(stateOf(o), options)
		got := map[string]any{}
		for _, s := range set.All(resource.Subnet) {
			got[s.Fixed["cidr"].(string)] = s.Initial["subnetpool_id"]
		}
		want := map[string]any{"10.128.0.0/24": resource.LentSubnetPool("a"), "fd00:128::/64": SubnetPoolRef(prefix("fd00:128::/48"))}
		if shared {
			want["10.128.1.0/24"] = resource.LentSubnetPool("a")
		}
		maps.DeleteFunc(got, func(_ string, pool any) bool { return pool == nil })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("shared %v: pools of subnets (-want +got):\n%s", shared, diff)
		}
		if pools := set.All(resource.SubnetPool); len(pools) != 2 {
			t.Errorf("pools %+v", pools)
		}
	}
}
