// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/intent"
)

// kuryrs is an API with the KuryrLoadBalancer of shop/web alone, which has a public address.
type kuryrs struct {
	client.Reader
	public  any
	failure error
	reads   int
}

// Get implements client.Reader.
func (k *kuryrs) Get(_ context.Context, name client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	k.reads++
	if k.failure != nil {
		return k.failure
	}
	if name.String() != "shop/web" {
		return apierrors.NewNotFound(schema.GroupResource{}, name.String())
	}
	u := o.(*unstructured.Unstructured)
	u.SetNamespace(name.Namespace)
	u.SetName(name.Name)
	u.Object["status"] = map[string]any{"service_pub_ip_info": k.public}
	return nil
}

func public(address, method string) map[string]any {
	return map[string]any{"ip_id": "f", "ip_addr": address, "alloc_method": method}
}

// floatingState has a FloatingIP of the Service shop/web, and this Service if it has addresses.
func floatingState(address string, clusterIPs ...string) *intent.Store {
	store := intent.NewStore()
	_, _ = store.Update(func(tx *intent.Tx) error {
		tx.SetFloatingIP(intent.FloatingIP{Name: "shop/out", Network: "office", Address: netip.MustParseAddr(address), Service: "shop/web"})
		tx.SetFloatingIP(intent.FloatingIP{Name: "shop/port", Network: "office", Address: netip.MustParseAddr("192.0.2.8"), Port: "shop/p"})
		v := intent.Service{Namespace: "shop", Name: "web"}
		for i, ip := range append(clusterIPs, clusterIPs...) { // of two ports
			a := netip.MustParseAddr(ip)
			v.Ports = append(v.Ports, intent.ServicePort{Port: uint16(80 + i), IPv6: a.Is6(), ClusterIP: a})
		}
		if v.Ports != nil {
			tx.SetService(v)
		}
		return nil
	})
	return store
}

// Kuryr's floating IP is claimed by its id, for a FloatingIP with its address of a Service that
// there is, and has to lead to the Service's own address.
func TestFloatingClaims(t *testing.T) {
	const address = "192.0.2.7"
	for name, tc := range map[string]struct {
		public     any
		failure    error
		address    string // of the FloatingIP
		clusterIPs []string
		has        []any
		kept       bool
		refused    string
		none       bool
	}{
		"made by Kuryr":   {public: public(address, "pool"), clusterIPs: []string{"10.96.0.5"}, has: []any{"10.96.0.5"}},
		"of a user":       {public: public(address, "user"), clusterIPs: []string{"10.96.0.5"}, has: []any{"10.96.0.5"}, kept: true},
		"of two families": {public: public(address, "pool"), clusterIPs: []string{"10.96.0.5", "fd00::5"}, has: []any{"10.96.0.5", "fd00::5"}},
		"another address": {
			public: public("192.0.2.9", "pool"), clusterIPs: []string{"10.96.0.5"}, has: []any{"10.96.0.5"},
			refused: "its address is 192.0.2.9, and that of the FloatingIP is 192.0.2.7: make one with spec.address 192.0.2.9",
		},
		"another family": {
			public: public("2001:db8::7", "pool"), clusterIPs: []string{"10.96.0.5"}, has: []any{"10.96.0.5"},
			refused: "its address is 2001:db8::7, and that of the FloatingIP is 192.0.2.7",
		},
		"a Service that is gone": {public: public(address, "pool"), refused: "there is no Service shop/web with a ClusterIP"},
		"unreadable": {
			public: public("192.0.2", "pool"), clusterIPs: []string{"10.96.0.5"}, has: []any{"10.96.0.5"},
			refused: "it cannot be read: KuryrLoadBalancer shop/web: ParseAddr",
		},
		"forbidden": {
			failure: errors.New("forbidden"), clusterIPs: []string{"10.96.0.5"}, has: []any{"10.96.0.5"},
			refused: "it cannot be read: forbidden",
		},
		"no floating IP": {clusterIPs: []string{"10.96.0.5"}, none: true},
		"no such object": {failure: apierrors.NewNotFound(schema.GroupResource{}, "web"), clusterIPs: []string{"10.96.0.5"}, none: true},
		"no such kind":   {failure: &meta.NoKindMatchError{}, clusterIPs: []string{"10.96.0.5"}, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			api := &kuryrs{public: tc.public, failure: tc.failure}
			r := &Runner{Options: Options{
				Intent: known{floatingState(address, tc.clusterIPs...)}, Access: &reconcile.Access{Live: api},
			}, lacking: []string{"shop/gone", "shop/out", "shop/port"}}
			claims := r.claims(t.Context())
			if api.reads != 1 {
				t.Errorf("%d reads", api.reads)
			}
			if tc.none {
				if len(claims) != 0 {
					t.Errorf("%+v", claims)
				}
				return
			}
			if len(claims) != 1 || !strings.HasPrefix(claims[0].Refused, tc.refused) || tc.refused == "" && claims[0].Refused != "" {
				t.Fatalf("%+v, want %q", claims, tc.refused)
			}
			want := resource.Claim{
				Kind: resource.FloatingIP, ID: "f", By: "KuryrLoadBalancer shop/web", Ref: compile.FloatingIPRef("shop/out"), Kept: tc.kept,
				Has: map[string][]any{"fixed_ip_address": tc.has}, Refused: claims[0].Refused,
				Or: map[string][]any{"fixed_ip_address": {nil}, "description": {"kuryr_lb"}},
			}
			if strings.HasPrefix(tc.refused, "it cannot be read") {
				want.ID = ""
			}
			if diff := cmp.Diff(want, claims[0]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// KuryrLoadBalancers are read for FloatingIPs of Services alone, and when these have a problem.
func TestLacking(t *testing.T) {
	problem := func(object string) resource.Problem {
		return resource.Problem{Object: object, Reason: "RefusedByNeutron", Message: "taken"}
	}
	state := floatingState("192.0.2.7").State()
	for _, tc := range []struct {
		objects, want []string
	}{
		{nil, nil},
		{[]string{"FloatingIP shop/out", "Network red", "FloatingIP shop/out"}, []string{"shop/out"}},
		{[]string{"FloatingIP shop/port", "FloatingIP shop/gone", "Port shop/out"}, nil},
	} {
		var problems []resource.Problem
		for _, o := range tc.objects {
			problems = append(problems, problem(o))
		}
		if got := lacking(state, problems); fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%v: %v, want %v", tc.objects, got, tc.want)
		}
	}
	api := &kuryrs{}
	r := &Runner{Options: Options{Intent: known{floatingState("192.0.2.7")}, Access: &reconcile.Access{Live: api}}}
	if r.claims(t.Context()); api.reads != 0 {
		t.Errorf("%d reads for no FloatingIP", api.reads)
	}
	r.client = cloud.New(cloud.Options{})
	r.seek([]string{"shop/out"})
	if r.claims(t.Context()); api.reads != 1 {
		t.Errorf("%d reads for one FloatingIP", api.reads)
	}
}
