// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// loadBalancers looks at all Services, LoadBalancerPools and nodes at once, whenever one of them changes: writes addresses of
// pools into the status of Services of type LoadBalancer, and what has become of the pools into theirs. It runs once at a
// time.
type loadBalancers struct {
	*access
	told     told
	interval time.Duration
	pools    memory[*v1alpha1.LoadBalancerPool]
	services memory[*corev1.Service]
	// started is set when what the leader before has written is known.
	started bool
	// counted is when the number of a pool's addresses in use was written last.
	counted map[types.UID]time.Time
}

// Reconcile is for everything, whatever the request.
func (r *loadBalancers) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if err := r.start(ctx); err != nil {
		return reconcile.Result{}, err
	}
	pools, services, nodes, err := r.load(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	allocation := translate.AllocateLoadBalancers(pools, services, nodes)
	// Pools come first: an address that a Service has is one that its pool has in effect, whatever happens in between.
	again, err := r.writePools(ctx, pools, allocation)
	if err != nil {
		return retry(err)
	}
	err = each(ctx, services, func(ctx context.Context, svc *corev1.Service) error {
		addresses, ours := allocation.Services[client.ObjectKeyFromObject(svc)]
		if !ours {
			return nil
		}
		return r.writeService(ctx, svc, addresses)
	})
	if told := r.told.tell(ctx, r.access, newsOfServices(allocation.Problems)); err == nil {
		err = told
	}
	if err != nil {
		return retry(err)
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// start reads what there is from the API server once, because the memory of one who has just become leader may lack the
// last writes of the one before.
func (r *loadBalancers) start(ctx context.Context) error {
	if r.started {
		return nil
	}
	pools, services := &v1alpha1.LoadBalancerPoolList{}, &corev1.ServiceList{}
	if err := r.live.List(ctx, pools); err != nil {
		return fmt.Errorf("list LoadBalancerPools: %w", err)
	}
	if err := r.live.List(ctx, services); err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	for _, p := range pointers(pools.Items) {
		r.pools.keep(p)
	}
	for _, svc := range pointers(services.Items) {
		r.services.keep(svc)
	}
	r.counted = map[types.UID]time.Time{}
	r.started = true
	return nil
}

func (r *loadBalancers) load(ctx context.Context) ([]*v1alpha1.LoadBalancerPool, []*corev1.Service, []*corev1.Node, error) {
	nodes, err := all(ctx, r, &corev1.NodeList{})
	if err != nil {
		return nil, nil, nil, err
	}
	knownPools, err := all(ctx, r, &v1alpha1.LoadBalancerPoolList{})
	if err != nil {
		return nil, nil, nil, err
	}
	pools, err := r.pools.merge(ctx, r.access, pointers(knownPools.Items))
	if err != nil {
		return nil, nil, nil, err
	}
	knownServices, err := all(ctx, r, &corev1.ServiceList{})
	if err != nil {
		return nil, nil, nil, err
	}
	services, err := r.services.merge(ctx, r.access, pointers(knownServices.Items))
	return pools, services, pointers(nodes.Items), err
}

// writePools brings all pools to what was decided, and says when to write the rest if nothing else happens.
func (r *loadBalancers) writePools(ctx context.Context, pools []*v1alpha1.LoadBalancerPool, a translate.LoadBalancers) (time.Duration, error) {
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
		if wait > 0 && (again == 0 || wait < again) {
			again = wait
		}
	}
	return again, last
}

// writePool puts the finalizer on a pool before it hands out anything, and takes it off when it is being deleted and nobody has an
// address of it. That only the number of addresses in use has changed, it does not write often: all nodes watch pools.
func (r *loadBalancers) writePool(ctx context.Context, p *v1alpha1.LoadBalancerPool, v translate.PoolVerdict) (time.Duration, error) {
	now := p.DeepCopy()
	if gone, err := r.hold(ctx, now, v.Users); err != nil || gone {
		return 0, err
	}
	if now.ResourceVersion != p.ResourceVersion {
		r.pools.keep(now)
	}
	before := now.DeepCopy()
	now.Status.Ranges, now.Status.Addresses = v.Ranges, v.Addresses
	if now.DeletionTimestamp == nil {
		setReady(&now.Status.Conditions, now.Generation, v.Verdict)
	} else {
		setBlocked(&now.Status.Conditions, now.Generation, v.Users)
	}
	if wait := r.interval - time.Since(r.counted[p.UID]); equality.Semantic.DeepEqual(before.Status, now.Status) && wait > 0 {
		if now.Status.Assigned == int64(len(v.Users)) {
			return 0, nil
		}
		return wait, nil
	}
	now.Status.Assigned = int64(len(v.Users))
	if equality.Semantic.DeepEqual(before.Status, now.Status) {
		return 0, nil
	}
	if err := r.writeStatus(ctx, before, now); err != nil {
		return 0, err
	}
	r.counted[p.UID] = time.Now()
	r.pools.keep(now)
	r.announce(now, v.Verdict, before.Status.Conditions, now.Status.Conditions)
	return 0, nil
}

// writeService makes the addresses those of a Service's status, unless somebody else has changed the Service meanwhile.
func (r *loadBalancers) writeService(ctx context.Context, svc *corev1.Service, addresses []netip.Addr) error {
	ingress, added := ingressOf(svc, addresses)
	if equality.Semantic.DeepEqual(ingress, svc.Status.LoadBalancer.Ingress) {
		return nil
	}
	now := svc.DeepCopy()
	now.Status.LoadBalancer.Ingress = ingress
	if err := r.Status().Patch(ctx, now, client.MergeFromWithOptions(svc, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("status of service %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	r.services.keep(now)
	if len(added) > 0 {
		r.events.Event(now, corev1.EventTypeNormal, v1alpha1.ReasonAddressAssigned, strings.Join(added, " and "))
	}
	return nil
}

// ingressOf is how a status says that these are the addresses, and what a Service did not have before.
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
