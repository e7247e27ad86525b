// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fullService is a Service of which no list is empty.
func fullService() *NodeService {
	ip := netip.MustParseAddr("192.0.2.1")
	return &NodeService{
		Namespace: "shop", Name: "web", SourceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Ports: []NodeServicePort{{
			ClusterIP: ip, ExternalIPs: []netip.Addr{ip}, LoadBalancerIPs: []netip.Addr{ip},
			Endpoints: []Endpoint{{ip, 80}}, LocalEndpoints: []Endpoint{{ip, 80}}, Draining: []Endpoint{{ip, 80}},
		}},
	}
}

func TestDiffOfServices(t *testing.T) {
	store := NewStore()
	v := *fullService()
	gone, moved := NodeService{Namespace: "shop", Name: "gone"}, v
	prefix := func(s string) ServiceRange { return ServiceRange{netip.MustParsePrefix(s)} }
	from := mustUpdate(t, store, func(tx *Tx) {
		tx.ReplaceNodeServices([]NodeService{v, gone, {Namespace: "shop", Name: "same"}})
		tx.ReplaceServiceRanges([]ServiceRange{prefix("10.96.0.0/12"), prefix("10.200.0.0/16")})
	})
	moved.Ports = v.clone().Ports
	moved.Ports[0].Endpoints[0].Port++
	to := mustUpdate(t, store, func(tx *Tx) {
		tx.ReplaceNodeServices([]NodeService{{Namespace: "other", Name: "new"}, {Namespace: "shop", Name: "same"}, moved})
		tx.ReplaceServiceRanges([]ServiceRange{prefix("10.96.0.0/12"), prefix("fd00:96::/108")})
	})
	want := Delta{NodeServices: []string{"other/new", "shop/gone", "shop/web"}, ServiceRanges: []string{"10.200.0.0/16", "fd00:96::/108"}}
	if diff := cmp.Diff(want, Diff(from, to)); diff != "" {
		t.Errorf("Diff (-want +got):\n%s", diff)
	}
	if want.Empty() || (Delta{ServiceRanges: want.ServiceRanges}).Empty() || (Delta{NodeServices: want.NodeServices}).Empty() {
		t.Error("a Delta with Services is empty")
	}
	if to.NodeServices().Len() != 3 || to.ServiceRanges().Len() != 2 {
		t.Errorf("%d services, %d ranges", to.NodeServices().Len(), to.ServiceRanges().Len())
	}
	same := mustUpdate(t, store, func(tx *Tx) { tx.SetNodeService(moved) })
	if same != to {
		t.Error("setting an equal Service made a new State")
	}
}

func TestEndpointCompare(t *testing.T) {
	list := []Endpoint{
		{netip.MustParseAddr("10.0.0.1"), 80}, {netip.MustParseAddr("10.0.0.1"), 8080}, {netip.MustParseAddr("10.0.0.2"), 1},
		{netip.MustParseAddr("10.0.0.10"), 1}, {netip.MustParseAddr("fd00::1"), 1},
	}
	for i, a := range list {
		for j, b := range list {
			if got := a.Compare(b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%v.Compare(%v) = %d", a, b, got)
			}
		}
	}
}

func TestProtocolString(t *testing.T) {
	for p, want := range map[Protocol]string{TCP: "TCP", UDP: "UDP", SCTP: "SCTP", 47: "47"} {
		if p.String() != want {
			t.Errorf("%d is %q, want %q", uint8(p), p, want)
		}
	}
}
