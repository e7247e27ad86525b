// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/agent/view"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

// watchObjects makes intent of Networks, Routers, blocks and Ports, and remembers them.
func (a *Agent) watchObjects(ctx context.Context) error {
	return a.opts.Cluster.WatchObjects(ctx, a.view.Updates(func() {
		a.refreshNetworks()
		a.services.Recheck()
		a.hostFollows()
	}))
}

// catchUpTimeout is how long an agent that starts waits for the API server before it goes by what it remembers.
const catchUpTimeout = 500 * time.Millisecond

// catchUp waits a little for the API to be heard. What is remembered may lack what came in the moment before the last run
// was killed, and the first comparison with the switch would take its flows away.
func (a *Agent) catchUp(running context.Context) {
	ctx, cancel := context.WithTimeout(running, catchUpTimeout)
	defer cancel()
	a.view.Await(ctx, func(s view.State) bool {
		return a.nodesHeard.Load() && s.Listed(kube.Networks) && s.Listed(kube.Routers) && s.Listed(kube.Blocks) && s.Listed(kube.Ports)
	})
	// Whoever has told the view may not have come to this yet.
	a.refreshNetworks()
	a.services.Recheck()
	a.awaitServices(running)
	a.awaitPolicies(running)
}

// networkIntent is what the objects of coelan.io come to.
type networkIntent struct {
	routers  []intent.Router
	networks []intent.Network
	blocks   []intent.Block
	ports    []intent.Port // of other nodes
}

// translateNetworks makes intent of what is known, and tells once about what cannot be used. A Network that was made for
// another node means nothing here.
func (a *Agent) translateNetworks(s view.State) networkIntent {
	objects := slices.DeleteFunc(s.NetworkList(), func(n *v1alpha1.Network) bool {
		return n.Spec.Node != "" && n.Spec.Node != a.opts.NodeName
	})
	var i networkIntent
	var problems, more, evenMore []translate.Problem
	i.routers, i.networks, problems = translate.Networks(s.RouterList(), objects, a.uplinks)
	i.blocks, more = translate.Blocks(s.BlockList(), i.networks)
	i.ports, evenMore = translate.FixedPorts(s.PortList(), a.opts.NodeName)
	problems = slices.Concat(problems, more, evenMore)
	a.mu.Lock()
	old := a.networkProblems
	a.networkProblems = problems
	a.mu.Unlock()
	for _, p := range problems {
		if !slices.Contains(old, p) {
			a.log.Warn("a value of an object is left out", "err", p)
		}
	}
	return i
}

// apply replaces what other nodes and the API decide, and leaves the ports of this node alone. One that this node has
// bound is its own, also while the API says that it is another's.
func (i networkIntent) apply(tx *intent.Tx, before *intent.State, node string) {
	tx.ReplaceNetworks(i.routers, i.networks, i.blocks)
	own, keep := map[string]bool{}, map[string]bool{}
	for p := range before.Ports().All() {
		own[p.ID] = p.Node == node
	}
	for _, p := range i.ports {
		keep[p.ID] = true
		if !own[p.ID] {
			tx.SetPort(p)
		}
	}
	for id, mine := range own {
		if !mine && !keep[id] {
			tx.DeletePort(id)
		}
	}
}

// refreshNetworks brings intent to what the view knows now.
func (a *Agent) refreshNetworks() {
	a.translating.Lock()
	defer a.translating.Unlock()
	networks := a.translateNetworks(a.view.State())
	before := a.intent.State()
	after, err := a.intent.Update(func(tx *intent.Tx) error {
		networks.apply(tx, a.intent.State(), a.opts.NodeName)
		a.refreshAudited(tx)
		return nil
	})
	if err != nil {
		a.log.Error("networks", "err", err)
		return
	}
	if before != after {
		// Somebody may wait for the Network to be in effect, and the host's routes may be others.
		a.view.Touch()
		a.kick()
	}
}

// localPorts counts the ports of this node.
func localPorts(s *intent.State) int {
	n := 0
	for p := range s.Ports().All() {
		if p.OFPort != 0 {
			n++
		}
	}
	return n
}
