// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
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

func noneTaken(resource.Ref) bool { return false }

// claimsOf are the claims of one comparison of a Neutron that has none of the ports yet.
func claimsOf(t *testing.T, i *identities) []resource.Claim {
	return i.claims(t.Context(), ownProject, noneTaken)
}

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
		"in a Port that is not the interface's": {
			pods: []client.Object{podOn("n1", "uid-1")}, port: asking(func(p *v1alpha1.Port) { p.Name = "web.eth1" }),
			refuse: "the Port of interface eth0 of pod web is web.eth0",
		},
		"an earlier pod's": {pods: []client.Object{podOn("n1", "uid-2")}, port: asking(), refuse: "no pod shop/web with the UID uid-1"},
		"no pod's":         {port: asking(), refuse: "pod shop/web cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIdentities(Options{Log: slog.New(slog.DiscardHandler), Access: reconciletest.Access(tc.pods...)}, func() {})
			i.note(tc.port)
			claims := i.claims(t.Context(), func(*v1alpha1.Port) (string, bool) { return "", tc.trunk }, noneTaken)
			if tc.refuse != "" {
				if refused := i.asks.answers[targetOf(tc.port).object()].Refused; !strings.Contains(refused, tc.refuse) || len(claims) > 0 {
					t.Errorf("%q, want %q, and %v", refused, tc.refuse, claims)
				}
				return
			}
			if len(claims) != 1 {
				t.Fatalf("%+v", claims)
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
		r := &Runner{identities: i, compiled: store.State(), options: tc.options, have: resource.NewInventory()}
		claims := r.asks(t.Context())
		if len(claims) != 1 || claims[0].Ref.Project != tc.project || claims[0].Trunk != "n1" ||
			claims[0].Has["network_id"][0] != compile.NetworkRef("red").In(tc.project) {
			t.Errorf("%s: %+v", name, claims)
		}
	}
}

// A Port with a MAC that intent does not have, such as one of another Port's addresses, is not
// asked for: it would be before every comparison.
func TestAskedIfWanted(t *testing.T) {
	i := newIdentities(Options{Log: slog.New(slog.DiscardHandler), Access: reconciletest.Access(podOn("n1", "uid-1"))}, func() {})
	i.note(asking(func(p *v1alpha1.Port) { p.Spec.MAC = "fa:16:3e:00:00:07" }))
	r := &Runner{identities: i, compiled: intent.NewStore().State(), have: resource.NewInventory(), set: resource.NewSet()}
	if claims := r.asks(t.Context()); len(claims) > 0 {
		t.Errorf("asked for without being wanted: %+v", claims)
	}
	r.set.Add(resource.Resource{Ref: compile.BorrowedRef("shop/web.eth0", namedPort)})
	if claims := r.asks(t.Context()); len(claims) != 1 {
		t.Errorf("asked for: %+v", claims)
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
			i.answered(i.claim(t.Context(), before, ownProject), tc.actual, tc.refuse)
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
			if claims := claimsOf(t, i); len(claims) > 0 || asked != 2 {
				t.Errorf("after it is gone: %v, asked %d times", claims, asked)
			}
		})
	}
}

// Many Ports of one tenant that ask are asked for one part after the other, and keep those of
// others waiting for no longer than one comparison. All come to have their answer.
func TestManyAsk(t *testing.T) {
	const many = 3000
	pods := []client.Object{podOn("n1", "uid-1")}
	other := podOn("n1", "uid-1")
	other.Namespace = "zoo"
	asked := 0
	i := newIdentities(Options{Log: slog.New(slog.DiscardHandler), Access: reconciletest.Access(append(pods, other)...)}, func() { asked++ })
	t.Cleanup(i.queue.ShutDown)
	for n := range many {
		i.note(asking(func(p *v1alpha1.Port) {
			p.Spec.Pod.Interface = fmt.Sprintf("eth%d", n)
			p.Name = "web." + p.Spec.Pod.Interface
		}))
	}
	claimsOf(t, i)
	i.note(asking(func(p *v1alpha1.Port) { p.Namespace = "zoo" }))
	answers := map[string]bool{}
	for comparisons := 1; len(answers) < many+1; comparisons++ {
		asked = 0
		claims := claimsOf(t, i)
		for _, c := range claims {
			i.answered(c, resource.Actual{}, "not yours")
			answers[c.By] = true
		}
		if len(claims) > maxAsks || comparisons > many/maxAsks+1 {
			t.Fatalf("comparison %d asks for %d Ports, and %d have their answer", comparisons, len(claims), len(answers))
		}
		if !answers["Port zoo/web.eth0"] {
			t.Errorf("the other tenant's Port has no answer")
		}
		if left := len(answers) < many+1; left != (asked > 0) {
			t.Fatalf("%d have their answer, and the next comparison is asked for: %v", len(answers), asked > 0)
		}
	}
}

// A Port with its answer, or with its port, is not asked for any more. One that is refused stays,
// and takes its turn with others.
func TestAskedBefore(t *testing.T) {
	i := newIdentities(Options{Log: slog.New(slog.DiscardHandler), Access: reconciletest.Access(podOn("n1", "uid-1"))}, func() {})
	t.Cleanup(i.queue.ShutDown)
	own := func(n int, mac string) *v1alpha1.Port {
		return asking(func(p *v1alpha1.Port) {
			p.Spec.Pod.Interface, p.Spec.MAC = fmt.Sprintf("eth%d", n), mac
			p.Name = "web." + p.Spec.Pod.Interface
		})
	}
	by := func(taken func(resource.Ref) bool) (names []string) {
		for _, c := range i.claims(t.Context(), ownProject, taken) {
			names = append(names, strings.TrimPrefix(c.By, "Port shop/web."))
		}
		return names
	}
	offered := own(0, "")
	offered.Status.Offered = &v1alpha1.NeutronOffer{Refused: "before"}
	i.note(offered)
	i.note(own(1, ""))
	i.note(own(2, "fa:16:3e:00:00:02"))
	i.note(own(3, "fa:16:3e:00:00:03"))
	taken := func(ref resource.Ref) bool { return ref == compile.BorrowedRef("shop/web.eth3", namedPort) }
	if got := by(taken); !slices.Equal(got, []string{"eth1", "eth2"}) {
		t.Errorf("asked for are %v", got)
	}
	i.answered(i.claim(t.Context(), own(1, ""), ownProject), resource.Actual{}, "not yours")
	if got := by(taken); !slices.Equal(got, []string{"eth2"}) {
		t.Errorf("after an answer asked for are %v", got)
	}
	if got := by(noneTaken); !slices.Equal(got, []string{"eth3", "eth2"}) {
		t.Errorf("after a port was lost asked for are %v", got)
	}
	// Of more than one comparison asks for, each is asked for in two.
	turns := map[string]bool{}
	for n := range maxAsks + 5 {
		i.note(own(10+n, "fa:16:3e:00:00:04"))
	}
	for range 2 {
		for _, name := range by(taken) {
			turns[name] = true
		}
	}
	if len(turns) != maxAsks+6 {
		t.Errorf("asked for are %v", turns)
	}
}
