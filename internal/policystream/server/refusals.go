// SPDX-License-Identifier: Apache-2.0

package server

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/trigger"
)

// NodeRefusal is what the agent of a node says about an object that its switch refuses.
type NodeRefusal struct {
	Node, Reason string
}

// refusals are the objects that nodes' switches refuse, as the agents say that are connected here,
// and as other controllers say of theirs.
type refusals struct {
	changed trigger.Trigger

	mu   sync.Mutex
	here map[string]nodeRefusals // by node
	// By the address of the controller, and by node.
	elsewhere map[string]map[string][]policy.Refusal
	// unsupported are those of SetUnsupported.
	unsupported map[intent.PolicyRef]string
}

// nodeRefusals are what one agent of a node says. While another one takes over from it,
// the newer one counts.
type nodeRefusals struct {
	by   *agent
	list []policy.Refusal
}

func newRefusals() *refusals {
	return &refusals{
		changed: trigger.New(), here: map[string]nodeRefusals{}, elsewhere: map[string]map[string][]policy.Refusal{},
	}
}

// set replaces what an agent's node refuses.
func (r *refusals) set(by *agent, list []policy.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(list) == 0 {
		delete(r.here, by.node)
	} else {
		r.here[by.node] = nodeRefusals{by, list}
	}
	r.changed.Fire()
}

// leave is the end of an agent's stream; it reports whether anything was known from it.
func (r *refusals) leave(by *agent) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.here[by.node].by != by {
		return false
	}
	delete(r.here, by.node)
	r.changed.Fire()
	return true
}

// of is what the agents here say about nodes.
func (r *refusals) of(nodes map[string]struct{}) map[string][]policy.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make(map[string][]policy.Refusal, len(nodes))
	for node := range nodes {
		list[node] = r.here[node].list
	}
	return list
}

// nodes are those of agents here that have said anything.
func (r *refusals) nodes() map[string]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := map[string]struct{}{}
	for node := range r.here {
		list[node] = struct{}{}
	}
	return list
}

// received handles a report of the controller at an address; the first of a stream
// are all there is.
func (r *refusals) received(address string, news map[string][]policy.Refusal, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.elsewhere[address]
	if !first && len(news) == 0 || len(known)+len(news) == 0 {
		return
	}
	if first || known == nil {
		known = map[string][]policy.Refusal{}
		r.elsewhere[address] = known
	}
	maps.Copy(known, news)
	maps.DeleteFunc(known, func(_ string, list []policy.Refusal) bool { return len(list) == 0 })
	r.changed.Fire()
}

// forget is for an address at which no controller can be reached any more.
func (r *refusals) forget(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.elsewhere[address]) > 0 {
		r.changed.Fire()
	}
	delete(r.elsewhere, address)
}

// all is by object, and sorted by node. Of a node that several controllers know, one counts.
func (r *refusals) all() map[intent.PolicyRef][]NodeRefusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	nodes := map[string][]policy.Refusal{}
	for _, address := range slices.Sorted(maps.Keys(r.elsewhere)) {
		maps.Copy(nodes, r.elsewhere[address])
	}
	for node, n := range r.here {
		nodes[node] = n.list
	}
	all := map[intent.PolicyRef][]NodeRefusal{}
	for ref, reason := range r.unsupported {
		all[ref] = []NodeRefusal{{Reason: reason}}
	}
	for node, list := range nodes {
		for _, o := range list {
			all[o.Object] = append(all[o.Object], NodeRefusal{node, o.Reason})
		}
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b NodeRefusal) int { return strings.Compare(a.Node, b.Node) })
	}
	return all
}

// SetUnsupported replaces the objects of which a system that programs all nodes, such as OVN, does
// not do all, with the reasons: they are refused on no node in particular.
func (h *Hub) SetUnsupported(objects map[intent.PolicyRef]string) {
	r := h.tally.refusals
	r.mu.Lock()
	r.unsupported = objects
	r.mu.Unlock()
	r.changed.Fire()
	h.tally.changed.Fire()
}

// Refused are the objects that switches refuse, by node, and those of SetUnsupported, without a
// node. Agents say so of their own nodes, and of policies only where the policy is for Ports of the
// node.
func (h *Hub) Refused() map[intent.PolicyRef][]NodeRefusal {
	all := h.tally.refusals.all()
	for ref, list := range all {
		switch ref.Kind {
		case intent.NetworkPolicy, intent.ClusterNetworkPolicy, intent.SecurityGroup:
			nodes := h.views.NodesOf(ref)
			all[ref] = slices.DeleteFunc(list, func(r NodeRefusal) bool {
				return r.Node != "" && !slices.Contains(nodes, r.Node)
			})
		}
		if len(all[ref]) == 0 {
			delete(all, ref)
		}
	}
	return all
}

// RefusedChanged has an element after Refused has changed; its capacity is one. An agent that moves
// to another controller is with none for a moment, so do not write what changes anywhere at once.
func (h *Hub) RefusedChanged() <-chan struct{} { return h.tally.refusals.changed }

// How often an agent may say what is refused, so that a stolen token does not
// keep the leader writing.
const (
	refusalInterval = time.Second
	refusalBurst    = 10
)

func refusalLimit() *rate.Limiter { return rate.NewLimiter(rate.Every(refusalInterval), refusalBurst) }
