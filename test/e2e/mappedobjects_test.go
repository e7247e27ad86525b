// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
)

// checkVPN looks at a namespace's vpn-instance: a Router with numbers of its own that has
// just these Networks and, since pods of all namespaces reach each other, exchanges routes
// with the Router default.
func checkVPN(ctx context.Context, t *testing.T, namespace string, networks ...string) {
	t.Helper()
	err := wait(ctx, vpn(namespace), func(r *v1alpha1.Router) error {
		shared := []string{v1alpha1.DefaultRouteTarget}
		switch {
		case r.Annotations[v1alpha1.AnnotationVPN] != namespace:
			return fmt.Errorf("annotations %v, want the vpn-instance %s", r.Annotations, namespace)
		case r.Status.ID <= 1 || r.Status.VNI <= 1 || r.Status.RouteDistinguisher == "":
			return fmt.Errorf("status %+v, want numbers", r.Status)
		case !slices.Equal(r.Status.Networks, networks):
			return fmt.Errorf("Networks %v, want %v", r.Status.Networks, networks)
		case !slices.Equal(r.Spec.ImportRouteTargets, shared) || !slices.Equal(r.Spec.ExportRouteTargets, shared):
			return fmt.Errorf("imports %v and exports %v, want %v", r.Spec.ImportRouteTargets, r.Spec.ExportRouteTargets, shared)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// checkELAN looks at the elan-instance of a namespace on a node.
func checkELAN(ctx context.Context, t *testing.T, namespace, node string) {
	t.Helper()
	name := world.nodeAddress(ctx, t, node, ipv4).String() + ":" + namespace
	err := wait(ctx, elan(namespace, node), func(n *v1alpha1.Network) error {
		switch {
		case n.Annotations[v1alpha1.AnnotationELAN] != name || n.Annotations[v1alpha1.AnnotationVPN] != namespace:
			return fmt.Errorf("annotations %v, want the elan-instance %s of the vpn-instance %s", n.Annotations, name, namespace)
		case n.Spec.Router != "ns-"+namespace || n.Spec.Node != node || n.Spec.IPAM != v1alpha1.PodCIDR:
			return fmt.Errorf("spec %+v", n.Spec)
		}
		return networkReady(n)
	})
	if err != nil {
		t.Error(err)
	}
}

// checkInterface looks at a pod's elan-interface and vpn-interface: a Port that is bound,
// with the pod's addresses.
func checkInterface(ctx context.Context, t *testing.T, key, node string) {
	t.Helper()
	namespace, _ := split(key)
	pod := world.pod(ctx, t, key)
	err := wait(ctx, named(&v1alpha1.Port{}, key+".eth0"), func(p *v1alpha1.Port) error {
		addresses, err := parseAddresses(p.Status.Addresses)
		switch {
		case err != nil:
			return err
		case p.Spec.Network != "ns-"+namespace+"-"+node || p.Status.Node != node || p.Status.Phase != v1alpha1.PortBound:
			return fmt.Errorf("spec %+v, status %+v", p.Spec, p.Status)
		case !slices.Equal(addresses, pod.addresses):
			return fmt.Errorf("addresses %v, want the pod's %v", addresses, pod.addresses)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// absent reports objects that are there.
func absent(ctx context.Context, t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := world.objects.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s is there: %v", o, o.GetName(), err)
		}
	}
}

// gone waits until objects are not there.
func gone(ctx context.Context, t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := waitGone(ctx, o); err != nil {
			t.Error(err)
		}
	}
}
