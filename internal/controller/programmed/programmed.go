// SPDX-License-Identifier: Apache-2.0

// Package programmed writes the condition Programmed of FloatingIPs, Egresses and Ports, by what
// becomes of them in the system behind a backend of the controller, such as OVN. That of other
// objects follows from a Hub (package findings).
package programmed

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policystream/server"
)

// Setup adds to a manager what writes the conditions. The loops' names begin with the backend's.
func (v *Verdicts) Setup(
	m manager.Manager, backend string, access *reconcile.Access, monitor *heartbeat.Monitor,
) error {
	for _, p := range []*writer{
		{
			kind: intent.KindFloatingIP, object: func() client.Object { return &v1alpha1.FloatingIP{} },
			conditions: func(o client.Object) *[]metav1.Condition {
				return &o.(*v1alpha1.FloatingIP).Status.Conditions
			},
		},
		{
			kind: intent.KindEgress, object: func() client.Object { return &v1alpha1.Egress{} },
			conditions: func(o client.Object) *[]metav1.Condition { return &o.(*v1alpha1.Egress).Status.Conditions },
		},
		{
			kind: intent.KindPort, object: func() client.Object { return &v1alpha1.Port{} },
			conditions: func(o client.Object) *[]metav1.Condition { return &o.(*v1alpha1.Port).Status.Conditions },
		},
	} {
		p.Access, p.verdicts = access, v
		name := backend + "-" + strings.ToLower(string(p.kind))
		err := ctrl.NewControllerManagedBy(m).Named(name).WithOptions(reconcile.Queue(1)).
			Watches(p.object(), &handler.EnqueueRequestForObject{}, builder.WithPredicates(p.concerned())).
			WatchesRawSource(source.Func(p.follow)).
			Complete(reconcile.WithHeartbeat(monitor.Loop(name), p))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// writer writes the condition of one kind. Ports have it once the system has not done all of them:
// there are many, and that a Port is bound says as much.
type writer struct {
	*reconcile.Access
	kind       intent.Kind
	object     func() client.Object
	conditions func(client.Object) *[]metav1.Condition
	verdicts   *Verdicts
}

func (p *writer) has(o client.Object) bool {
	return meta.FindStatusCondition(*p.conditions(o), v1alpha1.ConditionProgrammed) != nil
}

// concerned lets through what may have the condition: without it a Port is of interest only after
// there is another verdict.
func (p *writer) concerned() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return p.kind != intent.KindPort || p.has(o) })
}

// follow asks for the objects with other verdicts.
func (p *writer) follow(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	kind := intent.PolicyKind(p.kind)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-p.verdicts.news[kind].wake:
			}
			for ref := range p.verdicts.take(kind) {
				queue.Add(reconcile.RequestFor(ref.Namespace, ref.Name)[0])
			}
		}
	}()
	return nil
}

// Reconcile is for one object.
func (p *writer) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	before := p.object()
	there, err := p.Find(ctx, request.Namespace, request.Name, before)
	if err != nil || !there || before.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, err
	}
	ref := intent.PolicyRef{Kind: intent.PolicyKind(p.kind), Namespace: request.Namespace, Name: request.Name}
	v, known := p.verdicts.of(ref)
	if !known || v == nil && !p.has(before) {
		return ctrl.Result{}, nil
	}
	now := before.DeepCopyObject().(client.Object)
	p.set(p.conditions(now), now.GetGeneration(), v)
	if equality.Semantic.DeepEqual(*p.conditions(before), *p.conditions(now)) {
		return ctrl.Result{}, nil
	}
	return reconcile.Requeue(p.WriteStatus(ctx, before, now))
}

// set makes the condition say what the verdict does.
func (p *writer) set(conditions *[]metav1.Condition, generation int64, v *verdict) {
	progress, pending := "", false
	var refused []server.NodeRefusal
	switch {
	case v == nil && p.kind != intent.KindPort:
		progress, pending = "nothing of it is in effect: see the condition Ready", true
	case v == nil:
	case v.unsupported != "":
		refused = []server.NodeRefusal{{Reason: v.unsupported}}
	case v.missing != "":
		progress, pending = v.missing, true
	}
	reconcile.SetProgrammed(conditions, generation, pending, progress, refused)
}
