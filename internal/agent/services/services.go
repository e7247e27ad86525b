// SPDX-License-Identifier: Apache-2.0

// Package services is the agent's part of Kubernetes Services: it makes intent of them and of their
// EndpointSlices, stores that for restarts, deletes connections to endpoints that are gone, and
// answers the health checks of load balancers.
//
// The intent is stored, not the API's objects: it is a tenth of their size, and needs nothing else
// to be put into effect. A node that starts without the API server balances as it did before; the
// first complete lists replace it.
package services

import (
	"context"
	"iter"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/trigger"
	"coelan.io/coelan/internal/wellknown"
)

// Kinds beside those of package kube.
const (
	services = "services"
	slicesOf = "endpointslices"
)

// Options are what Services work with. All are needed.
type Options struct {
	Log     *slog.Logger
	Config  config.Services
	Mapping config.Mapping
	Node    string
	// File is where Services are remembered.
	File   string
	Intent *intent.Store
	View   *apicache.View
	Events Recorder
	// Applied waits until the flows of that revision of the intent, or of a newer one,
	// are on the switch.
	Applied func(ctx context.Context, revision uint64) error
	// Connections deletes connections when their way has changed.
	Connections Connections
	// Changed is called after the intent has changed. It must not block.
	Changed func(before, after *intent.State)
	// Observe takes the time from the first of the API's events to the flows that follow from it.
	Observe func(time.Duration)
	// Healthy says why this node does not forward packets for Services; nil if it does.
	Healthy func() error
	// Step is called when the loop begins to work, and what it returns when it waits again;
	// it may be nil.
	Step func() (done func())
}

// Recorder tells users of Services what is not as they ask on this node.
type Recorder interface {
	ServiceWarning(namespace, name, uid, reason, message string)
}

// Services keeps the intent's Services and ServiceRanges. Its methods are safe for concurrent use.
type Services struct {
	Options
	native bool
	health *healthChecks
	wake   trigger.Trigger
	ready  chan struct{} // closed when all that Services depend on was heard of
	away   chan struct{} // closed when the API did not answer once

	mu      sync.Mutex
	set     *translate.ServiceSet
	ports   *nodePorts
	leaving bool
	routers map[string]string // by namespace, of those that were asked for
	// cidrObjects are by name, cidrs the prefixes of them.
	cidrObjects map[string]*networkingv1.ServiceCIDR
	cidrs       []netip.Prefix
	nodes       []*corev1.Node
	// objects is the View's State that Services are translated by, selecting its Networks that may
	// select namespaces.
	objects   apicache.State
	selecting []*v1alpha1.Network
	// externalIPs are of objects, cidrs and nodes; nil: no Service has asked since these changed.
	externalIPs *translate.ExternalIPs
	// listed are the kinds that were heard whole.
	listed map[string]bool
	// first is when the oldest event came that is not in the intent yet.
	first time.Time
	// told are the problems that there is an Event about.
	told map[translate.ServiceProblem]bool
	// healthzErr is why services.healthzBindAddress is not served.
	healthzErr error
	healthyAt  atomic.Pointer[time.Time]

	// followed is the State that everything beside the intent follows from. It is Run's.
	followed *intent.State
}

// New makes Services that know nothing.
func New(o Options) *Services {
	s := &Services{
		Options: o, native: o.Config.Mode == config.NativeServices,
		wake: trigger.New(), ready: make(chan struct{}), away: make(chan struct{}),
		ports: newNodePorts(o.Config.NodePortAddresses, listeners), routers: map[string]string{},
		cidrObjects: map[string]*networkingv1.ServiceCIDR{},
		listed:      map[string]bool{},
		told:        map[translate.ServiceProblem]bool{},
		objects:     o.View.State(),
	}
	s.selecting = selecting(s.objects)
	s.health = newHealthChecks(o.Log, o.Config.NodePortAddresses, o.Healthy)
	s.set = translate.NewServiceSet(s.serviceView())
	return s
}

// serviceView is what Services depend on. Its functions are called by the set, under mu.
func (s *Services) serviceView() translate.ServiceView {
	return translate.ServiceView{
		Node: s.Node, Router: s.router,
		NodePortTaken:     func(p intent.Protocol, port uint16) bool { return s.ports.takenBy(nodePort{p, port}) },
		ExternalIPRefused: s.externalIPRefused,
	}
}

// Updates are what keeps Services up to date. While kube-proxy balances, only the
// prefixes of ClusterIPs matter.
func (s *Services) Updates() kube.ServiceUpdates {
	u := kube.ServiceUpdates{CIDRs: s.setCIDRs}
	if !s.native {
		return u
	}
	u.Services = changes(s, services, s.set.SetService, s.set.DeleteService, s.set.Services)
	u.Slices = changes(s, slicesOf, s.set.SetEndpointSlice, s.set.DeleteEndpointSlice, s.set.EndpointSlices)
	return u
}

// changes has the set follow one kind of objects.
func changes[T any](s *Services, kind string, set func(T), remove func(namespace, name string),
	known func() iter.Seq[types.NamespacedName]) *kube.Changes[T] {
	return &kube.Changes[T]{
		Set:    func(o T) { s.heard(func() { set(o) }) },
		Delete: func(n types.NamespacedName) { s.heard(func() { remove(n.Namespace, n.Name) }) },
		Listed: func(exists func(types.NamespacedName) bool) {
			s.heard(func() {
				for n := range known() {
					if !exists(n) {
						remove(n.Namespace, n.Name)
					}
				}
				s.listed[kind] = true
			})
		},
		Failed: s.failed,
	}
}

// heard takes an event of the API.
func (s *Services) heard(change func()) {
	s.mu.Lock()
	change()
	if s.first.IsZero() {
		s.first = time.Now()
	}
	s.mu.Unlock()
	s.wake.Fire()
}

// SetNode takes this node's object. What follows from its zone is in the intent.
func (s *Services) SetNode(n *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = wellknown.NodeLeaving(n)
	s.wake.Fire()
}

// failed notes that the API does not answer.
func (s *Services) failed(error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !closed(s.away) {
		close(s.away)
	}
}

// Away is closed once the API has not answered when it was asked for Services.
func (s *Services) Away() <-chan struct{} { return s.away }

// Ready is closed once the API was heard of all that Services depend on, and the intent
// is made of it.
func (s *Services) Ready() <-chan struct{} { return s.ready }

// Run makes intent of what changes, until ctx ends.
func (s *Services) Run(ctx context.Context) error {
	m := newMemory(s)
	defer m.finish()
	var running sync.WaitGroup
	defer running.Wait()
	defer s.health.close()
	done := newFollower(s)
	running.Go(func() { done.run(ctx) })
	running.Go(func() { m.run(ctx) })
	s.followed = s.Intent.State()
	s.health.update(s.followed.NodeServices().All())
	for {
		s.follow(m, done)
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-s.nextPorts():
			s.recheckPorts()
		}
	}
}

// follow brings the intent, and what follows from it, to what is known.
func (s *Services) follow(m *memory, done *follower) {
	if s.Step != nil {
		defer s.Step()()
	}
	before, after, first := s.apply()
	delta := intent.Diff(before, after)
	s.settle(before, after, delta)
	if len(delta.Services)+len(delta.NodeServices)+len(delta.ServiceRanges)+len(delta.Listeners) > 0 {
		s.Changed(before, after)
		m.dirty.Fire()
		done.add(before, after, first)
	}
}

// apply brings the intent to what is known. It returns the State that it returned last and the one
// of now, between which also the node's zone may have changed, and when the first event came that
// made the difference.
func (s *Services) apply() (before, after *intent.State, first time.Time) {
	s.mu.Lock()
	ranges, haveRanges, complete := s.ranges(), s.listed[kube.ServiceCIDRs], s.complete()
	var changes translate.ServiceChanges
	var listeners []intent.Listener
	anew := false
	if complete && s.native {
		changes = s.set.Changes()
		listeners = s.ports.listeners()
		s.ports.forgetSnapshot()
		first, s.first = s.first, time.Time{}
		anew = !closed(s.ready)
	}
	s.mu.Unlock()

	before = s.followed
	last, _ := before.Services().Get(apiServers)
	keepAPIServers(last, changes.Changed)
	after, err := s.Intent.Update(func(tx *intent.Tx) error {
		if haveRanges {
			tx.ReplaceServiceRanges(ranges)
		}
		switch {
		case !s.native || anew:
			replaceAll(tx, before, changes.Changed)
		default:
			for _, v := range changes.Changed {
				tx.SetService(v)
			}
			for _, key := range changes.Gone {
				tx.DeleteService(key)
			}
		}
		if complete {
			tx.ReplaceListeners(listeners)
		}
		return nil
	})
	if err != nil {
		s.Log.Error("cannot update intent with Services", "err", err)
		return before, before, first
	}
	s.followed = after
	if changes.Problems {
		s.tell()
	}
	if complete && !closed(s.ready) {
		close(s.ready)
	}
	return before, after, first
}

// replaceAll makes these the only Services, also in place of what is served of no Service.
func replaceAll(tx *intent.Tx, before *intent.State, services []intent.Service) {
	tx.ReplaceServices(services)
	for v := range before.NodeServices().All() {
		key := v.Namespace + "/" + v.Name
		if _, ok := before.Services().Get(key); !ok {
			tx.DeleteNodeService(key)
		}
	}
}

// settle brings to the newest Services what is kept beside the intent.
func (s *Services) settle(before, after *intent.State, delta intent.Delta) {
	for _, key := range delta.NodeServices {
		v, ok := after.NodeServices().Get(key)
		if !ok {
			was, _ := before.NodeServices().Get(key)
			v = intent.NodeService{Namespace: was.Namespace, Name: was.Name}
		}
		s.health.set(v)
	}
	var old, now []intent.Service
	for _, key := range delta.Services {
		if v, ok := before.Services().Get(key); ok {
			old = append(old, v)
		}
		if v, ok := after.Services().Get(key); ok {
			now = append(now, v)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports.release(old, now)
}

// complete says whether everything was heard of that Services depend on. Without Networks and
// namespaces, Services would be in no Router, and lose their flows. The caller holds mu.
func (s *Services) complete() bool {
	if !s.native {
		return true
	}
	return s.listed[services] && s.listed[slicesOf] && s.objects.Listed(apicache.Namespaces) &&
		s.objects.Listed(kube.Networks) && s.objects.Listed(kube.Routers)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
