// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/intent"
)

// networked is a State with a shared, a private and a physical Network.
func networked(t *testing.T) *intent.State {
	t.Helper()
	before := cluster(t, intent.Local{Node: "n1", Encapsulation: intent.VXLAN, TunnelIP: addr("192.168.33.11"), MTU: 1450})
	subnet := func(p, gateway string) []intent.NetworkSubnet {
		return []intent.NetworkSubnet{{Prefix: netip.MustParsePrefix(p), Gateway: addr(gateway)}}
	}
	s, err := intent.NewStore().Update(func(tx *intent.Tx) error {
		tx.Replace(intent.Objects{
			Local: before.Local(), Nodes: slices.Collect(before.Nodes().All()),
			Routers: []intent.Router{{Name: "default", ID: 1, VNI: 1, Shared: true}, {Name: "open", ID: 2, Shared: true}, {Name: "red", ID: 3}},
			Networks: []intent.Network{
				{Name: "default", ID: 1, VNI: 1, Router: "default"},
				{Name: "open", ID: 2, VNI: 70002, Router: "open", Subnets: subnet("10.60.0.0/16", "10.60.0.1")},
				{Name: "red", ID: 3, VNI: 70003, Router: "red", Subnets: subnet("10.50.0.0/16", "10.50.0.1")},
				{Name: "lan", ID: 4, Physical: "office", Subnets: subnet("192.168.42.0/24", "192.168.42.254")},
			},
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The host's kernel knows the addresses of shared Networks, and of no others.
func TestHostStateOfNetworks(t *testing.T) {
	d := hostState(networked(t), "eth0", nil)
	var got []hostnet.Route
	for _, r := range d.Routes {
		if !slices.ContainsFunc(prefixes("10.244.0.0/16", "fd44::/16"), func(p netip.Prefix) bool { return p.Overlaps(r.Destination) }) {
			got = append(got, r)
		}
	}
	want := []hostnet.Route{{Destination: prefixes("10.60.0.0/16")[0], Via: addr("10.60.0.1"), Gateway: true, Source: addr("10.244.1.1")}}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	shared, private := prefixes("10.60.0.0/16")[0], prefixes("10.50.0.0/16")[0]
	if !slices.Contains(d.SNAT.Pods, shared) || !slices.Contains(d.SNAT.Direct, shared) || slices.Contains(d.SNAT.Pods, private) {
		t.Errorf("masquerading: %+v", d.SNAT)
	}
}
