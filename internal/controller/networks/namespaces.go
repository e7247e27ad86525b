// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/translate"
)

// namespaces makes and removes the Router and the Networks of each namespace, as the mapping by
// namespace wants them. In the flat mapping it removes what another mapping has left.
type namespaces struct {
	*reconcile.Access
	mapping config.Mapping
	subnets *subnets
}

func (r *namespaces) setup(m manager.Manager, monitor *heartbeat.Monitor) error {
	w := watches{r.Access}
	return ctrl.NewControllerManagedBy(m).Named("namespaces").WithOptions(reconcile.Queue(reconcile.Workers)).
		Watches(&corev1.Namespace{}, &handler.EnqueueRequestForObject{},
			builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(namespaceOf), builder.WithPredicates(podChanged())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(w.namespacesOnNode),
			builder.WithPredicates(reconcile.NodeChanged())).
		Watches(&v1alpha1.Network{}, handler.EnqueueRequestsFromMapFunc(w.namespacesOfNetwork),
			builder.WithPredicates(reconcile.NetworkChanged())).
		Watches(&v1alpha1.Network{}, handler.EnqueueRequestsFromMapFunc(r.subnets.waiting),
			builder.WithPredicates(reconcile.OnlyDelete())).
		Watches(&v1alpha1.Router{}, handler.EnqueueRequestsFromMapFunc(namespaceMadeFor)).
		Complete(reconcile.WithHeartbeat(monitor.Loop("namespaces"), r))
}

// Reconcile is for the namespace of that name, whether it is there or not.
func (r *namespaces) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	name := request.Name
	r.subnets.forget(name)
	list, err := reconcile.All(ctx, r, &corev1.PodList{}, client.InNamespace(name))
	if err != nil {
		return ctrl.Result{}, err
	}
	pods := reconcile.Pointers(list.Items)
	namespace, routers, networks, err := r.desired(ctx, name, pods)
	if err != nil {
		return ctrl.Result{}, err
	}
	thereRouters, err := reconcile.All(ctx, r, &v1alpha1.RouterList{},
		client.MatchingFields{reconcile.ByNamespace: name})
	if err != nil {
		return ctrl.Result{}, err
	}
	thereNetworks, err := reconcile.All(ctx, r, &v1alpha1.NetworkList{},
		client.MatchingFields{reconcile.ByNamespace: name})
	if err != nil {
		return ctrl.Result{}, err
	}
	// A Network needs its Router, so that one comes first and goes last.
	if err := r.ensure(ctx, namespace, objects(routers), objects(reconcile.Pointers(thereRouters.Items))); err != nil {
		return reconcile.Requeue(err)
	}
	if err := r.ensure(ctx, namespace, objects(networks),
		objects(reconcile.Pointers(thereNetworks.Items))); err != nil {
		return reconcile.Requeue(err)
	}
	if err := reconcile.Each(ctx, unwanted(networks, reconcile.Pointers(thereNetworks.Items)),
		func(ctx context.Context, n *v1alpha1.Network) error {
			return r.removeNetwork(ctx, n, pods)
		}); err != nil {
		return reconcile.Requeue(err)
	}
	if err := reconcile.Each(ctx, unwanted(routers, reconcile.Pointers(thereRouters.Items)),
		r.removeRouter); err != nil {
		return reconcile.Requeue(err)
	}
	return r.subnets.again(name), nil
}

// desired is what the namespace is to have: nothing if it is not there.
func (r *namespaces) desired(ctx context.Context, name string,
	pods []*corev1.Pod) (*corev1.Namespace, []*v1alpha1.Router,
	[]*v1alpha1.Network, error,
) {
	namespace := &corev1.Namespace{}
	there, err := r.Find(ctx, "", name, namespace)
	if err != nil || !there || r.mapping != config.MapNamespace {
		return namespace, nil, nil, err
	}
	nodes, err := r.nodesOf(ctx, pods)
	if err != nil {
		return namespace, nil, nil, err
	}
	primaries, err := reconcile.All(ctx, r, &v1alpha1.NetworkList{}, client.MatchingFields{reconcile.Selecting: "true"})
	if err != nil {
		return namespace, nil, nil, err
	}
	routers, networks := allocate.NamespaceObjects(pods, []*corev1.Namespace{namespace}, nodes,
		reconcile.Pointers(primaries.Items), len(r.subnets.pools) > 0)
	return namespace, routers, networks, nil
}

// nodesOf are the nodes of pods that are there.
func (r *namespaces) nodesOf(ctx context.Context, pods []*corev1.Pod) ([]*corev1.Node, error) {
	asked := map[string]bool{"": true}
	var nodes []*corev1.Node
	for _, p := range pods {
		if asked[p.Spec.NodeName] {
			continue
		}
		asked[p.Spec.NodeName] = true
		node := &corev1.Node{}
		there, err := r.Find(ctx, "", p.Spec.NodeName, node)
		if err != nil {
			return nil, err
		}
		if there {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

// objects are a list's elements without their type.
func objects[T client.Object](list []T) []client.Object {
	all := make([]client.Object, len(list))
	for i, o := range list {
		all[i] = o
	}
	return all
}

// ensure makes what is missing and corrects what is different.
func (r *namespaces) ensure(ctx context.Context, namespace *corev1.Namespace, desired, there []client.Object) error {
	byName := map[string]client.Object{}
	for _, o := range there {
		byName[o.GetName()] = o
	}
	return reconcile.Each(ctx, desired, func(ctx context.Context, want client.Object) error {
		has, known := byName[want.GetName()]
		if known {
			return r.correct(ctx, has, want)
		}
		taken, err := r.taken(ctx, namespace, want)
		if err != nil || taken {
			return err
		}
		if n, ok := want.(*v1alpha1.Network); ok && n.Spec.IPAM == v1alpha1.Blocks {
			return r.subnets.create(ctx, namespace, n)
		}
		return create(ctx, r.Access, want)
	})
}

// create makes an object of a namespace.
func create(ctx context.Context, a *reconcile.Access, want client.Object) error {
	if err := a.Create(ctx, want); err != nil {
		return fmt.Errorf("create %s: %w", want.GetName(), err)
	}
	return nil
}

// taken reports whether the name is that of an object that the controller has not made, which stays
// as it is.
func (r *namespaces) taken(ctx context.Context, namespace *corev1.Namespace, want client.Object) (bool, error) {
	has := want.DeepCopyObject().(client.Object)
	there, err := r.Find(ctx, "", want.GetName(), has)
	if err != nil || !there || translate.MadeFor(has) == namespace.Name {
		return false, err
	}
	r.Events.Eventf(namespace, corev1.EventTypeWarning, reasonNameTaken,
		"%s was not made by Coelan, but has the name of what this namespace needs: pods have no network until it is gone", want.GetName())
	return true, nil
}

// reasonNameTaken is of the Event about an object that has the name of one
// that the controller makes.
const reasonNameTaken = "NameTaken"

// correct writes what may differ: what a Router imports and exports, annotations, and the
// finalizer. Everything else cannot be changed.
func (r *namespaces) correct(ctx context.Context, has, want client.Object) error {
	now := has.DeepCopyObject().(client.Object)
	annotations := maps.Clone(now.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(annotations, want.GetAnnotations())
	now.SetAnnotations(annotations)
	if now.GetDeletionTimestamp() == nil {
		controllerutil.AddFinalizer(now, v1alpha1.FinalizerInUse)
	}
	if router, ok := now.(*v1alpha1.Router); ok {
		router.Spec.ImportRouteTargets = want.(*v1alpha1.Router).Spec.ImportRouteTargets
		router.Spec.ExportRouteTargets = want.(*v1alpha1.Router).Spec.ExportRouteTargets
	}
	if equality.Semantic.DeepEqual(has, now) {
		return nil
	}
	if err := r.Patch(ctx, now, client.MergeFromWithOptions(has, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("change %s: %w", want.GetName(), err)
	}
	return nil
}

// unwanted is what is there, is not to be, and is not being deleted yet.
func unwanted[T client.Object](desired, there []T) []T {
	var list []T
	for _, o := range there {
		if !named(desired, o.GetName()) && o.GetDeletionTimestamp() == nil {
			list = append(list, o)
		}
	}
	return list
}

// removeNetwork deletes a Network at once if no pod is left that may be on it: only Ports of pods
// that are gone may name it. Otherwise, as when another Network selects the namespace now, its
// finalizer waits for the last of them. So it does of one with subnets of its own, of which nodes
// have blocks: those are free for the next Network when they are given back.
func (r *namespaces) removeNetwork(ctx context.Context, n *v1alpha1.Network, pods []*corev1.Pod) error {
	if n.Spec.IPAM != v1alpha1.PodCIDR {
		return r.Remove(ctx, n)
	}
	for _, p := range pods {
		if p.Spec.NodeName != n.Spec.Node || !translate.OnPodNetwork(p) {
			continue
		}
		if there, err := r.Find(ctx, "", n.Spec.Node, &corev1.Node{}); err != nil {
			return err
		} else if there {
			return r.Remove(ctx, n)
		}
	}
	return r.removeNow(ctx, n)
}

// removeRouter deletes a Router that no Network is in or wants to be in; when the last one goes,
// this is asked again. So no Router of a namespace waits for its deletion while the namespace's
// next pod wants it.
func (r *namespaces) removeRouter(ctx context.Context, o *v1alpha1.Router) error {
	networks, err := reconcile.All(ctx, r, &v1alpha1.NetworkList{})
	if err != nil {
		return err
	}
	for _, n := range reconcile.Pointers(networks.Items) {
		if translate.EffectiveRouter(n) == o.Name {
			return nil
		}
	}
	return r.removeNow(ctx, o)
}

// removeNow takes the finalizer off an object and deletes it, if nothing has changed it since it
// was looked at. It has no time in which it is being deleted, and wanted again.
func (r *namespaces) removeNow(ctx context.Context, o client.Object) error {
	now := o.DeepCopyObject().(client.Object)
	if controllerutil.RemoveFinalizer(now, v1alpha1.FinalizerInUse) {
		if err := r.Patch(ctx, now, client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("finalizer of %s: %w", o.GetName(), err)
		}
	}
	uid, version := now.GetUID(), now.GetResourceVersion()
	if err := r.Delete(ctx, now, client.Preconditions{UID: &uid, ResourceVersion: &version}); err != nil {
		return fmt.Errorf("delete %s: %w", o.GetName(), err)
	}
	return nil
}
