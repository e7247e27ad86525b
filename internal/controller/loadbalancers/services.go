// SPDX-License-Identifier: Apache-2.0

package loadbalancers

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/translate"
)

// services reports what is wrong with Services and their EndpointSlices for all nodes alike. Agents
// work the same out for themselves, and are silent about it. It runs once at a time.
type services struct {
	*reconcile.Access
	events  reconcile.EventDedup
	mapping config.Mapping
	// allowed are the external IPs that an administrator allows.
	allowed []netip.Prefix
	set     *translate.ServiceSet // nil before the first time
	// cidrs are prefixes of ClusterIPs.
	cidrs []netip.Prefix
	// refused is the set's view of external IPs, as of the last look.
	refused func(namespace string, ip netip.Addr) string
	// unreported is set until all problems that are known have been reported.
	unreported bool
}

func (r *services) setup(m manager.Manager, monitor *heartbeat.Monitor) error {
	everything := handler.EnqueueRequestsFromMapFunc(reconcile.Everything)
	return ctrl.NewControllerManagedBy(m).Named("services").WithOptions(reconcile.Queue(1)).
		Watches(&corev1.Service{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(serviceChanged())).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(requestOfSlice),
			builder.WithPredicates(sliceChanged())).
		Watches(&corev1.Node{}, everything, builder.WithPredicates(reconcile.NodeChanged())).
		Watches(&corev1.Namespace{}, everything, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&v1alpha1.Network{}, everything, builder.WithPredicates(reconcile.NetworkChanged())).
		Watches(&v1alpha1.Router{}, everything).
		Watches(&v1alpha1.LoadBalancerPool{}, everything, builder.WithPredicates(poolChanged())).
		Complete(reconcile.WithHeartbeat(monitor.Loop("services"), r))
}

// Reconcile is for one Service or EndpointSlice, or for all else that decides about Services.
func (r *services) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if r.set == nil {
		if err := r.start(ctx); err != nil {
			return ctrl.Result{}, err
		}
	} else if request.Namespace == "" {
		if err := r.look(ctx); err != nil {
			return ctrl.Result{}, err
		}
	} else if err := r.follow(ctx, request); err != nil {
		return ctrl.Result{}, err
	}
	if r.set.Changes().Problems {
		r.unreported = true
	}
	if !r.unreported {
		return ctrl.Result{}, nil
	}
	var problems []translate.ServiceProblem
	for _, p := range r.set.Problems() {
		if !p.Local {
			problems = append(problems, p)
		}
	}
	if err := r.events.Report(ctx, r.Access, problemsOf(problems)); err != nil {
		return ctrl.Result{}, err
	}
	r.unreported = false
	return ctrl.Result{}, nil
}

// start takes over all that memory has at once: of a part alone, less is wrong than of all.
func (r *services) start(ctx context.Context) error {
	known, err := reconcile.All(ctx, r, &corev1.ServiceList{})
	if err != nil {
		return err
	}
	endpoints, err := reconcile.All(ctx, r, &discoveryv1.EndpointSliceList{})
	if err != nil {
		return err
	}
	if r.cidrs, err = r.ServiceCIDRs(ctx); err != nil {
		return err
	}
	r.set, r.unreported = translate.NewServiceSet(translate.ServiceView{
		ExternalIPRefused: func(namespace string, ip netip.Addr) string { return r.refused(namespace, ip) },
	}), true
	if err := r.look(ctx); err != nil {
		r.set = nil
		return err
	}
	for i := range known.Items {
		r.set.SetService(&known.Items[i])
	}
	for i := range endpoints.Items {
		r.set.SetEndpointSlice(&endpoints.Items[i])
	}
	return nil
}

// look takes what decides about external IPs.
func (r *services) look(ctx context.Context) error {
	nodes, err := reconcile.All(ctx, r, &corev1.NodeList{})
	if err != nil {
		return err
	}
	networks, err := reconcile.All(ctx, r, &v1alpha1.NetworkList{})
	if err != nil {
		return err
	}
	routers, err := reconcile.All(ctx, r, &v1alpha1.RouterList{})
	if err != nil {
		return err
	}
	pools, err := reconcile.All(ctx, r, &v1alpha1.LoadBalancerPoolList{})
	if err != nil {
		return err
	}
	list, err := reconcile.All(ctx, r, &corev1.NamespaceList{})
	if err != nil {
		return err
	}
	sources := translate.ExternalIPSources{
		Allowed: r.allowed, Services: r.cidrs, Nodes: reconcile.Pointers(nodes.Items),
		Routers:  reconcile.Pointers(routers.Items),
		Networks: reconcile.Pointers(networks.Items), Pools: reconcile.Pointers(pools.Items),
	}
	external, namespaces, there := translate.NewExternalIPs(sources), map[string]*corev1.Namespace{}, map[string]bool{}
	for _, n := range reconcile.Pointers(list.Items) {
		namespaces[n.Name] = n
	}
	for _, o := range sources.Routers {
		there[o.Name] = true
	}
	selecting := slices.DeleteFunc(slices.Clone(sources.Networks), func(n *v1alpha1.Network) bool {
		return n.Spec.NamespaceSelector == nil
	})
	r.refused = func(namespace string, ip netip.Addr) string {
		router := translate.ServiceRouter(r.mapping, namespace, namespaces[namespace], "", selecting,
			func(name string) bool { return there[name] })
		if router == "" {
			return "" // the Service has no effect, either
		}
		return external.Refuse(router, ip)
	}
	r.set.ExternalIPsChanged()
	return nil
}

func (r *services) follow(ctx context.Context, request ctrl.Request) error {
	if name, is := strings.CutPrefix(request.Name, ofSlice); is {
		slice := &discoveryv1.EndpointSlice{}
		there, err := r.Find(ctx, request.Namespace, name, slice)
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
	there, err := r.Find(ctx, request.Namespace, request.Name, svc)
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

func requestOfSlice(_ context.Context, o client.Object) []ctrl.Request {
	return reconcile.RequestFor(o.GetNamespace(), ofSlice+o.GetName())
}
