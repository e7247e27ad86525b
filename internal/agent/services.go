// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"coelan.io/coelan/internal/agent/installation"
	"coelan.io/coelan/internal/agent/services"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

func (a *Agent) newServices() *services.Services {
	return services.New(services.Options{
		Log: a.Log, Config: a.Config.Services, Mapping: a.Config.Mapping, Node: a.NodeName,
		File:   a.Config.StateFile(installation.Services),
		Intent: a.intent, View: a.view, Events: a.Events,
		Applied:     a.backend.Applied,
		Connections: a.backend,
		Changed:     func(before, after *intent.State) { a.announce.ServicesChanged(before, after) },
		Observe:     a.health.metrics.ServiceSync,
		Healthy:     a.health.conditions.Forwarding,
		Step:        a.health.loops.services.Step,
	})
}

// native says whether the bridge balances Services.
func (a *Agent) native() bool { return a.Config.Services.Mode == config.NativeServices }

// loadServices makes intent of the Services that were known when the agent ran last. What cannot be
// read is left out: the API tells of it again.
func (a *Agent) loadServices(tx *intent.Tx) {
	remembered, err := services.Load(a.Config.StateFile(installation.Services))
	if err != nil {
		a.Log.Error("cannot read all Services of the cache on disk; the missing ones come from the API", "err", err)
	}
	ranges := remembered.Ranges
	for _, p := range a.Config.Services.CIDRs {
		ranges = append(ranges, intent.ServiceRange{Prefix: p})
	}
	tx.ReplaceServiceRanges(ranges)
	if a.native() {
		remembered.Apply(tx)
	}
}

// servicesTimeout is how long an agent that starts waits for the API's lists of Services,
// rather than have the switch follow for a moment what it remembers of them. The switch goes
// on as before meanwhile.
const servicesTimeout = 10 * time.Second

// awaitServices waits for the API's Services, unless it does not answer.
func (a *Agent) awaitServices(ctx context.Context) {
	if !a.native() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, servicesTimeout)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-a.services.Ready():
	case <-a.services.Away():
	}
}
