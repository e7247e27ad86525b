// SPDX-License-Identifier: Apache-2.0

// Package lbaddresses has a node answer for its share of the load balancers' addresses, where the
// bridge balances Services.
package lbaddresses

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/announce"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/trigger"
)

// Options are what an Addresses is made of.
type Options struct {
	Node   string
	Config config.Config
	Log    *slog.Logger
	Intent *intent.Store
	View   *apicache.View
	Events Events
	// ServicesReady is closed once Services are known, NodesListed true once nodes are.
	ServicesReady <-chan struct{}
	NodesListed   func() bool
	// Keys calls update with the keys of the membership until ctx ends; nil: this
	// node answers for none.
	Keys func(ctx context.Context, update func(keys [][]byte))
	// Step begins a step of the membership's loop, and returns the function that ends it.
	Step func() func()
}

// Events are emitted about Services.
type Events interface {
	ServiceNotice(namespace, name, uid, reason, message string)
}

// Addresses decides with the other nodes which of them answers for an address.
type Addresses struct {
	Options
	// announcer is there once this node may answer.
	announcer atomic.Pointer[announce.Announcer]
	// wake has it look again.
	wake trigger.Trigger
}

// New makes an Addresses that answers for none yet.
func New(o Options) *Addresses { return &Addresses{Options: o, wake: trigger.New()} }

// Run answers until ctx ends. What the kernel answers for already it goes on with until the API was
// read: before, it is not known what has become of the addresses.
func (a *Addresses) Run(ctx context.Context) error {
	if a.Config.Services.Mode != config.NativeServices {
		// What an agent in the other mode left behind.
		if err := announce.Remove(); err != nil {
			a.Log.Error("cannot remove the load balancer addresses of native Services from the node", "err", err)
		}
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-a.ServicesReady:
	}
	_, ok := a.View.Await(ctx, func(s apicache.State) bool {
		return s.Listed(kube.Pools) && s.Listed(kube.FloatingIPs) && s.Listed(kube.Networks) &&
			a.NodesListed() && a.address().IsValid()
	})
	if !ok {
		return nil
	}
	gained := &addressQueue{wake: trigger.New()}
	announcer := announce.New(announce.Options{
		Node: a.Node, Address: a.address(), Port: a.Config.LoadBalancer.MemberlistPort,
		Gateway: a.Config.GatewayInterface, SysctlDir: a.Config.SysctlDir, Log: a.Log, Gained: gained.add,
		Step: a.Step, Chosen: a.chosen,
	})
	a.announcer.Store(announcer)
	if a.Keys != nil {
		go a.Keys(ctx, announcer.SetKeys)
	}
	go gained.run(ctx, a.gained)
	go a.follow(ctx, announcer)
	return announcer.Run(ctx)
}

// follow has an announcer follow intent until ctx ends.
func (a *Addresses) follow(ctx context.Context, announcer *announce.Announcer) {
	var seen *intent.State
	for {
		changed := a.View.Changes()
		now := a.Intent.State()
		if seen == nil || touched(seen, now) {
			announcer.Set(desired(now, a.Config.Backend.Type))
		}
		seen = now
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-a.wake:
		}
	}
}

// Load makes intent of the floating IPs of Services that this node answered for when the agent ran
// last.
func (a *Addresses) Load(tx *intent.Tx) {
	if a.Config.Services.Mode != config.NativeServices {
		return
	}
	list, err := announce.Chosen(a.Config.GatewayInterface)
	if err != nil {
		a.Log.Error("cannot read which floating IPs of Services this node answered for; it does not until"+
			" the nodes have agreed", "err", err)
	}
	replaceChosen(tx, list)
}

// chosen makes intent of what this node's bridge is to answer for.
func (a *Addresses) chosen(list []netip.Addr) {
	_, err := a.Intent.Update(func(tx *intent.Tx) error {
		replaceChosen(tx, list)
		return nil
	})
	if err != nil { // the function above returns none
		a.Log.Error("cannot update intent with the floating IPs of Services", "err", err)
	}
}

func replaceChosen(tx *intent.Tx, list []netip.Addr) {
	chosen := make([]intent.ChosenAddress, len(list))
	for i, a := range list {
		chosen[i].Address = a
	}
	tx.ReplaceChosenAddresses(chosen)
}

// Status is what this node announces; nothing before it can.
func (a *Addresses) Status() announce.Status {
	if announcer := a.announcer.Load(); announcer != nil {
		return announcer.Status()
	}
	return announce.Status{}
}

// ServicesChanged has addresses of load balancers answered for that have come or gone.
func (a *Addresses) ServicesChanged(before, after *intent.State) {
	if servicesTouched(before, after, intent.Diff(before, after)) {
		a.wake.Fire()
	}
}

// touched says whether a change may be one of what is to be answered for.
func touched(before, after *intent.State) bool {
	d := intent.Diff(before, after)
	return len(d.Nodes)+len(d.Networks)+len(d.LoadBalancerPools) > 0 || servicesTouched(before, after, d) ||
		slices.ContainsFunc(d.FloatingIPs, func(name string) bool {
			old, _ := before.FloatingIPs().Get(name)
			now, _ := after.FloatingIPs().Get(name)
			return old.Service != "" || now.Service != ""
		})
}

// servicesTouched says whether Services have changed that have an address to be answered for.
func servicesTouched(before, after *intent.State, d intent.Delta) bool {
	return slices.ContainsFunc(d.Services, func(key string) bool {
		old, _ := before.Services().Get(key)
		now, _ := after.Services().Get(key)
		for range after.FloatingIPsOfService(key) {
			return true
		}
		return balanced(old) || balanced(now)
	})
}

// balanced says whether a Service has an address of a load balancer.
func balanced(v intent.Service) bool {
	return slices.ContainsFunc(v.Ports, func(p intent.ServicePort) bool { return len(p.LoadBalancerIPs) > 0 })
}

// gained emits Events about Services with addresses that this node answers for now.
func (a *Addresses) gained(addresses []netip.Addr) {
	told, state := map[string]bool{}, a.Intent.State()
	for v := range state.Services().All() {
		for _, p := range v.Ports {
			for _, address := range addresses {
				if key := v.Namespace + "/" + v.Name + " " + address.String(); standsFor(state, address, v, p) &&
					!told[key] {
					told[key] = true
					a.Events.ServiceNotice(v.Namespace, v.Name, v.UID, "AddressAnnounced",
						"node "+a.Node+" answers for "+address.String())
				}
			}
		}
	}
}

// standsFor says whether an address is one of a port of a Service that nodes answer for.
func standsFor(s *intent.State, address netip.Addr, v intent.Service, p intent.ServicePort) bool {
	for f := range s.FloatingIPsOfService(v.Namespace + "/" + v.Name) {
		if f.Address == address {
			return true
		}
	}
	return slices.Contains(p.LoadBalancerIPs, address)
}

// addressQueue hands addresses on, those that came meanwhile together.
type addressQueue struct {
	wake trigger.Trigger

	mu      sync.Mutex
	waiting []netip.Addr
}

func (q *addressQueue) add(address netip.Addr) {
	q.mu.Lock()
	q.waiting = append(q.waiting, address)
	q.mu.Unlock()
	q.wake.Fire()
}

func (q *addressQueue) run(ctx context.Context, tell func([]netip.Addr)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		}
		q.mu.Lock()
		addresses := q.waiting
		q.waiting = nil
		q.mu.Unlock()
		tell(addresses)
	}
}

// address is the address by which the other agents know this one.
func (a *Addresses) address() netip.Addr {
	n, _ := a.Intent.State().Nodes().Get(a.Node)
	if len(n.Addresses) == 0 {
		return netip.Addr{}
	}
	return n.Addresses[0]
}

// desired is which addresses are to be answered for and by which nodes.
func desired(s *intent.State, backend config.BackendType) announce.Desired {
	var d announce.Desired
	for n := range s.Nodes().All() {
		if len(n.Addresses) > 0 {
			d.Peers = append(d.Peers, announce.Peer{Name: n.Name, Addr: n.Addresses[0]})
		}
	}
	for _, a := range s.Announcements() {
		if a.Floating && backend != config.OVSBackend {
			continue // no bridge would answer for it
		}
		d.Addresses = append(d.Addresses, announce.Address{Addr: a.Address, Nodes: a.Nodes, Bridge: a.Floating})
	}
	return d
}
