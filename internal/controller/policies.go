// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policyapi"
	"coelan.io/coelan/internal/policystream/server"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/wake"
)

// policies hands the Hub all that policies depend on. Every replica does.
type policies struct {
	log        *slog.Logger
	cache      cache.Cache
	hub        *server.Hub
	definition definition

	// wake has an element if something is pending; told if findings may be others, or on other nodes.
	wake, told wake.Wake
	// complete is closed when all that there is has been applied.
	complete chan struct{}

	// endpoints, namespaces and nodes are of the one goroutine that works.
	endpoints  *translate.PolicyEndpoints
	namespaces map[string]policy.Namespace
	nodes      map[string]policy.Node

	mu      sync.Mutex
	pending map[watched]client.Object // nil: it is gone
	// attached are pods that have just been, at most maxAttached.
	attached []server.NodeAttachment
	// objects are the policies that there are, as of when they were translated; problems those of them that have any.
	objects     map[intent.PolicyRef]client.Object
	problems    map[intent.PolicyRef][]translate.Problem
	ofEndpoints []translate.EndpointProblem
}

// watched is an object of a kind.
type watched struct {
	kind reflect.Type
	types.NamespacedName
}

func newPolicies(log *slog.Logger, c cache.Cache, hub *server.Hub) *policies {
	p := &policies{
		log: log, cache: c, hub: hub, definition: definition{wake: wake.New()},
		wake: wake.New(), told: wake.New(), complete: make(chan struct{}),
		endpoints:  translate.NewPolicyEndpoints(),
		namespaces: map[string]policy.Namespace{}, nodes: map[string]policy.Node{},
		pending: map[watched]client.Object{}, objects: map[intent.PolicyRef]client.Object{}, problems: map[intent.PolicyRef][]translate.Problem{},
	}
	hub.OnAttached = p.noteAttached
	return p
}

// policyKinds are what policies depend on, but for ClusterNetworkPolicies, which an API server may lack.
func policyKinds() []client.Object {
	return []client.Object{
		&corev1.Namespace{}, &corev1.Node{}, &corev1.Pod{}, &v1alpha1.Port{}, &v1alpha1.Network{}, &v1alpha1.Router{},
		&networkingv1.NetworkPolicy{}, &v1alpha1.SecurityGroup{},
	}
}

// NeedLeaderElection says that every replica does it.
func (p *policies) NeedLeaderElection() bool { return false }

// Start works until ctx ends.
func (p *policies) Start(ctx context.Context) error {
	var known []toolscache.InformerSynced
	for _, kind := range policyKinds() {
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
	// Without knowing whether there are ClusterNetworkPolicies, nobody may be told that there are none.
	if !p.followDefinition(ctx) {
		return nil
	}
	p.apply()
	p.hub.Ready()
	close(p.complete)
	// Beside the rest, which must not wait for an API server that takes its time to answer.
	go p.followDefinitions(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
			p.apply()
		}
	}
}

// wait is false if ctx ends before.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// watch has what happens to objects of a kind noted. What is gone may be a DeletedFinalStateUnknown.
func (p *policies) watch(ctx context.Context, kind client.Object, note func(o any, gone bool)) (toolscache.InformerSynced, error) {
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
	return registration.HasSynced, nil
}

// note remembers the newest version of an object until it is applied.
func (p *policies) note(obj any, gone bool) {
	if last, unknown := obj.(toolscache.DeletedFinalStateUnknown); unknown {
		obj = last.Obj
	}
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	of := watched{reflect.TypeOf(o), client.ObjectKeyFromObject(o)}
	if gone {
		o = nil
	}
	p.mu.Lock()
	p.pending[of] = o
	p.mu.Unlock()
	p.wake.Kick()
}

// maxAttached is how many attachments wait to be applied. The API tells of the others.
const maxAttached = 10000

// noteAttached remembers a pod that an agent has attached, as note does.
func (p *policies) noteAttached(a server.NodeAttachment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.attached) < maxAttached {
		p.attached = append(p.attached, a)
		p.wake.Kick()
	}
}

// apply brings the Hub up to date with all that is pending, in one step.
func (p *policies) apply() {
	p.mu.Lock()
	pending := p.pending
	p.pending = make(map[watched]client.Object)
	attached := p.attached
	p.attached = nil
	p.mu.Unlock()
	if len(pending)+len(attached) == 0 {
		return
	}
	var changes []func(*policy.Engine)
	news := policyNews{map[intent.PolicyRef]client.Object{}, map[intent.PolicyRef][]translate.Problem{}}
	for of, o := range pending {
		if change := p.change(of, o, &news); change != nil {
			changes = append(changes, change)
		}
	}
	for _, a := range attached {
		p.endpoints.SetAttachment(a.Node, a.Attachment)
	}
	set, gone := p.endpoints.Changes()
	if len(changes)+len(set)+len(gone) > 0 {
		p.hub.Update(func(e *policy.Engine) {
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
	if p.tell(news, p.endpoints.Problems()) || len(set)+len(gone) > 0 { // perhaps on other nodes than before
		p.told.Kick()
	}
}

// policyNews are of policies that have changed: the object, or nil if it is gone, and what is wrong with it.
type policyNews struct {
	objects  map[intent.PolicyRef]client.Object
	problems map[intent.PolicyRef][]translate.Problem
}

// tell lets others read what was found, and says whether it is news.
func (p *policies) tell(news policyNews, ofEndpoints []translate.EndpointProblem) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := len(news.objects) > 0 || !reflect.DeepEqual(p.ofEndpoints, ofEndpoints)
	for ref, o := range news.objects {
		delete(p.objects, ref)
		delete(p.problems, ref)
		if o != nil {
			p.objects[ref] = o
		}
		if problems := news.problems[ref]; len(problems) > 0 {
			p.problems[ref] = problems
		}
	}
	p.ofEndpoints = ofEndpoints
	return changed
}

// change is what an object means for the Engine; nil: nothing at once. What pods and Ports mean comes from all of them together.
func (p *policies) change(of watched, o client.Object, news *policyNews) func(*policy.Engine) {
	namespace, name := of.Namespace, of.Name
	switch of.kind {
	case typeOf[*corev1.Namespace]():
		if o == nil {
			return forget(p.namespaces, name, (*policy.Engine).DeleteNamespace)
		}
		return learn(p.namespaces, name, translate.PolicyNamespace(o.(*corev1.Namespace)), (*policy.Engine).SetNamespace)
	case typeOf[*corev1.Node]():
		if o == nil {
			return forget(p.nodes, name, (*policy.Engine).DeleteNode)
		}
		return learn(p.nodes, name, translate.PolicyNode(o.(*corev1.Node)), (*policy.Engine).SetNode)
	case typeOf[*corev1.Pod]():
		if o == nil {
			p.endpoints.DeletePod(namespace, name)
		} else {
			p.endpoints.SetPod(o.(*corev1.Pod))
		}
	case typeOf[*v1alpha1.Port]():
		if o == nil {
			p.endpoints.DeletePort(namespace, name)
		} else {
			p.endpoints.SetPort(o.(*v1alpha1.Port))
		}
	case typeOf[*v1alpha1.Network]():
		if o == nil {
			p.endpoints.DeleteNetwork(name)
		} else {
			p.endpoints.SetNetwork(o.(*v1alpha1.Network))
		}
	case typeOf[*v1alpha1.Router]():
		if o == nil {
			p.endpoints.DeleteRouter(name)
		} else {
			p.endpoints.SetRouter(o.(*v1alpha1.Router))
		}
	case typeOf[*networkingv1.NetworkPolicy]():
		return p.policy(translate.NetworkPolicyRef(namespace, name), o, news)
	case typeOf[*v1alpha1.SecurityGroup]():
		if o == nil {
			p.endpoints.DeleteSecurityGroup(namespace, name)
		} else {
			p.endpoints.SetSecurityGroup(namespace, name)
		}
		return p.policy(translate.SecurityGroupRef(namespace, name), o, news)
	case typeOf[*unstructured.Unstructured]():
		return p.policy(translate.ClusterNetworkPolicyRef(name), o, news)
	}
	return nil
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// learn sets what is new. Nodes are written all the time.
func learn[T any](known map[string]T, name string, now T, set func(*policy.Engine, T)) func(*policy.Engine) {
	if before, is := known[name]; is && reflect.DeepEqual(before, now) {
		return nil
	}
	known[name] = now
	return func(e *policy.Engine) { set(e, now) }
}

func forget[T any](known map[string]T, name string, remove func(*policy.Engine, string)) func(*policy.Engine) {
	delete(known, name)
	return func(e *policy.Engine) { remove(e, name) }
}

// policy translates one. A status alone changes nothing.
func (p *policies) policy(ref intent.PolicyRef, o client.Object, news *policyNews) func(*policy.Engine) {
	news.objects[ref] = o
	if o == nil {
		return func(e *policy.Engine) { e.DeletePolicy(ref) }
	}
	before, had := p.known(ref)
	translated, problems := translatePolicy(o)
	news.problems[ref] = problems
	if had && before.GetUID() == o.GetUID() && before.GetGeneration() == o.GetGeneration() && o.GetGeneration() != 0 {
		return nil
	}
	return func(e *policy.Engine) { e.SetPolicy(translated) }
}

func (p *policies) known(ref intent.PolicyRef) (client.Object, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o, is := p.objects[ref]
	return o, is
}

func translatePolicy(o client.Object) (policy.Policy, []translate.Problem) {
	switch o := o.(type) {
	case *networkingv1.NetworkPolicy:
		return translate.NetworkPolicy(o)
	case *v1alpha1.SecurityGroup:
		return translate.SecurityGroup(o)
	}
	return translate.ClusterNetworkPolicy(policyapi.Parse(o.(*unstructured.Unstructured)))
}
