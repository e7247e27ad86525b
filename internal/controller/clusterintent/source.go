// SPDX-License-Identifier: Apache-2.0

package clusterintent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/trigger"
)

// Options are what a Source is made with. All are needed but where it is said.
type Options struct {
	Log       *slog.Logger
	Informers cache.Informers
	Monitor   *heartbeat.Monitor
	// Policies compute what the cluster has to know of policies; PoliciesKnown is closed when they
	// know all that there is.
	Policies      Policies
	PoliciesKnown <-chan struct{}
	// PoliciesProgressed returns a channel that is closed when Policies may know more. Nil: they do
	// not depend on objects, and Ports do not wait for them.
	PoliciesProgressed func() <-chan struct{}
	Settings
}

// Policies publish what nodes have to know. *policy.Publisher does.
type Policies interface {
	Subscribe(node string, s policy.Subscriber) (cancel func())
	// Published is what is in what subscribers have been given.
	Published() policy.Basis
}

// Settings are those of the agents that intent depends on.
type Settings struct {
	Mapping      config.Mapping
	ExternalIPs  []netip.Prefix // the only ones that Services have; none: see translate.ExternalIPs
	ServiceCIDRs []netip.Prefix // beside those of the API
	SNAT         intent.SNAT    // of the Router default
	PolicyMode   intent.PolicyMode
	AuditDenied  bool // of all Ports, not only of namespaces with the annotation
	// Projects are the projects of OpenStack that namespaces may ask for; nil: the backend knows
	// none.
	Projects translate.Projects
	// NodeAddress is the address in a node's subnet that the node has itself beside the gateway, if
	// there is one; it may be nil.
	NodeAddress func(subnet netip.Prefix) (netip.Addr, bool)
	// Unbound has users' Ports be in intent that no node has bound, too.
	Unbound bool
}

// Source keeps intent up to date while the manager runs it.
type Source struct {
	Options
	store *intent.Store
	wake  trigger.Trigger
	ready chan struct{}
	loop  *heartbeat.Loop
	// cluster and problems are of the goroutine that works.
	cluster  *cluster
	problems map[translate.Problem]struct{}
	// held is closed when Ports that are held back may be taken; nil: there are none.
	held <-chan struct{}

	mu       sync.Mutex
	pending  map[watched]noted
	view     *policy.View // replaces all that is known of policies
	policies []judged
	// seen is up to which version objects were noted, and taken what the last change of policies
	// was computed from that was applied, of the kinds that are kept in step.
	seen, taken policy.Basis
}

// watched is an object of a kind.
type watched struct {
	kind reflect.Type
	types.NamespacedName
}

// noted is the newest version of an object, or the last one of an object that is gone.
type noted struct {
	object client.Object
	gone   bool
}

// New makes a Source that knows nothing.
func New(o Options) *Source {
	return &Source{
		Options: o, store: intent.NewStore(), wake: trigger.New(), ready: make(chan struct{}),
		loop: o.Monitor.Loop("cluster-intent"), cluster: newCluster(o.Settings), pending: map[watched]noted{},
		problems: map[translate.Problem]struct{}{},
	}
}

// Intent is the cluster's. It has meaning when Ready is closed.
func (s *Source) Intent() *intent.Store { return s.store }

// Ready is closed when intent is made of all that the API has.
func (s *Source) Ready() <-chan struct{} { return s.ready }

// NeedLeaderElection says that the leader alone has it.
func (*Source) NeedLeaderElection() bool { return true }

// kinds are all that intent is made of, but for policies and ServiceCIDRs, which an API server may
// lack.
func kinds() []client.Object {
	return []client.Object{
		&corev1.Node{}, &corev1.Namespace{}, &corev1.Pod{}, &corev1.Service{}, &discoveryv1.EndpointSlice{},
		&v1alpha1.Router{}, &v1alpha1.Network{}, &v1alpha1.AddressBlock{}, &v1alpha1.Port{}, &v1alpha1.FloatingIP{},
		&v1alpha1.Egress{}, &v1alpha1.LoadBalancerPool{},
	}
}

// Start works until ctx ends.
func (s *Source) Start(ctx context.Context) error {
	var known []toolscache.InformerSynced
	for _, kind := range kinds() {
		synced, err := s.watch(ctx, kind)
		if err != nil {
			return fmt.Errorf("cluster intent: watch %T: %w", kind, err)
		}
		known = append(known, synced)
	}
	synced, err := s.watch(ctx, &networkingv1.ServiceCIDR{})
	switch {
	case meta.IsNoMatchError(err):
	case err != nil:
		return fmt.Errorf("cluster intent: watch ServiceCIDRs: %w", err)
	default:
		known = append(known, synced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), known...) {
		return nil
	}
	if s.PolicyMode == intent.EnforcedPolicies {
		select {
		case <-ctx.Done():
			return nil
		case <-s.PoliciesKnown:
		}
		defer s.Policies.Subscribe(policy.AllNodes, s)()
	}
	s.apply()
	close(s.ready)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-s.held:
		}
		s.apply()
	}
}

func (s *Source) watch(ctx context.Context, kind client.Object) (toolscache.InformerSynced, error) {
	informer, err := s.Informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.note(o, false, true) },
		UpdateFunc: func(old, now any) { s.note(now, false, relevant(old, now)) },
		DeleteFunc: func(o any) { s.note(o, true, true) },
	})
	if err != nil {
		return nil, err
	}
	return registration.HasSynced, nil
}

// note remembers the newest version of an object until it is applied, if it is relevant.
func (s *Source) note(obj any, gone, relevant bool) {
	if last, unknown := obj.(toolscache.DeletedFinalStateUnknown); unknown {
		obj = last.Obj
	}
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.see(o)
	if relevant {
		s.pending[watched{reflect.TypeOf(o), client.ObjectKeyFromObject(o)}] = noted{o, gone}
		s.wake.Fire()
	}
}

// Begin implements policy.Subscriber.
func (s *Source) Begin(v policy.View, of policy.Basis) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view, s.policies, s.seen, s.taken = &v, nil, s.seen.Advance(of), of
	s.wake.Fire()
}

// Change implements policy.Subscriber.
func (s *Source) Change(d policy.Delta, of policy.Basis) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policies = append(s.policies, judged{d, of})
	s.wake.Fire()
}

// apply brings intent to all that is pending, in one step.
func (s *Source) apply() {
	defer s.loop.Step()()
	pending, view, policies := s.take()
	if len(pending)+len(policies) == 0 && view == nil {
		return
	}
	for _, e := range pending {
		s.cluster.change(e.object, e.gone)
	}
	_, err := s.store.Update(func(tx *intent.Tx) error {
		if s.cluster.apply(tx) {
			s.report(s.cluster.problems())
		}
		if view != nil {
			tx.ReplacePolicies(view.Rules, view.Subjects, view.Peers)
		}
		for _, d := range policies {
			d.Apply(tx)
		}
		return nil
	})
	if err != nil { // the function above returns none
		s.Log.Error("cannot update the cluster's intent", "err", err)
	}
}

// report logs what was not wrong before.
func (s *Source) report(now []translate.Problem) {
	known := make(map[translate.Problem]struct{}, len(now))
	for _, p := range now {
		if _, before := s.problems[p]; !before {
			s.Log.Warn("an object has an invalid value, which is ignored", "err", p)
		}
		known[p] = struct{}{}
	}
	s.problems = known
}
