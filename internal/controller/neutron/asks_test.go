// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/controller/reconcile/reconciletest"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
	"coelan.io/coelan/internal/wellknown"
)

const namedPort = "a28c7404-7495-4557-b7fc-3e293508dbc6"

// asking is a Port of the pod shop/web on the node n1 that asks for a port of Neutron.
func asking(change ...func(*v1alpha1.Port)) *v1alpha1.Port {
	p := &v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.eth0", UID: "port-1"},
		Spec: v1alpha1.PortSpec{
			Network: "red", Node: "n1", NeutronPort: namedPort, Pod: &v1alpha1.PortPod{Name: "web", UID: "uid-1", Interface: "eth0"},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func podOn(node, uid string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: node},
	}
}

// ownProject has all Networks in the cluster's own project, and no machines for nodes.
func ownProject(*v1alpha1.Port) (project string, trunk bool) { return "", false }

// A port has to prove that it is for the pod, which has to be on the node that asks.
func TestAskedClaims(t *testing.T) {
	claim := resource.Claim{
		Kind: resource.Port, ID: namedPort, By: "Port shop/web.eth0", Ref: compile.BorrowedRef("shop/web.eth0", namedPort),
		Asker: "port-1", Device: "uid-1", Has: map[string][]any{
			"device_id": {"uid-1"}, "device_owner": {"compute:kuryr", ""}, "binding:host_id": {"n1", ""},
			"network_id": {compile.NetworkRef("red")},
		},
	}
	static := podOn("n1", "uid-1")
	hash := strings.Repeat("0a", 16)
	static.Annotations = map[string]string{wellknown.AnnotationConfigHash: hash}
	for name, tc := range map[string]struct {
		pods   []client.Object
		port   *v1alpha1.Port
		want   func(*resource.Claim)
		trunk  bool
		refuse string
	}{
		"the pod's": {pods: []client.Object{podOn("n1", "uid-1")}, port: asking()},
		"to be taken": {
			pods: []client.Object{podOn("n1", "uid-1")}, port: asking(func(p *v1alpha1.Port) {
				p.Spec.MAC, p.Spec.Addresses = "fa:16:3e:00:00:07", []string{"10.0.0.7"}
			}),
			want: func(c *resource.Claim) { c.MAC, c.Addresses = "fa:16:3e:00:00:07", []string{"10.0.0.7"} },
		},
		"a static pod's, which its node knows by another UID": {
			pods: []client.Object{static}, port: asking(),
			want: func(c *resource.Claim) { c.Device, c.Has["device_id"] = hash, []any{hash} },
		},
		"for a trunk": {
			pods: []client.Object{podOn("n1", "uid-1")}, port: asking(), trunk: true, want: func(c *resource.Claim) {
				c.Trunk = "n1"
				delete(c.Has, "binding:host_id")
				c.Has["device_owner"] = append(c.Has["device_owner"], "trunk:subport")
			},
		},
		"asked by another node": {
			pods: []client.Object{podOn("n1", "uid-1")}, port: asking(func(p *v1alpha1.Port) { p.Spec.Node = "n2" }),
			refuse: `pod shop/web is on node "n1", and node "n2" asks`,
		},
		"asked in the name of no node": {
			pods: []client.Object{podOn("n1", "uid-1")}, port: asking(func(p *v1alpha1.Port) { p.Spec.Node = "" }),
			refuse: `and node "" asks`,
		},
		"an earlier pod's": {pods: []client.Object{podOn("n1", "uid-2")}, port: asking(), refuse: "no pod shop/web with the UID uid-1"},
		"no pod's":         {port: asking(), refuse: "pod shop/web cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIdentities(Options{Log: slog.New(slog.DiscardHandler), Access: reconciletest.Access(tc.pods...)}, func() {})
			i.note(tc.port)
			claims := i.claims(t.Context(), func(*v1alpha1.Port) (string, bool) { return "", tc.trunk })
			if len(claims) != 1 {
				t.Fatalf("%+v", claims)
			}
			if tc.refuse != "" {
				if !strings.Contains(claims[0].Refused, tc.refuse) {
					t.Errorf("%q, want %q", claims[0].Refused, tc.refuse)
				}
				return
			}
			want := claim
			want.Has = map[string][]any{}
			for k, v := range claim.Has {
				want.Has[k] = slices.Clone(v)
			}
			if tc.want != nil {
				tc.want(&want)
			}
			if diff := cmp.Diff(want, claims[0]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A port is asked for in the project that its network is in, and for the trunk of its node.
func TestAskedClaimsOfProject(t *testing.T) {
	store := intent.NewStore()
	if _, err := store.Update(func(tx *intent.Tx) error {
		tx.SetNetwork(intent.Network{Name: "red", Project: "q", Subnets: intenttest.Subnets("10.0.0.0/24")})
		tx.SetNode(intent.Node{Name: "n1", TrunkPort: "u1"})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	i := newIdentities(Options{Log: slog.New(slog.DiscardHandler), Access: reconciletest.Access(podOn("n1", "uid-1"))}, func() {})
	i.note(asking())
	for name, tc := range map[string]struct {
		options compile.Options
		project string
	}{
		"another":                 {compile.Options{Own: "p"}, "q"},
		"the cluster's own":       {compile.Options{Own: "q"}, ""},
		"where the network stays": {compile.Options{Own: "p", Placed: compile.Placed{"red": true}}, ""},
	} {
		r := &Runner{identities: i, compiled: store.State(), options: tc.options}
		claims := r.asks(t.Context())
		if len(claims) != 1 || claims[0].Ref.Project != tc.project || claims[0].Trunk != "n1" ||
			claims[0].Has["network_id"][0] != compile.NetworkRef("red").In(tc.project) {
			t.Errorf("%s: %+v", name, claims)
		}
	}
}

// A Port that asks gets its answer once, and another one of its name does not get it.
func TestAnswers(t *testing.T) {
	there := resource.Actual{ID: namedPort, Attributes: resource.Attributes{
		"mac_address": "fa:16:3e:00:00:07", "fixed_ips": []any{map[string]any{"ip_address": "10.0.0.7"}},
	}}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.Port)
		actual resource.Actual
		refuse string
		want   *v1alpha1.NeutronOffer
	}{
		"offered":     {actual: there, want: &v1alpha1.NeutronOffer{MAC: "fa:16:3e:00:00:07", Addresses: []string{"10.0.0.7"}}},
		"refused":     {actual: there, refuse: "device_id is other", want: &v1alpha1.NeutronOffer{Refused: "device_id is other"}},
		"a long text": {refuse: strings.Repeat("x", 2000), want: &v1alpha1.NeutronOffer{Refused: strings.Repeat("x", maxRefused)}},
		"no address": {
			actual: resource.Actual{ID: namedPort, Attributes: resource.Attributes{"mac_address": "fa:16:3e:00:00:07"}},
			want:   &v1alpha1.NeutronOffer{Refused: "it has no address"},
		},
		"it has its answer": {
			actual: there, change: func(p *v1alpha1.Port) { p.Status.Offered = &v1alpha1.NeutronOffer{Refused: "before"} },
			want: &v1alpha1.NeutronOffer{Refused: "before"},
		},
		"it is to be taken":        {actual: there, change: func(p *v1alpha1.Port) { p.Spec.MAC = "fa:16:3e:00:00:07" }},
		"another one of this name": {actual: there, change: func(p *v1alpha1.Port) { p.UID = "port-2" }},
	} {
		t.Run(name, func(t *testing.T) {
			before := asking()
			stored := asking()
			if tc.change != nil {
				tc.change(stored)
			}
			asked := 0
			i := newIdentities(Options{Log: slog.New(slog.DiscardHandler), Access: reconciletest.Access(podOn("n1", "uid-1"), stored)},
				func() { asked++ })
			if stored.UID == before.UID {
				before = stored
			}
			i.note(before)
			i.note(before)
			if asked != 1 {
				t.Errorf("asked %d times", asked)
			}
			i.answered(i.claims(t.Context(), ownProject)[0], tc.actual, tc.refuse)
			if err := i.write(t.Context(), target{intent.KindPort, "shop", "web.eth0"}); err != nil {
				t.Fatal(err)
			}
			got := &v1alpha1.Port{}
			if err := i.Access.Get(t.Context(), client.ObjectKeyFromObject(stored), got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Status.Offered); diff != "" {
				t.Error(diff)
			}
			i.forget(before)
			if claims := i.claims(t.Context(), ownProject); len(claims) > 0 || asked != 2 {
				t.Errorf("after it is gone: %v, asked %d times", claims, asked)
			}
		})
	}
}
