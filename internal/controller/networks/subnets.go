// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/intent"
)

// Reasons of Events about namespaces that get no Network.
const (
	reasonPoolUsedUp     = "SubnetPoolUsedUp"
	reasonPoolUnsuitable = "SubnetPoolUnsuitable"
	reasonPoolUnknown    = "SubnetPoolUnknown"
)

// poolRetry is how often a namespace without a subnet is looked at beside each time that a Network
// goes: podCIDRs and prefixes of ClusterIPs go, too.
const poolRetry = time.Minute

// unknownRetry is how often it is asked again what is taken elsewhere.
const unknownRetry = 10 * time.Second

// subnets makes Networks of namespaces with subnets of pools. What is taken is in the objects
// alone.
type subnets struct {
	*reconcile.Access
	pools        []intent.SubnetPool
	elsewhere    func(context.Context) ([]netip.Prefix, error)
	serviceCIDRs []netip.Prefix

	mu sync.Mutex
	// last are the subnets that were given last, by pool.
	last map[intent.SubnetPool]netip.Prefix
	// without are the namespaces that have got none, and when each is looked at again.
	without map[string]time.Duration
}

func newSubnets(a *reconcile.Access, o Options) *subnets {
	return &subnets{
		Access: a, pools: o.Pools, elsewhere: o.Taken, serviceCIDRs: o.ServiceCIDRs,
		last: map[intent.SubnetPool]netip.Prefix{}, without: map[string]time.Duration{},
	}
}

// create makes the Network of a namespace with the next subnet of each pool. Without one the
// namespace waits, and an Event says so.
func (s *subnets) create(ctx context.Context, namespace *corev1.Namespace, n *v1alpha1.Network) error {
	// It may take long. What it lacks of the cluster's own by then is in the API.
	elsewhere, unknown := s.elsewhere(ctx)
	// One after the other: each sees the Networks of those before it.
	s.mu.Lock()
	defer s.mu.Unlock()
	if unknown != nil {
		s.refuse(namespace, unknownRetry, reasonPoolUnknown, "new pods of the namespace wait until it is known what is taken: "+
			unknown.Error())
		return nil
	}
	nodes, err := reconcile.All(ctx, s, &corev1.NodeList{})
	if err != nil {
		return err
	}
	podCIDRs := allocate.PodCIDRs(reconcile.Pointers(nodes.Items))
	taken, err := s.taken(ctx, podCIDRs)
	if err != nil {
		return err
	}
	taken = append(taken, elsewhere...)
	chosen := make([]netip.Prefix, len(s.pools))
	for i, pool := range s.pools {
		ofFamily := func(p netip.Prefix) bool { return p.Addr().Is4() == pool.Prefix.Addr().Is4() }
		if !slices.ContainsFunc(podCIDRs, ofFamily) {
			s.refuse(namespace, poolRetry, reasonPoolUnsuitable, fmt.Sprintf("new pods of the namespace wait: no node has a podCIDR of the family "+
				"of the pool %s; take it out of --namespace-subnets of the controller", pool))
			return nil
		}
		chosen[i], err = allocate.NextSubnet(pool, taken, s.last[pool])
		if errors.Is(err, allocate.ErrPoolUsedUp) {
			retry := poolRetry
			if len(elsewhere) > 0 { // a Network goes before what it has elsewhere
				retry = unknownRetry
			}
			s.refuse(namespace, retry, reasonPoolUsedUp, "new pods of the namespace wait until another Network goes, or --namespace-subnets "+
				"of the controller has a larger pool: "+err.Error())
			return nil
		}
		n.Spec.Subnets = append(n.Spec.Subnets, v1alpha1.Subnet{CIDR: chosen[i].String()})
	}
	if err := create(ctx, s.Access, n); err != nil {
		return err
	}
	for i, pool := range s.pools {
		s.last[pool] = chosen[i]
	}
	return nil
}

// refuse has a namespace wait. The caller holds the lock.
func (s *subnets) refuse(namespace *corev1.Namespace, retry time.Duration, reason, message string) {
	s.without[namespace.Name] = retry
	s.Events.Event(namespace, corev1.EventTypeWarning, reason, message)
}

// taken is what of the cluster subnets of pools must not overlap. The API server is asked, since
// the cache may not have the Networks yet that were made a moment ago.
func (s *subnets) taken(ctx context.Context, podCIDRs []netip.Prefix) ([]netip.Prefix, error) {
	networks := &v1alpha1.NetworkList{}
	if err := s.Live.List(ctx, networks); err != nil {
		return nil, fmt.Errorf("list Networks: %w", err)
	}
	services, err := s.ServiceCIDRs(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Concat(allocate.Subnets(reconcile.Pointers(networks.Items)), podCIDRs, services, s.serviceCIDRs), nil
}

// forget says that it is not known whether a namespace needs subnets.
func (s *subnets) forget(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.without, namespace)
}

// again is when a namespace is to be looked at again.
func (s *subnets) again(namespace string) ctrl.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ctrl.Result{RequeueAfter: s.without[namespace]} // 0: it is not
}

// waiting asks for the namespaces without subnets.
func (s *subnets) waiting(context.Context, client.Object) (requests []ctrl.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.without {
		requests = append(requests, reconcile.RequestFor("", name)...)
	}
	return requests
}
