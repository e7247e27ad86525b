// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/controller/neutron/balancers"
	"coelan.io/coelan/internal/controller/reconcile/reconciletest"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
)

func redNetwork(cidrs ...string) *v1alpha1.Network {
	n := &v1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: "red", UID: "uid-red"}}
	for _, c := range cidrs {
		n.Spec.Subnets = append(n.Spec.Subnets, v1alpha1.Subnet{CIDR: c})
	}
	return n
}

// written is what an object says after identities have written it.
func written(t *testing.T, i *identities, o *v1alpha1.Network) *v1alpha1.NeutronNetwork {
	t.Helper()
	if err := i.write(t.Context(), targetOf(o)); err != nil {
		t.Fatal(err)
	}
	now := &v1alpha1.Network{}
	if err := i.Access.Get(t.Context(), client.ObjectKeyFromObject(o), now); err != nil {
		t.Fatal(err)
	}
	return now.Status.Neutron
}

// A Network says which network and subnets Neutron has of it: when they are made, when others are
// made in their place, and no longer when they are gone.
func TestNetworkStatus(t *testing.T) {
	server, store := neutronfake.Start(t), intent.NewStore()
	set := func(cidrs ...string) {
		t.Helper()
		if _, err := store.Update(func(tx *intent.Tx) error {
			tx.SetRouter(intent.Router{Name: "default", ID: 1})
			tx.SetNetwork(intent.Network{Name: "red", UID: "uid-red", Router: "default", Subnets: intenttest.Subnets(cidrs...)})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	cidrs := []string{"10.1.0.0/24", "fd00:1::/64"}
	set(cidrs...)
	object := redNetwork(cidrs...)
	i := newIdentities(Options{Log: slog.New(slog.DiscardHandler), Access: reconciletest.Access(object)}, func() {})
	i.note(object)
	r := &Runner{identities: i, balancers: balancers.New(balancers.Options{})}
	compared := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	c := cloud.New(cloud.Options{
		Access: cloud.Access{Endpoint: server.URL, Project: "p"}, Log: slog.New(slog.DiscardHandler),
		Want: func(*resource.Inventory) *resource.Set {
			r.compiled = store.State()
			return compile.Compile(r.compiled, compile.Options{})
		},
		Found: r.found,
		Report: func(problems []resource.Problem, err error) {
			if err == nil && len(problems) > 0 {
				err = fmt.Errorf("%v", problems)
			}
			if err == nil {
				i.allFound(nil)
			}
			select {
			case compared <- err:
			case <-ctx.Done():
			}
		},
	})
	running.Go(func() { c.Run(ctx) })
	const patience = time.Minute
	await := func() {
		t.Helper()
		select {
		case err := <-compared:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(patience):
			t.Fatal("nothing was compared")
		}
	}
	id := func(collection string, is func(map[string]any) bool) string {
		for _, o := range server.All(collection) {
			if is(o) {
				return o["id"].(string)
			}
		}
		return ""
	}
	want := func(cidrs ...string) *v1alpha1.NeutronNetwork {
		n := &v1alpha1.NeutronNetwork{ID: id("networks", func(o map[string]any) bool { return o["name"] == "net-red" })}
		for _, c := range cidrs {
			n.Subnets = append(n.Subnets, v1alpha1.NeutronSubnet{
				CIDR: c, ID: id("subnets", func(o map[string]any) bool { return o["cidr"] == c }),
			})
		}
		return n
	}
	await()
	first := written(t, i, object)
	if diff := cmp.Diff(want(cidrs...), first); diff != "" || first.ID == "" || first.Subnets[1].ID == "" {
		t.Fatalf("when they are made: %+v\n%s", first, diff)
	}

	for _, p := range server.All("routers") {
		for _, s := range first.Subnets {
			status, _, err := neutronfake.Call(t.Context(), http.MethodPut, fmt.Sprintf("%s/v2.0/routers/%s/remove_router_interface",
				server.URL, p["id"]), fmt.Sprintf(`{"subnet_id": %q}`, s.ID))
			if err != nil || status != http.StatusOK {
				t.Fatal(status, err)
			}
		}
	}
	if status, _, err := neutronfake.Call(t.Context(), http.MethodDelete, server.URL+"/v2.0/networks/"+first.ID, ""); err != nil ||
		status != http.StatusNoContent {
		t.Fatal(status, err)
	}
	c.Reread()
	await()
	second := written(t, i, object)
	if diff := cmp.Diff(want(cidrs...), second); diff != "" {
		t.Errorf("after it was deleted by hand: %s", diff)
	}
	if second.ID == first.ID || second.Subnets[0].ID == first.Subnets[0].ID || second.Subnets[0].ID == "" {
		t.Errorf("before %+v, after it was deleted by hand %+v", first, second)
	}

	if err := i.Access.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	object.Spec.Subnets = object.Spec.Subnets[:1]
	if err := i.Access.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	set(cidrs[:1]...)
	c.Changed()
	await()
	if diff := cmp.Diff(want(cidrs[:1]...), written(t, i, object)); diff != "" {
		t.Errorf("without a subnet: %s", diff)
	}
}

// What is written depends on the Network's UID, and after a start on whether all was compared.
func TestWriteNetwork(t *testing.T) {
	network := resource.Resource{Ref: compile.NetworkRef("red"), Object: compile.NetworkObject("red")}
	subnet := resource.Resource{
		Ref: compile.SubnetRef("red", netip.MustParsePrefix("10.1.0.0/24")), Object: network.Object,
	}
	type step = func(*identities)
	found := func(uid, id string) step {
		return func(i *identities) {
			i.foundNetwork(network, uid, resource.Actual{ID: id})
			i.foundNetwork(subnet, uid, resource.Actual{ID: id + "-s", Attributes: resource.Attributes{"cidr": "10.1.0.0/24"}})
		}
	}
	foundNetwork := func(i *identities) { i.foundNetwork(network, "uid-red", resource.Actual{ID: "n"}) }
	foundOther := func(i *identities) { i.foundNetwork(network, "uid-red", resource.Actual{ID: "m"}) }
	all := func(i *identities) { i.allFound(nil) }
	gone := func(uid string) step {
		return func(i *identities) {
			o := redNetwork()
			o.UID = types.UID(uid)
			i.forget(o)
		}
	}
	has := func(id string) *v1alpha1.NeutronNetwork {
		return &v1alpha1.NeutronNetwork{ID: id, Subnets: []v1alpha1.NeutronSubnet{{CIDR: "10.1.0.0/24", ID: id + "-s"}}}
	}
	for name, tc := range map[string]struct {
		says  *v1alpha1.NeutronNetwork
		steps []step
		want  *v1alpha1.NeutronNetwork
	}{
		"found":                                {nil, []step{found("uid-red", "n")}, has("n")},
		"found for another one of its name":    {nil, []step{found("uid-before", "n"), all}, nil},
		"nothing is known yet":                 {has("n"), nil, has("n")},
		"its subnets are not known yet":        {has("n"), []step{foundNetwork}, has("n")},
		"its subnets are gone":                 {has("n"), []step{foundNetwork, all}, &v1alpha1.NeutronNetwork{ID: "n"}},
		"it is gone since the last start":      {has("n"), []step{all}, nil},
		"it is gone":                           {has("n"), []step{found("uid-red", "n"), all, all}, nil},
		"it is there still":                    {has("n"), []step{found("uid-red", "n"), all, found("uid-red", "n"), all}, has("n")},
		"another one":                          {has("n"), []step{found("uid-red", "m")}, has("m")},
		"another one without its subnets":      {has("n"), []step{found("uid-red", "n"), all, foundOther}, &v1alpha1.NeutronNetwork{ID: "m"}},
		"one of its name is gone that is late": {nil, []step{found("uid-red", "n"), gone("uid-before")}, has("n")},
	} {
		t.Run(name, func(t *testing.T) {
			o := redNetwork("10.1.0.0/24")
			o.Status.Neutron = tc.says
			i := newIdentities(Options{Log: slog.New(slog.DiscardHandler), Access: reconciletest.Access(o)}, func() {})
			t.Cleanup(i.queue.ShutDown)
			i.note(o)
			for _, s := range tc.steps {
				s(i)
			}
			if diff := cmp.Diff(tc.want, written(t, i, o)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The project of a network is written once, and if it is another one than the cluster's.
func TestWriteProject(t *testing.T) {
	for name, tc := range map[string]struct{ project, says, want string }{
		"the cluster's": {"", "", ""},
		"another":       {"q", "", "q"},
		"it says one":   {"q", "r", "r"},
	} {
		t.Run(name, func(t *testing.T) {
			o := redNetwork()
			if tc.says != "" {
				o.Annotations = map[string]string{v1alpha1.KuryrProjectAnnotation: tc.says}
			}
			i := newIdentities(Options{Log: slog.New(slog.DiscardHandler), Access: reconciletest.Access(o)}, func() {})
			t.Cleanup(i.queue.ShutDown)
			i.note(o)
			i.foundNetwork(resource.Resource{
				Ref: compile.NetworkRef("red").In(tc.project), Object: compile.NetworkObject("red"),
			}, "uid-red", resource.Actual{ID: "n"})
			if err := i.write(t.Context(), targetOf(o)); err != nil {
				t.Fatal(err)
			}
			now := &v1alpha1.Network{}
			if err := i.Access.Get(t.Context(), client.ObjectKeyFromObject(o), now); err != nil {
				t.Fatal(err)
			}
			if got := now.Annotations[v1alpha1.KuryrProjectAnnotation]; got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
