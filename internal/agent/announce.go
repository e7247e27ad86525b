// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/agent/view"
	"coelan.io/coelan/internal/announce"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

// announceAddresses answers for this node's share of the load balancers' addresses, in native mode only. What the kernel
// answers for already it goes on with until the API was heard: before, nobody knows what has become of the addresses.
func (a *Agent) announceAddresses(ctx context.Context) error {
	if !a.native() {
		// What an agent in the other mode left behind.
		if err := announce.Remove(); err != nil {
			a.log.Error("load balancers' addresses", "err", err)
		}
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-a.services.Ready():
	}
	s, ok := a.view.Await(ctx, func(s view.State) bool {
		return s.Listed(kube.Pools) && a.nodesHeard.Load() && a.announceAddress().IsValid()
	})
	if !ok {
		return nil
	}
	gained := &addressQueue{wake: make(chan struct{}, 1)}
	announcer := announce.New(announce.Options{
		Node: a.opts.NodeName, Address: a.announceAddress(), Port: a.cfg.LoadBalancer.MemberlistPort,
		KeyFile: a.cfg.LoadBalancer.KeyFile, Gateway: a.cfg.GatewayInterface, SysctlDir: a.cfg.SysctlDir, Log: a.log,
		Gained: gained.add,
	})
	a.announcer.Store(announcer)
	go gained.run(ctx, a.tellOwner)
	go func() {
		for {
			changed := a.view.Changes()
			s = a.view.State()
			announcer.Set(announced(a.intent.State(), s.PoolList(), a.nodeList()))
			select {
			case <-ctx.Done():
				return
			case <-changed:
			case <-a.announceWake:
			}
		}
	}()
	return announcer.Run(ctx)
}

// announced is what this node announces; nothing before it can.
func (a *Agent) announced() announce.Status {
	if announcer := a.announcer.Load(); announcer != nil {
		return announcer.Status()
	}
	return announce.Status{}
}

// tellOwner says by Events of Services that this node answers for their addresses now.
func (a *Agent) tellOwner(addresses []netip.Addr) {
	told := map[string]bool{}
	for v := range a.intent.State().Services().All() {
		for _, p := range v.Ports {
			for _, address := range p.LoadBalancerIPs {
				if key := v.Namespace + "/" + v.Name + " " + address.String(); slices.Contains(addresses, address) && !told[key] {
					told[key] = true
					a.opts.Events.ServiceNotice(v.Namespace, v.Name, v.UID, "AddressAnnounced",
						"node "+a.opts.NodeName+" answers for "+address.String())
				}
			}
		}
	}
}

// addressQueue hands addresses on, those that came meanwhile together.
type addressQueue struct {
	wake chan struct{}

	mu      sync.Mutex
	waiting []netip.Addr
}

func (q *addressQueue) add(address netip.Addr) {
	q.mu.Lock()
	q.waiting = append(q.waiting, address)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
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

// announceAddress is the address by which the other agents know this one.
func (a *Agent) announceAddress() netip.Addr {
	n, _ := a.intent.State().Nodes().Get(a.opts.NodeName)
	if len(n.Addresses) == 0 {
		return netip.Addr{}
	}
	return n.Addresses[0]
}

// announced is which addresses are to be answered for and by whom: those that a pool has, by the nodes that it selects;
// of Services with a local policy, by those with an endpoint.
func announced(s *intent.State, pools []*v1alpha1.LoadBalancerPool, nodes []*corev1.Node) announce.Desired {
	var d announce.Desired
	for n := range s.Nodes().All() {
		if len(n.Addresses) > 0 {
			d.Peers = append(d.Peers, announce.Peer{Name: n.Name, Addr: n.Addresses[0]})
		}
	}
	if len(pools) == 0 {
		return d
	}
	may := map[*v1alpha1.LoadBalancerPool][]string{}
	for _, p := range pools {
		may[p] = nodesOf(p, nodes)
	}
	find := translate.NewAddressPools(pools)
	nodesFor := map[netip.Addr][]string{}
	for v := range s.Services().All() {
		for _, p := range v.Ports {
			for _, address := range p.LoadBalancerIPs {
				if pool := find.Find(address); pool != nil {
					nodesFor[address] = append(nodesFor[address], allowed(v, may[pool])...)
				}
			}
		}
	}
	for address, names := range nodesFor {
		slices.Sort(names)
		d.Addresses = append(d.Addresses, announce.Address{Addr: address, Nodes: slices.Compact(names)})
	}
	slices.SortFunc(d.Addresses, func(x, y announce.Address) int { return x.Addr.Compare(y.Addr) })
	return d
}

// allowed are those of the nodes that may answer for a Service.
func allowed(v intent.Service, nodes []string) []string {
	if !v.ExternalLocal {
		return nodes
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n string) bool {
		_, has := slices.BinarySearch(v.EndpointNodes, n)
		return !has
	})
}

// nodesOf are the nodes that may answer for a pool's addresses. One that is about to go is none.
func nodesOf(p *v1alpha1.LoadBalancerPool, nodes []*corev1.Node) []string {
	selector := labels.Everything()
	if p.Spec.NodeSelector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(p.Spec.NodeSelector); err != nil {
			return nil
		}
	}
	var names []string
	for _, n := range nodes {
		_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
		if !excluded && !kube.Leaving(n) && selector.Matches(labels.Set(n.Labels)) {
			names = append(names, n.Name)
		}
	}
	return names
}
