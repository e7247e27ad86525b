// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"coelan.io/coelan/internal/policystream/streamtest"
)

const agentsTimeout = 5 * time.Minute

// measurePolicyAgents connects 500 agents to a controller, and tells what that and
// some changes cost it.
func measurePolicyAgents(ctx context.Context) ([]Result, error) {
	ctx, cancel := context.WithTimeout(ctx, agentsTimeout)
	defer cancel()
	got, err := streamtest.DefaultLoad.Run(ctx)
	if err != nil {
		return nil, err
	}
	results := []Result{
		absolute("policy-agents-500-engine", "MB", got.EngineMiB*megabyte),
		absolute("policy-agents-500-streams", "MB", got.AgentsMiB*megabyte),
	}
	for _, step := range []struct {
		name string
		cost streamtest.Cost
	}{{"connect", got.Connect}, {"change", got.Change}, {"pod", got.Pod}, {"reconnect", got.Reconnect}} {
		name := "policy-agents-500-" + step.name
		results = append(results,
			absolute(name, "ms", milliseconds(step.cost.Time)),
			absolute(name+"-cpu", "ms", milliseconds(step.cost.CPU)),
			absolute(name+"-items", "items", float64(step.cost.Items)),
		)
	}
	return results, nil
}
