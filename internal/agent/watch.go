// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
	"time"

	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/kube"
)

// nodesChanged has the parts know that work with Node objects.
func (a *Agent) nodesChanged() {
	a.services.SetNodes(a.view.State().NodeList())
	if own := a.networks.Own(); own != nil {
		a.services.SetNode(own)
		a.warner.seen(string(own.UID))
	}
}

// watchObjects makes intent of nodes, Networks, Routers, blocks and Ports, and remembers them.
func (a *Agent) watchObjects(ctx context.Context) error {
	return a.Cluster.WatchObjects(ctx, a.view.Updates(func() {
		defer a.health.loops.objects.Step()()
		a.networks.Refresh()
		a.services.Recheck()
		a.publishPhysicalNetworks()
		a.publishConfiguration()
	}))
}

// catchUpTimeout is how long an agent that starts waits for the API server before it goes
// by what it remembers.
const catchUpTimeout = 500 * time.Millisecond

// catchUp waits a little for the API to be heard. What is remembered may lack what came in
// the moment before the last run was killed, and the first comparison with the switch would
// take its flows away.
func (a *Agent) catchUp(running context.Context) {
	ctx, cancel := context.WithTimeout(running, catchUpTimeout)
	defer cancel()
	a.view.Await(ctx, func(s apicache.State) bool {
		return s.Listed(apicache.Nodes) && s.Listed(kube.Networks) && s.Listed(kube.Routers) && s.Listed(kube.Blocks) &&
			s.Listed(kube.Ports)
	})
	// The view may know what is not intent yet.
	a.networks.Refresh()
	a.services.Recheck()
	a.awaitServices(running)
	a.awaitPolicies(running)
}

// warner tells by Events what is wrong with the node; the same only once.
type warner struct {
	node   string
	events Recorder

	mu   sync.Mutex
	uid  string // of the node's object
	told string
}

// seen takes the UID of the node's object. Before, there is nothing to attach an Event to.
func (w *warner) seen(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uid = uid
}

func (w *warner) warn(reason string, err error) {
	w.mu.Lock()
	uid, again := w.uid, w.told == err.Error()
	if uid != "" {
		w.told = err.Error()
	}
	w.mu.Unlock()
	if uid != "" && !again {
		w.events.NodeWarning(w.node, uid, reason, err.Error())
	}
}

// healthy has the next problem told although it was told before.
func (w *warner) healthy() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = ""
}
