// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
)

// network is a Network of the fake Planner: its first subnet has its blocks.
type network struct {
	id      intent.NetworkID
	subnets []intent.NetworkSubnet
	free    []netip.Prefix // blocks that can be claimed
	blocks  []netip.Prefix // of this node
}

// planner is a fake Planner: what a pod gets is what the test says.
type planner struct {
	mu sync.Mutex
	// further interfaces, by pod's name; the first is on the default Network.
	pods     map[string][]attachment.Plan
	primary  map[string]attachment.Plan // in place of that, by pod's name
	networks map[string]*network
	claimed  map[string]string // address or MAC on a Network → its owner
	asks     []Request
	// unclaimed are Ports that were, whether or not they were claimed.
	unclaimed []string
	fails     map[string]error // by method
}

func newPlanner() *planner {
	return &planner{
		pods: map[string][]attachment.Plan{}, primary: map[string]attachment.Plan{}, claimed: map[string]string{}, fails: map[string]error{},
		networks: map[string]*network{
			"red":  {id: 2, subnets: subnets("10.9.0.0/24", "fd09::/64"), free: prefixes("10.9.0.16/30", "fd09::10/124", "10.9.0.32/30")},
			"blue": {id: 3, subnets: subnets("10.9.0.0/24"), free: prefixes("10.9.0.64/28")},
			"wire": {id: 4},
		},
	}
}

func subnets(cidrs ...string) []intent.NetworkSubnet {
	var list []intent.NetworkSubnet
	for _, p := range prefixes(cidrs...) {
		list = append(list, intent.NetworkSubnet{Prefix: p, Gateway: p.Addr().Next()})
	}
	return list
}

// on is an interface on a Network, with what change says.
func (p *planner) on(name, ifName string, change ...func(*attachment.Plan)) attachment.Plan {
	n := p.networks[name]
	i := attachment.Plan{
		Spec:    attachment.Spec{Key: attachment.Key{IfName: ifName}, NetworkName: name, NetworkID: n.id, BlockSpace: true},
		Subnets: n.subnets,
	}
	for _, c := range change {
		c(&i)
	}
	return i
}

func (p *planner) Plan(_ context.Context, ask Request) ([]attachment.Plan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asks = append(p.asks, ask)
	if err := p.fails["Plan"]; err != nil {
		return nil, err
	}
	if ask.Delegate() {
		name := ask.Network
		if p.networks[name] == nil {
			return nil, &PlanError{Reason: v1alpha1.ReasonNetworkNotFound, Message: fmt.Sprintf("Network %q is not known", name)}
		}
		return []attachment.Plan{p.on(name, ask.IfName, func(i *attachment.Plan) { i.Requested = ask.Requested })}, nil
	}
	first, ok := p.primary[ask.PodName]
	if !ok {
		first = attachment.Plan{Spec: attachment.Spec{NetworkName: "default", NetworkID: 1}, Requested: ask.Requested}
	}
	first.IfName, first.Primary, first.DefaultRoute = ask.IfName, true, true
	return append([]attachment.Plan{first}, p.pods[ask.PodName]...), nil
}

func (p *planner) Ranges(_ context.Context, name string, _ []intent.NetworkSubnet, exhausted []netip.Prefix) ([]ipam.Range, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.networks[name]
	if err := p.fails["Ranges"]; err != nil {
		return nil, err
	}
	if n == nil {
		return nil, &PlanError{Reason: v1alpha1.ReasonNetworkNotFound, Message: fmt.Sprintf("Network %s is not known", name), Retry: true}
	}
	for _, s := range n.subnets {
		is4 := s.Prefix.Addr().Is4()
		ours := func(b netip.Prefix) bool {
			return b.Addr().Is4() == is4
		}
		if slices.ContainsFunc(n.blocks, func(b netip.Prefix) bool { return ours(b) && !slices.Contains(exhausted, b) }) {
			continue
		}
		i := slices.IndexFunc(n.free, ours)
		if i < 0 {
			return nil, &PlanError{Reason: v1alpha1.ReasonExhausted, Message: fmt.Sprintf("Network %s has no free address left", name)}
		}
		n.blocks = append(n.blocks, n.free[i])
		n.free = slices.Delete(n.free, i, i+1)
	}
	var ranges []ipam.Range
	for _, b := range n.blocks {
		i := slices.IndexFunc(n.subnets, func(s intent.NetworkSubnet) bool { return s.Prefix.Contains(b.Addr()) })
		r, err := ipam.Block{Prefix: b, Subnet: n.subnets[i].Prefix, Gateway: n.subnets[i].Gateway}.Range()
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

func things(a attachment.Attachment) map[string]string {
	list := map[string]string{}
	for _, p := range a.Addresses {
		if a.FixedAddresses {
			list[a.NetworkName+" "+p.Addr().String()] = v1alpha1.ReasonAddressTaken
		}
	}
	if a.FixedMAC {
		list[a.NetworkName+" "+a.MAC.String()] = v1alpha1.ReasonMACTaken
	}
	return list
}

func (p *planner) Claim(_ context.Context, a attachment.Attachment) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for thing, reason := range things(a) {
		if by, taken := p.claimed[thing]; taken && by != a.PortKey() {
			return &PlanError{Reason: reason, Message: thing + " belongs to " + by}
		}
	}
	for thing := range things(a) {
		p.claimed[thing] = a.PortKey()
	}
	return p.fails["Claim"]
}

func (p *planner) Unclaim(_ context.Context, a attachment.Attachment) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unclaimed = append(p.unclaimed, a.PortKey())
	for thing := range things(a) {
		if p.claimed[thing] == a.PortKey() {
			delete(p.claimed, thing)
		}
	}
	return p.fails["Unclaim"]
}

// newPlanned is a world with a planner.
func newPlanned(t *testing.T) (*world, *planner) {
	w, p := newWorld(t), newPlanner()
	w.opts.Planner = p
	return w, p
}
