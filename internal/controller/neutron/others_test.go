// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/controller/neutron/balancers"
	"coelan.io/coelan/internal/controller/reconcile/reconciletest"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
)

// others are what Neutron has, with a Runner that reports it.
type others struct {
	*testing.T
	*Runner
	objects []client.Object
}

// newOthers returns one of a cluster with a private Router, a shared one beside the Router default,
// a FloatingIP and a Node.
func newOthers(t *testing.T, change ...func(client.Object)) *others {
	t.Helper()
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u"}
	}
	objects := []client.Object{
		&v1alpha1.Router{ObjectMeta: meta("", "red")}, &v1alpha1.Router{ObjectMeta: meta("", "office")},
		&v1alpha1.Router{ObjectMeta: meta("", intent.DefaultRouterName)},
		&v1alpha1.FloatingIP{ObjectMeta: meta("shop", "web")}, &corev1.Node{ObjectMeta: meta("", "n1")},
	}
	for _, o := range objects {
		for _, c := range change {
			c(o)
		}
	}
	store := intent.NewStore()
	if _, err := store.Update(func(tx *intent.Tx) error {
		tx.SetRouter(intent.Router{Name: "red", ID: 2})
		tx.SetRouter(intent.Router{Name: "office", ID: 3, Shared: true})
		tx.SetRouter(intent.Router{Name: intent.DefaultRouterName, ID: 1})
		tx.SetNode(intent.Node{Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	access := reconciletest.Access(objects...)
	// With an API server, a patch of a Node's status can change annotations.
	access.Client = interceptor.NewClient(access.Client.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption,
		) error {
			if _, is := o.(*corev1.Node); is {
				return c.Patch(ctx, o, p)
			}
			return c.SubResource(sub).Patch(ctx, o, p, options...)
		},
	})
	options := Options{Log: slog.New(slog.DiscardHandler), Access: access, Monitor: heartbeat.New(heartbeat.Bound)}
	o := &others{T: t, objects: objects}
	o.Runner = &Runner{
		Options: options, identities: newIdentities(options, func() {}), balancers: balancers.New(balancers.Options{}),
		compiled: store.State(),
	}
	for _, object := range objects {
		o.identities.note(object)
	}
	t.Cleanup(o.identities.queue.ShutDown)
	return o
}

// compare has a comparison find what there is: resources by their Refs, with their ids.
func (o *others) compare(there map[resource.Ref]string) {
	have := resource.NewInventory()
	for ref, id := range there {
		a := resource.Actual{ID: id, Attributes: resource.Attributes{"floating_ip_address": "192.0.2.7"}}
		have.Put(ref, a)
		of := resource.Resource{Ref: ref, Fixed: resource.Attributes{"floating_ip_address": "192.0.2.7"}}
		switch ref {
		case compile.RouterRef("red"):
			of.Object = compile.RouterObject("red")
		case compile.RouterRef(intent.DefaultRouterName):
			of.Object = compile.RouterObject(intent.DefaultRouterName)
		case compile.FloatingIPRef("shop/web"):
			of.Object = compile.FloatingIPObject("shop/web")
		case compile.NodePortRef("n1"):
			of.Object = compile.NodeObject("n1")
		}
		o.found(of, a)
	}
	o.identities.allFound(nodePorts(o.compiled, have))
}

// says is what objects say, by their names, once all are written.
func (o *others) says() map[string]string {
	o.Helper()
	all := map[string]string{}
	for _, object := range o.objects {
		if err := o.identities.write(o.Context(), targetOf(object)); err != nil {
			o.Fatal(err)
		}
		if err := o.Access.Get(o.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			o.Fatal(err)
		}
		var id *v1alpha1.NeutronResource
		switch now := object.(type) {
		case *v1alpha1.Router:
			id = now.Status.Neutron
		case *v1alpha1.FloatingIP:
			id = now.Status.Neutron
		case *corev1.Node:
			if port := now.Annotations[v1alpha1.AnnotationNeutronPort]; port != "" {
				id = &v1alpha1.NeutronResource{ID: port}
			}
		}
		if id != nil {
			all[object.GetName()] = id.ID
		}
	}
	return all
}

func (o *others) want(when string, want map[string]string) {
	o.Helper()
	if diff := cmp.Diff(want, o.says()); diff != "" {
		o.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// Routers, FloatingIPs and Nodes say which router, floating IP and port they are, shared Routers
// that of the Router default, until Neutron has been compared and does not have it any more.
func TestOthersSayWhatTheyAre(t *testing.T) {
	o := newOthers(t)
	o.want("before Neutron is read", map[string]string{})
	o.compare(map[resource.Ref]string{
		compile.RouterRef("red"): "r1", compile.RouterRef(intent.DefaultRouterName): "r0",
		compile.FloatingIPRef("shop/web"): "f1", compile.NodePortRef("n1"): "p1",
	})
	o.want("all is there", map[string]string{"red": "r1", "office": "r0", "default": "r0", "web": "f1", "n1": "p1"})
	o.compare(map[resource.Ref]string{compile.RouterRef("red"): "r2", compile.RouterRef(intent.DefaultRouterName): "r0"})
	o.want("some is gone, and some is another one", map[string]string{"red": "r2", "office": "r0", "default": "r0"})
	o.compare(nil)
	o.want("nothing is there", map[string]string{})
}

// A controller that starts leaves what the one before has written until it has compared all.
func TestOthersAfterAStart(t *testing.T) {
	o := newOthers(t, func(object client.Object) {
		switch now := object.(type) {
		case *v1alpha1.Router:
			now.Status.Neutron = &v1alpha1.NeutronResource{ID: "before"}
		case *v1alpha1.FloatingIP:
			now.Status.Neutron = &v1alpha1.NeutronResource{ID: "before"}
		case *corev1.Node:
			now.Annotations = map[string]string{v1alpha1.AnnotationNeutronPort: "before"}
		}
	})
	o.want("before Neutron is read", map[string]string{"red": "before", "office": "before", "default": "before", "web": "before", "n1": "before"})
	o.compare(map[resource.Ref]string{compile.RouterRef("red"): "before"})
	o.want("when it is compared", map[string]string{"red": "before"})
}

// A floating IP with another address was of the last FloatingIP of that name.
func TestFloatingIPOfAnother(t *testing.T) {
	o := newOthers(t)
	o.found(resource.Resource{
		Ref: compile.FloatingIPRef("shop/web"), Object: compile.FloatingIPObject("shop/web"),
		Fixed: resource.Attributes{"floating_ip_address": "192.0.2.8"},
	}, resource.Actual{ID: "f1", Attributes: resource.Attributes{"floating_ip_address": "192.0.2.7"}})
	o.want("it is to be replaced", map[string]string{})
}
