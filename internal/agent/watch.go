// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/kube"
)

// nodesChanged has the parts know that work with Node objects.
func (a *Agent) nodesChanged() {
	a.services.SetNodes(a.view.State().NodeList())
	if own := a.networks.Own(); own != nil {
		a.services.SetNode(own)
		a.warner.Seen(string(own.UID))
	}
}

// watchObjects makes intent of nodes, Networks, Routers, blocks and Ports, and remembers them.
func (a *Agent) watchObjects(ctx context.Context) error {
	return a.Cluster.WatchObjects(ctx, a.view.Updates(func() {
		defer a.health.loops.objects.Step()()
		a.networks.Refresh()
		a.services.Recheck()
		a.node.Publish()
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
