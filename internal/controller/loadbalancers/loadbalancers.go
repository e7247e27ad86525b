// SPDX-License-Identifier: Apache-2.0

package loadbalancers

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
)

// loadBalancers looks at all Services, LoadBalancerPools, nodes, external Networks and namespaces
// at once, whenever one of them changes: writes addresses of pools into the status of Services of
// type LoadBalancer, and what has become of the pools into theirs. It runs once at a time.
type loadBalancers struct {
	*reconcile.Access
	events   reconcile.EventDedup
	interval time.Duration
	pools    reconcile.WriteCache[*v1alpha1.LoadBalancerPool]
	services reconcile.WriteCache[*corev1.Service]
	floating reconcile.WriteCache[*v1alpha1.FloatingIP]
	// started is set when what the leader before has written is known.
	started bool
	// counted is when the number of a pool's addresses in use was written last.
	counted map[types.UID]time.Time
}

func (r *loadBalancers) setup(m manager.Manager, monitor *heartbeat.Monitor) error {
	everything := handler.EnqueueRequestsFromMapFunc(reconcile.Everything)
	return ctrl.NewControllerManagedBy(m).Named("loadbalancers").WithOptions(reconcile.Queue(1)).
		Watches(&v1alpha1.LoadBalancerPool{}, everything, builder.WithPredicates(poolChanged())).
		Watches(&corev1.Service{}, everything, builder.WithPredicates(serviceChanged())).
		Watches(&v1alpha1.FloatingIP{}, everything, builder.WithPredicates(isOfService())).
		Watches(&corev1.Node{}, everything, builder.WithPredicates(reconcile.NodeChanged())).
		Watches(&v1alpha1.Network{}, everything, builder.WithPredicates(reconcile.NetworkChanged(), isExternal())).
		Watches(&corev1.Namespace{}, everything, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Complete(reconcile.WithHeartbeat(monitor.Loop("loadbalancers"), r))
}

// Reconcile handles all pools and Services at every request.
func (r *loadBalancers) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if err := r.start(ctx); err != nil {
		return ctrl.Result{}, err
	}
	pools, services, err := r.load(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	nodes, err := reconcile.All(ctx, r, &corev1.NodeList{})
	if err != nil {
		return ctrl.Result{}, err
	}
	namespaces, err := reconcile.All(ctx, r, &corev1.NamespaceList{})
	if err != nil {
		return ctrl.Result{}, err
	}
	networks, err := reconcile.All(ctx, r, &v1alpha1.NetworkList{})
	if err != nil {
		return ctrl.Result{}, err
	}
	// First, since a Service that names a Network no longer may get an address of a pool.
	problems, again, err := r.provideFloatingIPs(ctx, services, reconcile.Pointers(networks.Items))
	if err != nil {
		return reconcile.Requeue(err)
	}
	allocation := allocate.AllocateLoadBalancers(pools, services, reconcile.Pointers(nodes.Items),
		reconcile.Pointers(networks.Items), reconcile.Pointers(namespaces.Items))
	// Pools come first: an address that a Service has is always one that its pool has in effect.
	wait, err := r.writePools(ctx, pools, allocation)
	if err != nil {
		return reconcile.Requeue(err)
	}
	again = soonest(again, wait)
	err = reconcile.Each(ctx, services, func(ctx context.Context, svc *corev1.Service) error {
		addresses, ours := allocation.Services[client.ObjectKeyFromObject(svc)]
		if !ours {
			return nil
		}
		_, err := r.writeService(ctx, svc, addresses)
		return err
	})
	problems = append(problems, allocation.Problems...)
	if failed := r.events.Report(ctx, r.Access, problemsOf(problems)); err == nil {
		err = failed
	}
	if err != nil {
		return reconcile.Requeue(err)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// start reads the state from the API server once, because the cache of a new leader may lack the
// last writes of the previous one.
func (r *loadBalancers) start(ctx context.Context) error {
	if r.started {
		return nil
	}
	pools, services := &v1alpha1.LoadBalancerPoolList{}, &corev1.ServiceList{}
	if err := r.Live.List(ctx, pools); err != nil {
		return fmt.Errorf("list LoadBalancerPools: %w", err)
	}
	if err := r.Live.List(ctx, services); err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	for _, p := range reconcile.Pointers(pools.Items) {
		r.pools.Keep(p)
	}
	for _, svc := range reconcile.Pointers(services.Items) {
		r.services.Keep(svc)
	}
	r.counted = map[types.UID]time.Time{}
	r.started = true
	return nil
}

func (r *loadBalancers) load(ctx context.Context) ([]*v1alpha1.LoadBalancerPool, []*corev1.Service, error) {
	knownPools, err := reconcile.All(ctx, r, &v1alpha1.LoadBalancerPoolList{})
	if err != nil {
		return nil, nil, err
	}
	pools, err := r.pools.Merge(ctx, r.Access, reconcile.Pointers(knownPools.Items))
	if err != nil {
		return nil, nil, err
	}
	knownServices, err := reconcile.All(ctx, r, &corev1.ServiceList{})
	if err != nil {
		return nil, nil, err
	}
	services, err := r.services.Merge(ctx, r.Access, reconcile.Pointers(knownServices.Items))
	return pools, services, err
}

// writePools brings all pools to what was decided, and says when to write the rest
// if nothing else happens.
func (r *loadBalancers) writePools(ctx context.Context, pools []*v1alpha1.LoadBalancerPool,
	a allocate.LoadBalancers,
) (time.Duration, error) {
	var again time.Duration
	there := map[types.UID]time.Time{}
	for _, p := range pools {
		there[p.UID] = r.counted[p.UID]
	}
	r.counted = there
	var last error
	for _, p := range pools {
		wait, err := r.writePool(ctx, p, a.Pools[p.Name])
		if err != nil {
			last = err
		}
		again = soonest(again, wait)
	}
	return again, last
}

// soonest is the lesser of two times to wait, 0 being none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// writePool puts the finalizer on a pool before it hands out anything, and takes it off when it is
// being deleted and no Service has an address of it. A change of the number of addresses in use
// alone is not written often: all nodes watch pools.
func (r *loadBalancers) writePool(ctx context.Context, p *v1alpha1.LoadBalancerPool,
	v allocate.PoolVerdict,
) (time.Duration, error) {
	now := p.DeepCopy()
	if gone, err := r.Hold(ctx, now, v.Users); err != nil || gone {
		return 0, err
	}
	if now.ResourceVersion != p.ResourceVersion {
		r.pools.Keep(now)
	}
	before := now.DeepCopy()
	now.Status.Ranges, now.Status.Addresses = v.Ranges, v.Addresses
	if now.DeletionTimestamp == nil {
		reconcile.SetReady(&now.Status.Conditions, now.Generation, v.Verdict)
	} else {
		reconcile.SetBlocked(&now.Status.Conditions, now.Generation, v.Users)
	}
	if wait := r.interval - time.Since(r.counted[p.UID]); equality.Semantic.DeepEqual(before.Status, now.Status) &&
		wait > 0 {
		if now.Status.Assigned == int64(len(v.Users)) {
			return 0, nil
		}
		return wait, nil
	}
	now.Status.Assigned = int64(len(v.Users))
	if equality.Semantic.DeepEqual(before.Status, now.Status) {
		return 0, nil
	}
	if err := r.WriteStatus(ctx, before, now); err != nil {
		return 0, err
	}
	r.counted[p.UID] = time.Now()
	r.pools.Keep(now)
	r.Announce(now, v.Verdict, before.Status.Conditions, now.Status.Conditions)
	return 0, nil
}

// writeService makes the addresses those of a Service's status, unless the
// Service has changed meanwhile. It returns the Service as it is now.
func (r *loadBalancers) writeService(ctx context.Context, svc *corev1.Service,
	addresses []netip.Addr,
) (*corev1.Service, error) {
	ingress, added := ingressOf(svc, addresses)
	if equality.Semantic.DeepEqual(ingress, svc.Status.LoadBalancer.Ingress) {
		return svc, nil
	}
	now := svc.DeepCopy()
	now.Status.LoadBalancer.Ingress = ingress
	if err := r.Status().Patch(ctx, now,
		client.MergeFromWithOptions(svc, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("status of service %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	r.services.Keep(now)
	if len(added) > 0 {
		r.Events.Event(now, corev1.EventTypeNormal, v1alpha1.ReasonAddressAssigned, strings.Join(added, " and "))
	}
	return now, nil
}

// ingressOf is how a status says that these are the addresses, and what a Service
// did not have before.
func ingressOf(svc *corev1.Service, addresses []netip.Addr) (list []corev1.LoadBalancerIngress, added []string) {
	had := map[string]corev1.LoadBalancerIngress{}
	for _, i := range svc.Status.LoadBalancer.Ingress {
		had[i.IP] = i
	}
	vip := corev1.LoadBalancerIPModeVIP
	for _, a := range addresses {
		text := a.String()
		if _, has := had[text]; !has {
			added = append(added, text)
		}
		list = append(list, corev1.LoadBalancerIngress{IP: text, IPMode: &vip})
	}
	return list, added
}
