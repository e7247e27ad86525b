// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/server"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/translate/policies"
	"coelan.io/coelan/internal/trigger"
)

// Feed gives the Engine all that policies depend on. Every replica does.
type Feed struct {
	log        *slog.Logger
	cache      cache.Cache
	engine     *policy.Publisher[*policy.Engine]
	hub        *server.Hub
	definition definition

	// wake has an element if something is pending; findingsChanged if findings may be others,
	// or on other nodes.
	wake, findingsChanged trigger.Trigger
	// complete is closed when all that there is has been applied.
	complete chan struct{}
	// progress is what the watches have brought; source also asks the API server, and is nil in
	// tests without one.
	progress *Progress
	source   *viewSource
	// loop reports an apply that does not end: it waits for nothing but locks.
	loop *heartbeat.Loop

	nodeAddress func(subnet netip.Prefix) (netip.Addr, bool)

	// endpoints, namespaces and nodes are of the one goroutine that works.
	endpoints  *policies.Endpoints
	namespaces map[string]policy.Namespace
	nodes      map[string]policy.Node

	mu      sync.Mutex
	pending map[watched]event
	// attached are pods that have just been, at most maxAttached.
	attached []server.NodeAttachment
	// objects are the policies that there are, as of when they were translated; problems those of
	// them that have any.
	objects     map[intent.PolicyRef]client.Object
	problems    map[intent.PolicyRef][]translate.Problem
	ofEndpoints []policies.EndpointProblem
}

// watched is an object of a kind.
type watched struct {
	kind reflect.Type
	types.NamespacedName
}

func watchedOf(o client.Object) watched {
	return watched{reflect.TypeOf(o), client.ObjectKeyFromObject(o)}
}

// event is the newest version of an object, or the last one of an object that is gone.
type event struct {
	object client.Object
	gone   bool
}

func newFeed(log *slog.Logger, c cache.Cache, to *Distribution, progress *Progress, monitor *heartbeat.Monitor) *Feed {
	p := &Feed{
		log: log, cache: c, engine: to.Engine, hub: to.Hub, definition: definition{wake: trigger.New()},
		wake: trigger.New(), findingsChanged: trigger.New(), complete: make(chan struct{}),
		loop: monitor.Loop("policies"), progress: progress,
		endpoints:  policies.NewEndpoints(),
		namespaces: map[string]policy.Namespace{}, nodes: map[string]policy.Node{},
		pending: map[watched]event{}, objects: map[intent.PolicyRef]client.Object{},
		problems: map[intent.PolicyRef][]translate.Problem{},
	}
	p.hub.OnAttached = p.noteAttached
	return p
}

// policyKinds are what policies depend on, but for ClusterNetworkPolicies, which an
// API server may lack.
func policyKinds() []client.Object {
	return []client.Object{
		&corev1.Namespace{}, &corev1.Node{}, &corev1.Pod{}, &v1alpha1.Port{}, &v1alpha1.Network{}, &v1alpha1.Router{},
		&v1alpha1.AddressBlock{}, &networkingv1.NetworkPolicy{}, &v1alpha1.SecurityGroup{},
	}
}

// NeedLeaderElection says that every replica does it.
func (p *Feed) NeedLeaderElection() bool { return false }

// Start works until ctx ends.
func (p *Feed) Start(ctx context.Context) error {
	var known []toolscache.InformerSynced
	for _, kind := range policyKinds() {
		p.progress.use(kind, true)
		synced, err := p.watch(ctx, kind, p.note)
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		known = append(known, synced)
	}
	defined, err := p.watchDefinition(ctx)
	if err != nil {
		return fmt.Errorf("watch the definition of ClusterNetworkPolicies: %w", err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), append(known, defined)...) {
		return nil
	}
	// Until it is known whether there are ClusterNetworkPolicies, no agent may conclude
	// that there are none.
	if !p.followDefinition(ctx) {
		return nil
	}
	p.apply()
	p.hub.Ready()
	close(p.complete)
	// Beside the rest, which must not wait for an API server that takes its time to answer.
	go p.followDefinitions(ctx)
	if p.source != nil {
		f := &freshness{viewSource: p.source, log: p.log, behind: p.hub.SetBehind, targets: map[string]answer{}}
		go f.run(ctx)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
			p.apply()
		}
	}
}

// watch has what happens to objects of a kind noted. What is gone may be a
// DeletedFinalStateUnknown.
func (p *Feed) watch(ctx context.Context, kind client.Object,
	note func(o any, gone bool),
) (toolscache.InformerSynced, error) {
	informer, err := p.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { note(o, false) },
		UpdateFunc: func(_, o any) { note(o, false) },
		DeleteFunc: func(o any) { note(o, true) },
	})
	if err != nil {
		return nil, err
	}
	before := p.progress.passed(kind)
	var once sync.Once
	return func() bool {
		if !registration.HasSynced() {
			return false
		}
		once.Do(func() {
			p.progress.noteUpTo(kind, before)
			p.wake.Fire()
		})
		return true
	}, nil
}

// note remembers the newest version of an object until it is applied.
func (p *Feed) note(obj any, gone bool) {
	if last, unknown := obj.(toolscache.DeletedFinalStateUnknown); unknown {
		obj = last.Obj
	}
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	p.mu.Lock()
	p.pending[watchedOf(o)] = event{o, gone}
	p.progress.note(o)
	p.mu.Unlock()
	p.wake.Fire()
}

// maxAttached is how many attachments wait to be applied. The API delivers the others.
const maxAttached = 10000

// noteAttached remembers a pod that an agent has attached, as note does.
func (p *Feed) noteAttached(a server.NodeAttachment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.attached) < maxAttached {
		p.attached = append(p.attached, a)
		p.wake.Fire()
	}
}

// apply brings the Engine up to date with all that is pending, in one step.
func (p *Feed) apply() {
	defer p.loop.Step()()
	p.mu.Lock()
	pending := p.pending
	p.pending = make(map[watched]event)
	attached := p.attached
	p.attached = nil
	noted := p.progress.noted()
	p.mu.Unlock()
	if len(pending)+len(attached) == 0 {
		p.progress.apply(noted)
		return
	}
	var changes []func(*policy.Engine)
	changed := changedPolicies{map[intent.PolicyRef]client.Object{}, map[intent.PolicyRef][]translate.Problem{}}
	for _, e := range pending {
		if change := p.change(e, &changed); change != nil {
			changes = append(changes, change)
		}
	}
	for _, a := range attached {
		p.endpoints.SetAttachment(a.Node, a.Attachment)
	}
	set, gone := p.endpoints.Changes()
	if len(changes)+len(set)+len(gone) == 0 {
		p.progress.apply(noted)
	} else {
		p.engine.Update(func(e *policy.Engine) {
			// With the views, which are published together with their basis.
			defer p.progress.apply(noted)
			for _, change := range changes {
				change(e)
			}
			for _, key := range gone {
				e.DeleteEndpoint(key)
			}
			for _, endpoint := range set {
				e.SetEndpoint(endpoint)
			}
		})
	}
	if p.record(changed, p.endpoints.Problems()) || len(set)+len(gone) > 0 {
		// perhaps on other nodes than before.
		p.findingsChanged.Fire()
	}
}

// Known is closed when the Engine knows all that there is.
func (p *Feed) Known() <-chan struct{} { return p.complete }

// Progressed returns a channel that is closed when the Engine may know more.
func (p *Feed) Progressed() <-chan struct{} { return p.progress.Changed() }

// Ready says why agents cannot be served; nil: they can.
func (p *Feed) Ready() error {
	select {
	case <-p.complete:
	default:
		return errors.New("not all policies are known yet")
	}
	if reason := p.hub.Behind(); reason != "" {
		return fmt.Errorf("this replica is behind the API server: %s", reason)
	}
	return nil
}
