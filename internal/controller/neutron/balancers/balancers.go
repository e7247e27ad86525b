// SPDX-License-Identifier: Apache-2.0

// Package balancers has OpenStack's Octavia have a load balancer for each Service of the class
// coelan.io/octavia, and writes its address into the Service's status.
package balancers

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/octavia"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/controller/findings"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/trigger"
)

// Settings say where Octavia is, and how load balancers are made.
type Settings struct {
	// Endpoint is the URL of an Octavia without keystone.
	Endpoint string
	// Provider is that of load balancers.
	Provider string
	// Subnet is the id of the subnet that their addresses are of; empty: there are none.
	Subnet string
	// External is the id of the network that each has a floating IP of; empty: none has.
	External string
}

// Options are what Balancers are made with. All are needed.
type Options struct {
	Settings
	Log     *slog.Logger
	Cluster names.Cluster
	Cloud   cloud.Access
	State   func() *intent.State
	// Native says that nodes balance what is for the FloatingIPs of other Services.
	Native bool
	// Network is the id of a Network in Neutron; empty: there is none yet.
	Network   func(name string) string
	Informers cache.Informers
	Access    *reconcile.Access
	// Report takes what is not done of Services, and of FloatingIPs that stand for them.
	Report func([]findings.Finding)
	// Resync is how often all is compared anew.
	Resync time.Duration
}

// Balancers works by Run.
type Balancers struct {
	Options
	queue   workqueue.TypedRateLimitingInterface[string]
	changed trigger.Trigger

	mu       sync.Mutex
	client   *cloud.Octavia // nil: there is no connection yet
	wanted   map[string]*octavia.Balancer
	problems map[string]octavia.Problem // what was met at the last attempt
	floating []findings.Finding         // about FloatingIPs
	users    map[string]string          // names of FloatingIPs by the Services that have them
	quiet    time.Time                  // Octavia asks to be left alone until then
}

// Pauses after what did not succeed, and while Octavia works.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 15 * time.Second
)

// workers is how many load balancers are worked at at once.
const workers = 4

// New makes Balancers.
func New(o Options) *Balancers {
	return &Balancers{
		Options: o, changed: trigger.New(),
		wanted: map[string]*octavia.Balancer{}, problems: map[string]octavia.Problem{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstPause, lastPause)),
	}
}

// Changed has it look again at what Network says.
func (b *Balancers) Changed() { b.changed.Fire() }

// Run works until ctx ends. The intent has to be complete.
func (b *Balancers) Run(ctx context.Context) error {
	informer, err := b.Informers.GetInformer(ctx, &corev1.Service{})
	if err != nil {
		return fmt.Errorf("watch Services: %w", err)
	}
	fire := func(any) { b.changed.Fire() }
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: fire, UpdateFunc: func(_, o any) { fire(o) }, DeleteFunc: fire,
	})
	if err != nil {
		return fmt.Errorf("watch Services: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }()
	var running sync.WaitGroup
	defer running.Wait()
	defer b.queue.ShutDown()
	for range workers {
		running.Go(func() {
			for b.next(ctx) {
			}
		})
	}
	return b.follow(ctx)
}

// follow compares what Services want with what they wanted, and all with Octavia at each resync.
func (b *Balancers) follow(ctx context.Context) error {
	failing, missing := retry.New(firstPause, lastPause), retry.New(firstPause, max(b.Resync, firstPause))
	var places *places
	var failure error
	var resync, early <-chan time.Time
	outside := ""
	var there []string
	for due := true; ctx.Err() == nil; {
		state := b.State()
		services, err := b.services(ctx)
		if err != nil {
			return err
		}
		if b.Subnet != "" && due {
			places, there, failure = b.read(ctx)
			if failure == nil {
				failing.Reset()
				resync = time.After(b.Resync)
			} else if ctx.Err() == nil {
				b.Log.Warn("cannot work with Octavia, trying again", "err", failure)
				resync = time.After(max(failing.Next(), cloud.RetryAfter(failure)))
			}
			due, early = false, nil
		}
		b.want(state, services, places, failure)
		// Not before it is known what they want: what is not wanted is deleted.
		for _, key := range there {
			b.queue.Add(key)
		}
		there = nil
		if now := b.outside(); now != outside {
			outside, early = now, nil
			missing.Reset()
		}
		if places != nil && outside != "" && early == nil {
			early = time.After(missing.Next()) // the subnet of a new Network comes with it
		}
		select {
		case <-ctx.Done():
		case <-state.Replaced():
		case <-b.changed:
		case <-early:
			due = true
		case <-resync:
			due = true
		}
	}
	return nil
}

// services are those of the class, by namespace/name.
func (b *Balancers) services(ctx context.Context) (map[string]*corev1.Service, error) {
	list, err := reconcile.All(ctx, b.Access, &corev1.ServiceList{})
	if err != nil {
		return nil, err
	}
	services := map[string]*corev1.Service{}
	for _, s := range reconcile.Pointers(list.Items) {
		if chosen(s) {
			services[s.Namespace+"/"+s.Name] = s
		}
	}
	return services, nil
}

// chosen reports whether a Service is to have a load balancer.
func chosen(s *corev1.Service) bool {
	return translate.OfOctavia(s) && s.DeletionTimestamp == nil
}

// places are the subnets that matter.
type places struct {
	addresses netip.Prefix            // of load balancers
	pools     []cloud.Pool            // what Neutron hands out of them
	subnets   map[netip.Prefix]string // ids of the cluster's, of the Router default
}

// read connects, reads subnets, and returns which Services are to be looked at: those that want
// load balancers, and those that have some.
func (b *Balancers) read(ctx context.Context) (*places, []string, error) {
	b.mu.Lock()
	client := b.client
	b.mu.Unlock()
	if client == nil {
		var err error
		if client, err = b.Cloud.ConnectOctavia(ctx, b.Endpoint, b.Cluster); err != nil {
			return nil, nil, err
		}
	}
	own, err := client.Subnet(ctx, b.Subnet)
	if err != nil {
		return nil, nil, fmt.Errorf("subnet %s of Neutron: %w", b.Subnet, err)
	}
	p := &places{addresses: own.CIDR, pools: own.Pools, subnets: map[netip.Prefix]string{}}
	subnets, err := client.Subnets(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("subnets of Neutron: %w", err)
	}
	networks := b.State().Networks()
	for _, s := range subnets {
		key, ours := client.Owned(s)
		_, name, _ := strings.Cut(key, "/")
		name, _, _ = strings.Cut(name, " ")
		if n, known := networks.Get(name); ours && known && n.Router == intent.DefaultRouterName {
			p.subnets[s.CIDR] = s.ID
		}
	}
	there, err := client.Services(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("load balancers of Octavia: %w", err)
	}
	b.mu.Lock()
	b.client = client
	there = slices.AppendSeq(there, maps.Keys(b.wanted))
	b.mu.Unlock()
	return p, there, nil
}

// subnetOf is the subnet of the cluster that has an address.
func (p *places) subnetOf(a netip.Addr) (string, bool) {
	for prefix, id := range p.subnets {
		if prefix.Contains(a) {
			return id, true
		}
	}
	return "", false
}

// handsOut reports whether an address is one that Neutron gives to ports of any: the others are for
// routers, or what Coelan gives to pods.
func (p *places) handsOut(a netip.Addr) bool {
	return slices.ContainsFunc(p.pools, func(pool cloud.Pool) bool {
		return pool.Start.Compare(a) <= 0 && a.Compare(pool.End) <= 0
	})
}

// want compiles all Services, and queues those with load balancers that are to change.
func (b *Balancers) want(state *intent.State, services map[string]*corev1.Service, places *places, err error) {
	wanted := map[string]*octavia.Balancer{}
	for key, s := range services {
		of, there := state.Services().Get(key)
		switch {
		case b.Subnet == "":
			wanted[key] = &octavia.Balancer{Key: key, Problems: []octavia.Problem{{Reason: reasonNotConfigured,
				Message: "load balancer of Octavia: the controller's --octavia-subnet names no subnet for its address"}}}
		case places == nil || !there:
			wanted[key] = b.before(key, err)
		default:
			o := octavia.Options{
				Provider: b.Provider, Subnet: b.Subnet, Prefix: places.addresses, SubnetOf: places.subnetOf,
			}
			balancer := octavia.Compile(of, o)
			balancer.External = b.External
			b.address(balancer, s, places, state)
			wanted[key] = balancer
		}
	}
	users, floating := b.floatingIPs(state, wanted, places)
	b.mu.Lock()
	before := b.wanted
	b.wanted, b.users, b.floating = wanted, users, floating
	connected := b.client != nil && places != nil
	b.mu.Unlock()
	if connected {
		for key, w := range wanted {
			if !reflect.DeepEqual(before[key], w) {
				b.queue.Add(key)
			}
		}
		for key := range before {
			if wanted[key] == nil {
				b.queue.Add(key)
			}
		}
	}
	b.report()
}

// address has a load balancer have the address of the subnet that its Service asks for. A floating
// IP is asked for by a FloatingIP: users of Services are not to have others than those.
func (b *Balancers) address(balancer *octavia.Balancer, s *corev1.Service, places *places, state *intent.State) {
	text, given := s.Annotations[v1alpha1.AnnotationLoadBalancerIPs]
	if !given {
		text = s.Spec.LoadBalancerIP
	}
	if text == "" {
		return
	}
	ignored := func(format string, args ...any) {
		balancer.Problems = append(balancer.Problems, octavia.Problem{
			Reason: reasonAddress, Message: "load balancer of Octavia: " + fmt.Sprintf(format, args...),
		})
	}
	a, err := netip.ParseAddr(strings.TrimSpace(text))
	switch {
	case err != nil || a.Zone() != "" || a.Is6() != places.addresses.Addr().Is6():
		ignored("%q is ignored: write one address of the family of %s", text, places.addresses)
	case b.External != "" && !standsFor(state, balancer.Key, a):
		ignored("%s is ignored: for a certain floating IP make a FloatingIP with spec.service: %s and this address",
			text, s.Name)
	case b.External != "":
		// floatingIPs sets it.
	case !places.addresses.Contains(a):
		ignored("%s is ignored: it is not of the subnet %s", text, places.addresses)
	case !places.handsOut(a):
		ignored("%s is ignored: it is in no allocation pool of the subnet %s", text, places.addresses)
	default:
		balancer.Address = a
	}
}

// standsFor reports whether a FloatingIP with an address stands for a Service.
func standsFor(state *intent.State, service string, a netip.Addr) bool {
	for f := range state.FloatingIPsAt(a) {
		if f.Service == service {
			return true
		}
	}
	return false
}

// before is what is wanted of a Service as long as it is not known anew.
func (b *Balancers) before(key string, err error) *octavia.Balancer {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := octavia.Balancer{Key: key}
	if known := b.wanted[key]; known != nil {
		w = *known
	}
	w.Problems = slices.DeleteFunc(slices.Clone(w.Problems), func(p octavia.Problem) bool {
		return p.Reason == reasonAway
	})
	if err != nil {
		w.Problems = append(w.Problems, away(err))
	}
	return &w
}

// outside names the endpoints of all Services that are in no known subnet; empty: there are none.
func (b *Balancers) outside() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []string
	for key, w := range b.wanted {
		for _, p := range w.Problems {
			if p.Reason == octavia.ReasonOutside {
				list = append(list, key+" "+p.Message)
			}
		}
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// report reports all problems of Services.
func (b *Balancers) report() {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []findings.Finding
	for _, key := range slices.Sorted(maps.Keys(b.wanted)) {
		problems := b.wanted[key].Problems
		if p, met := b.problems[key]; met {
			problems = append(slices.Clone(problems), p)
			if f, stands := b.users[key]; stands && p.Reason != reasonAddress {
				list = append(list, findings.Finding{Object: "FloatingIP " + f, Reason: p.Reason, Message: p.Message})
			}
		}
		for _, p := range problems {
			list = append(list, findings.Finding{Object: "Service " + key, Reason: p.Reason, Message: p.Message})
		}
	}
	b.Report(append(list, b.floating...))
}
