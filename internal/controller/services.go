// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"coelan.io/coelan/internal/translate"
)

// services tells of what is wrong with Services and their EndpointSlices for all nodes alike. Agents work the same out for
// themselves, and are silent about it. It runs once at a time.
type services struct {
	*access
	told told
	set  *translate.ServiceSet // nil before the first time
	// untold is set until all problems that are known have been told of.
	untold bool
}

// Reconcile is for one Service or EndpointSlice.
func (r *services) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if r.set == nil {
		if err := r.start(ctx); err != nil {
			return reconcile.Result{}, err
		}
	} else if err := r.follow(ctx, request); err != nil {
		return reconcile.Result{}, err
	}
	if r.set.Changes().Problems {
		r.untold = true
	}
	if !r.untold {
		return reconcile.Result{}, nil
	}
	var problems []translate.ServiceProblem
	for _, p := range r.set.Problems() {
		if !p.Local {
			problems = append(problems, p)
		}
	}
	if err := r.told.tell(ctx, r.access, newsOfServices(problems)); err != nil {
		return reconcile.Result{}, err
	}
	r.untold = false
	return reconcile.Result{}, nil
}

// start takes over all that memory has at once: of a part alone, less is wrong than of all.
func (r *services) start(ctx context.Context) error {
	known, err := all(ctx, r, &corev1.ServiceList{})
	if err != nil {
		return err
	}
	endpoints, err := all(ctx, r, &discoveryv1.EndpointSliceList{})
	if err != nil {
		return err
	}
	r.set, r.untold = translate.NewServiceSet(translate.ServiceView{}), true
	for i := range known.Items {
		r.set.SetService(&known.Items[i])
	}
	for i := range endpoints.Items {
		r.set.SetEndpointSlice(&endpoints.Items[i])
	}
	return nil
}

func (r *services) follow(ctx context.Context, request reconcile.Request) error {
	if name, is := strings.CutPrefix(request.Name, ofSlice); is {
		slice := &discoveryv1.EndpointSlice{}
		there, err := r.find(ctx, request.Namespace, name, slice)
		if err != nil {
			return err
		}
		if !there {
			r.set.DeleteEndpointSlice(request.Namespace, name)
			return nil
		}
		r.set.SetEndpointSlice(slice)
		return nil
	}
	svc := &corev1.Service{}
	there, err := r.find(ctx, request.Namespace, request.Name, svc)
	if err != nil {
		return err
	}
	if !there {
		r.set.DeleteService(request.Namespace, request.Name)
		return nil
	}
	r.set.SetService(svc)
	return nil
}

// ofSlice is before an EndpointSlice's name, so that it is no Service's.
const ofSlice = "endpointslice/"

func requestOfSlice(_ context.Context, o client.Object) []reconcile.Request {
	return request(o.GetNamespace(), ofSlice+o.GetName())
}
