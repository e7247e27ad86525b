// SPDX-License-Identifier: Apache-2.0

// Package neutron runs the controller's half of the backend neutron: in the leader, it has
// OpenStack's Neutron be as the cluster's intent says, tells agents which ports there are, and
// reports what Neutron does not do.
package neutron

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/remote"
	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/controller/findings"
	"coelan.io/coelan/internal/controller/neutron/balancers"
	"coelan.io/coelan/internal/controller/programmed"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
)

// Options are what a Runner is made with. All are needed but where it is said.
type Options struct {
	Log     *slog.Logger
	Cluster names.Cluster
	Cloud   cloud.Access
	// Projects are those that namespaces may ask for; intent says which do.
	Projects []string
	// Spare is how many ports are ready on each node; 0: none is needed.
	Spare int
	// SubnetPools are what namespaces' Networks have their subnets of.
	SubnetPools []intent.SubnetPool
	// GivenPools are the ids of subnet pools of other programs that those are a part of.
	GivenPools []string
	// Northbound are the servers of OVN's northbound database that Neutron writes; without, there
	// are no Services, and no way out of the Router default.
	Northbound []string
	TLS        *remote.TLSFiles // nil: none
	Intent     Intent
	// Octavia is what load balancers of Services of the class coelan.io/octavia need; without a
	// subnet there are none.
	Octavia   balancers.Settings
	Informers cache.Informers
	Access    *reconcile.Access
	Monitor   *heartbeat.Monitor
	// Hub has the objects that conditions say are not in effect; the Runner adds those of which
	// Neutron does not do all.
	Hub findings.Hub
}

// Intent is the whole cluster's.
type Intent interface {
	Intent() *intent.Store
	// Ready is closed when it is complete.
	Ready() <-chan struct{}
}

// Runner works while the manager runs it.
type Runner struct {
	Options
	client     *cloud.Client
	findings   *findings.Reporter
	verdicts   *programmed.Verdicts
	identities *identities
	supplement *supplement // nil: none
	balancers  *balancers.Balancers
	loop       *heartbeat.Loop

	// have, compiled, options and set are of the client's goroutine: what Neutron has, what set is
	// made of, and it.
	have     *resource.Inventory // nil: it is not known yet
	compiled *intent.State
	options  compile.Options
	set      *resource.Set
	// named are what Networks name that is not Coelan's.
	named []string
	// lacking are the FloatingIPs of Services that had a problem when Neutron was compared last.
	lacking []string

	metrics *metrics

	leads    atomic.Bool
	outcomes broadcast.Broadcast // when one of these has changed

	mu       sync.Mutex
	cloud    outcome // of Neutron
	nb       outcome // of the supplement
	lb       outcome // of load balancers
	compared comparison
	quotas   []cloud.Quota // that were read last
}

// outcome is what came of a comparison.
type outcome struct {
	list []findings.Finding
	err  error
}

// New makes a Runner. An error names the file that cannot be used.
func New(o Options) (*Runner, error) {
	r := &Runner{
		Options: o, loop: o.Monitor.Loop("neutron"),
		findings: findings.New(o.Log, o.Access, o.Hub), verdicts: programmed.New(),
	}
	r.identities = newIdentities(o, func() { r.client.Changed() })
	r.client = cloud.New(cloud.Options{
		Access: o.Cloud, Cluster: o.Cluster, Want: r.want, Claims: r.claims, Found: r.found, Report: r.report,
		Lent: r.lent, Parents: r.parents, Asks: r.asks,
		Answered: r.identities.answered, Projects: o.Projects, Log: o.Log,
		Quotas: r.quotasRead, SubnetPools: o.GivenPools,
	})
	r.metrics = newMetrics(r)
	r.balancers = balancers.New(balancers.Options{
		Settings: o.Octavia, Log: o.Log, Cluster: o.Cluster, Cloud: o.Cloud, Informers: o.Informers, Access: o.Access,
		State:   func() *intent.State { return o.Intent.Intent().State() },
		Network: r.identities.networkID,
		Native:  len(o.Northbound) > 0,
		Report:  r.balanced,
		Resync:  cloud.DefaultResync,
	})
	if len(o.Northbound) == 0 {
		o.Log.Warn("pods have no Services and no way out of the cluster: --northbound does not say where the northbound " +
			"database of Neutron's OVN is")
		return r, nil
	}
	var err error
	r.supplement, err = newSupplement(o, func(now outcome) { r.publish(func() { r.nb = now }) })
	return r, err
}

// Setup adds to a manager the Runner and what writes conditions.
func (r *Runner) Setup(m manager.Manager) error {
	if err := r.verdicts.Setup(m, "neutron", r.Access, r.Monitor); err != nil {
		return err
	}
	return m.Add(r)
}

// Calls is how many calls of Neutron's API were made.
func (r *Runner) Calls() int64 { return r.client.Calls() }

// NeedLeaderElection says that the leader alone writes.
func (*Runner) NeedLeaderElection() bool { return true }

// Start works until ctx ends, which it does when leadership is lost.
func (r *Runner) Start(ctx context.Context) error {
	r.leads.Store(true)
	defer r.leads.Store(false)
	select {
	case <-ctx.Done():
		return nil
	case <-r.Intent.Ready():
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	// Which ports objects have already is to be known before the first comparison.
	if err := r.identities.follow(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	r.metrics.register()
	defer r.metrics.unregister()
	running.Go(func() { r.followIntent(ctx) })
	running.Go(func() { r.findings.Run(ctx) })
	running.Go(func() { r.client.Run(ctx) })
	if r.supplement != nil {
		running.Go(func() { r.supplement.run(ctx) })
	}
	running.Go(func() {
		if err := r.balancers.Run(ctx); err != nil && ctx.Err() == nil {
			r.publish(func() { r.lb = outcome{err: err} })
		}
	})
	r.identities.run(ctx)
	return nil
}

// followIntent has Neutron compared whenever there is a newer State.
func (r *Runner) followIntent(ctx context.Context) {
	for {
		state := r.Intent.Intent().State()
		r.client.Changed()
		if r.supplement != nil {
			r.supplement.client.Changed()
		}
		select {
		case <-ctx.Done():
			return
		case <-state.Replaced():
		}
	}
}

// want is what the newest intent wants of a Neutron that has this.
func (r *Runner) want(have *resource.Inventory) *resource.Set {
	defer r.loop.Step()()
	r.have = have
	if r.supplement != nil {
		r.supplement.only(have)
	}
	state := r.Intent.Intent().State()
	options := compile.Options{
		Cluster: r.Cluster, Supplemented: r.supplement != nil, Spare: r.Spare,
		SubnetPools: r.SubnetPools, GivenPools: r.GivenPools,
	}.With(state, have)
	if state == r.compiled && options.Equal(r.options) {
		return r.set
	}
	if now := namedBy(state); !slices.Equal(now, r.named) {
		r.named = now
		r.client.Reread()
	}
	r.compiled, r.options = state, options
	r.set = compile.Compile(state, r.options)
	r.set.Held = r.identities.holds
	return r.set
}

// lent are the networks of other programs that Networks name.
func (r *Runner) lent() (list []cloud.Wanted) {
	for n := range r.Intent.Intent().State().Networks().All() {
		if n.NeutronNetwork != "" {
			list = append(list, cloud.Wanted{
				Object: compile.NetworkObject(n.Name), Name: n.NeutronNetwork, Project: n.Project,
			})
		}
	}
	return list
}

// parents are the ports by which nodes are plugged that are machines of OpenStack.
func (r *Runner) parents() (list []cloud.Parent) {
	for n := range r.Intent.Intent().State().Nodes().All() {
		if n.TrunkPort != "" {
			list = append(list, cloud.Parent{Node: n.Name, Port: n.TrunkPort, Addresses: n.Addresses})
		}
	}
	return list
}

// asks are Claims of the ports that Ports name.
func (r *Runner) asks(ctx context.Context) []resource.Claim {
	return r.identities.claims(ctx, func(p *v1alpha1.Port) (project string, trunk bool) {
		network, _ := r.compiled.Networks().Get(p.Spec.Network)
		node, _ := r.compiled.Nodes().Get(p.Spec.Node)
		return r.options.ProjectOf(network), node.TrunkPort != ""
	}, func(ref resource.Ref) bool {
		_, there := r.have.Get(ref)
		_, wanted := r.set.Get(ref)
		return there || !wanted
	})
}

// found takes a resource that Neutron has.
func (r *Runner) found(of resource.Resource, a resource.Actual) {
	switch of.Kind {
	case resource.Port:
		r.identities.found(of, a)
	case resource.Router:
		r.foundRouter(of, a)
	case resource.FloatingIP:
		r.foundFloatingIP(of, a)
	case resource.Network, resource.Subnet:
		name, _ := strings.CutPrefix(of.Object, compile.NetworkObject(""))
		n, _ := r.compiled.Networks().Get(name)
		// Of a node's subnet no pod of another node has an address: there is no asking for one.
		if of.Kind == resource.Network || !n.FromNodes() {
			before := r.identities.networkID(name)
			r.identities.foundNetwork(of, n.UID, a)
			if r.identities.networkID(name) != before {
				r.balancers.Changed()
			}
		}
	}
	if r.supplement != nil {
		r.supplement.found(of, a)
	}
}

// report takes what came of a comparison, by the goroutine of the client.
func (r *Runner) report(refused []resource.Problem, err error) {
	var list []findings.Finding
	if r.set != nil {
		for _, p := range slices.Concat(r.set.Problems, refused) {
			list = append(list, findings.Finding(p))
		}
		r.mu.Lock()
		floating := r.lb.list
		r.mu.Unlock()
		r.verdicts.Want(r.compiled, slices.Concat(list, ofFloatingIPs(floating)))
	}
	r.verdicts.Judge(err)
	if err == nil {
		r.identities.allFound(nodePorts(r.compiled, r.have))
		r.seek(lacking(r.compiled, refused))
	}
	if r.supplement != nil && err == nil {
		r.supplement.only(r.have)
		r.supplement.begin()
	}
	var revision uint64
	if r.compiled != nil {
		revision = r.compiled.Revision()
	}
	r.publish(func() {
		r.compared = r.compared.next(time.Now(), revision, r.have, err != nil, r.cloud.err != nil)
		r.cloud = outcome{list, err}
	})
}

// balanced takes what load balancers do not do. Of FloatingIPs that stand for Services the next
// comparison says it, too.
func (r *Runner) balanced(list []findings.Finding) {
	r.mu.Lock()
	same := slices.Equal(ofFloatingIPs(r.lb.list), ofFloatingIPs(list))
	r.mu.Unlock()
	r.publish(func() { r.lb = outcome{list: list} })
	if !same {
		r.client.Changed()
	}
}

// ofFloatingIPs are those of findings that are about FloatingIPs.
func ofFloatingIPs(list []findings.Finding) (floating []findings.Finding) {
	for _, f := range list {
		if findings.Ref(f.Object).Kind == intent.PolicyKind(intent.KindFloatingIP) {
			floating = append(floating, f)
		}
	}
	return floating
}

// publish reports all outcomes after one has changed.
func (r *Runner) publish(change func()) {
	defer r.outcomes.Send()
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	list := slices.Concat(r.cloud.list, r.nb.list, r.lb.list)
	r.findings.Set(list, errors.Join(r.cloud.err, r.nb.err, r.lb.err))
}
