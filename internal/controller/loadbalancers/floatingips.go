// SPDX-License-Identifier: Apache-2.0

package loadbalancers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/translate"
)

// quotaInterval is when to try again what a namespace's quota has refused. Quotas are not watched.
const quotaInterval = 30 * time.Second

// isOfService leaves out FloatingIPs that were not made for a Service, unless they go: then a
// Service may have their name.
func isOfService() predicate.Predicate {
	return predicate.Or(reconcile.OnlyDelete(), predicate.NewPredicateFuncs(func(o client.Object) bool {
		return allocate.ServiceOf(o.(*v1alpha1.FloatingIP)) != nil
	}))
}

// provideFloatingIPs makes and deletes FloatingIPs for Services that name an external Network, and
// writes the status of these Services, of which the list has the newest version then. It returns
// what is wrong with Services, and when to try again, 0 for not by itself.
func (r *loadBalancers) provideFloatingIPs(ctx context.Context, services []*corev1.Service,
	networks []*v1alpha1.Network,
) ([]translate.ServiceProblem, time.Duration, error) {
	known, err := reconcile.All(ctx, r, &v1alpha1.FloatingIPList{})
	if err != nil {
		return nil, 0, err
	}
	all, err := r.floating.Merge(ctx, r.Access, reconcile.Pointers(known.Items))
	if err != nil {
		return nil, 0, err
	}
	wanted := allocate.AllocateServiceFloatingIPs(services, all, networks)
	// The status comes first: what it says is never an address that is given up.
	for i, svc := range services {
		addresses, ours := wanted.Services[client.ObjectKeyFromObject(svc)]
		if !ours {
			continue
		}
		if services[i], err = r.writeService(ctx, svc, addresses); err != nil {
			return nil, 0, err
		}
	}
	for _, f := range wanted.Delete {
		if err := r.Remove(ctx, f); err != nil {
			return nil, 0, fmt.Errorf("delete floatingip %s/%s: %w", f.Namespace, f.Name, err)
		}
	}
	problems, again := wanted.Problems, time.Duration(0)
	for _, f := range wanted.Create {
		err := r.Create(ctx, f)
		switch {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		case apierrors.IsForbidden(err):
			problems, again = append(problems, allocate.QuotaExceeded(f, err)), quotaInterval
		case err != nil:
			return nil, 0, fmt.Errorf("create floatingip %s/%s: %w", f.Namespace, f.Name, err)
		default:
			r.floating.Keep(f)
		}
	}
	return problems, again, nil
}
