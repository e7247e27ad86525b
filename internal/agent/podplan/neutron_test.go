// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/podnets"
)

// A pod has the addresses and the MAC of the port that its runtime names, if the controller says
// that it may; and then nothing that the pod's annotations say can be in their place.
func TestFromNeutron(t *testing.T) {
	const id = "a28c7404-7495-4557-b7fc-3e293508dbc6"
	mac := intent.MAC{0xfa, 0x16, 0x3e, 1, 2, 3}
	offer := &v1alpha1.NeutronOffer{MAC: mac.String(), Addresses: []string{"10.2.0.77"}}
	for name, tc := range map[string]struct {
		namespace   string
		annotations map[string]string
		change      func(*world, *cni.Request)
		offer       *v1alpha1.NeutronOffer
		uid         types.UID // of the Port that has the offer
		err         string
		notAsked    bool
	}{
		"offered": {offer: offer},
		"offered, and the address asked for": {
			offer: offer, change: func(_ *world, ask *cni.Request) { ask.Addresses = []netip.Addr{netip.MustParseAddr("10.2.0.77")} },
		},
		"offered, and another address asked for": {
			offer: offer, change: func(_ *world, ask *cni.Request) { ask.Addresses = []netip.Addr{netip.MustParseAddr("10.2.0.78")} },
			err: "its addresses are [10.2.0.77], and 10.2.0.78 is asked for",
		},
		"offered, and another MAC asked for": {
			offer: offer, change: func(_ *world, ask *cni.Request) { ask.MAC = &intent.MAC{2, 0, 0, 0, 0, 1} },
			err: "its MAC is fa:16:3e:01:02:03, and 02:00:00:00:00:01 is asked for",
		},
		"an annotation asks for another address": {
			offer: offer, annotations: map[string]string{
				podnets.AnnotationNFNNetwork: `{"type":"ovn4nfv","interface":[{"name":"default","ipAddress":"10.2.0.78"}]}`,
			},
			err: "its addresses are [10.2.0.77], and 10.2.0.78 is asked for",
		},
		"refused": {
			offer: &v1alpha1.NeutronOffer{Refused: "device_id is other, and not uid-p"}, err: "device_id is other, and not uid-p",
		},
		"the answer to an earlier pod": {offer: offer, uid: "uid-before", err: "is coelan-controller running"},
		"no answer":                    {err: "is coelan-controller running"},
		"not asked": {
			offer: offer, change: func(w *world, _ *cni.Request) { w.ports.askErr = errors.New("the API server is away") },
			err: "the API server is away",
		},
		"a MAC that is none": {offer: &v1alpha1.NeutronOffer{MAC: "x", Addresses: []string{"10.2.0.77"}}, err: "MAC of the port"},
		"an address that is none": {
			offer: &v1alpha1.NeutronOffer{MAC: mac.String(), Addresses: []string{"x"}}, err: "address of the port",
		},
		"another backend": {
			offer: offer, change: func(w *world, _ *cni.Request) { w.Neutron = false },
			err: "with the backend neutron alone", notAsked: true,
		},
		"the Network of podCIDRs": {
			offer: offer, namespace: "shop", err: "make a Network with subnets of its own", notAsked: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, config.MapFlat)
				w.Neutron = true
				namespace, uid := "red", types.UID("uid-port")
				if tc.namespace != "" {
					namespace = tc.namespace
				}
				if tc.uid != "" {
					uid = tc.uid
				}
				ask := w.pod(namespace, "p", tc.annotations)
				ask.NeutronPort = id
				if tc.change != nil {
					tc.change(w, &ask)
				}
				w.ports.answer = func(at attachment.Attachment) {
					w.api.Add(&v1alpha1.Port{
						ObjectMeta: metav1.ObjectMeta{Namespace: at.PodNamespace, Name: at.PortName, UID: uid},
						Status:     v1alpha1.PortStatus{Offered: tc.offer},
					})
				}
				got, err := w.Plan(t.Context(), ask)
				if asked := len(w.ports.asked) > 0; asked == tc.notAsked {
					t.Errorf("asked: %v", w.ports.asked)
				}
				if tc.err != "" {
					var plan *cni.PlanError
					if !errors.As(err, &plan) || !strings.Contains(err.Error(), tc.err) {
						t.Errorf("%v, want %q", err, tc.err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				want := with(planned("eth0", "red", 3), func(i *attachment.Plan) {
					i.Primary, i.DefaultRoute, i.MTU, i.NodeAddresses, i.Subnets = true, true, 1300, true, subnet("10.2.0.0/24")
					i.NeutronPort, i.MAC, i.Addresses = id, &mac, []netip.Addr{netip.MustParseAddr("10.2.0.77")}
				})
				if diff := cmp.Diff([]attachment.Plan{want}, got, values); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff([]string{"red/p.eth0 " + id}, w.ports.asked); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// No annotation of a pod names a port of Neutron.
func TestAnnotationsNameNoPort(t *testing.T) {
	w := newWorld(t, config.MapFlat)
	w.Neutron = true
	ask := w.pod("red", "p", map[string]string{
		podnets.AnnotationNFNNetwork: `{"type":"ovn4nfv","interface":[{"name":"default","PORT_UUID":"a28c7404-7495-4557-b7fc-3e293508dbc6",` +
			`"neutronPort":"a28c7404-7495-4557-b7fc-3e293508dbc6"}]}`,
	})
	got, err := w.Plan(t.Context(), ask)
	if len(w.ports.asked) > 0 || err == nil && got[0].NeutronPort != "" {
		t.Errorf("asked %v, planned %+v", w.ports.asked, got)
	}
}
