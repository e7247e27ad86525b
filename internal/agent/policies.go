// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"coelan.io/coelan/internal/agent/installation"
	"coelan.io/coelan/internal/agent/policies"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policy/evaluate"
	"coelan.io/coelan/internal/policystream/client"
)

// policed says whether policies are enforced.
func (a *Agent) policed() bool { return a.Config.Policy.Mode == config.EnforcedPolicies }

// newPolicies makes what follows policies; nil if they are not enforced.
func (a *Agent) newPolicies(ctx context.Context) *policies.Policies {
	if !a.policed() {
		return nil
	}
	controllers := client.Fixed(nil)
	if a.Controllers != nil {
		controllers = a.Controllers(ctx)
	}
	return policies.New(policies.Options{
		Log: a.Log, Intent: a.intent, Applied: a.backend.Applied,
		Observe: a.health.metrics.PolicySync,
		NewClient: func(changed func(client.Change)) policies.Client {
			return client.New(client.Options{
				Node: a.NodeName, Namespace: a.Namespace, File: a.Config.StateFile(installation.Policies), Log: a.Log,
				Controllers: controllers, Token: client.TokenFile(a.Config.Policy.TokenFile),
				Beside: a.configurationCalls(),
				OnChange: func(c client.Change) {
					defer a.health.loops.policies.Step()()
					changed(c)
				},
			})
		},
	})
}

// loadPolicies makes intent of the policies that were known when the agent ran last.
func (a *Agent) loadPolicies(tx *intent.Tx) {
	if a.policies != nil {
		a.policies.Load(tx)
	}
}

// followPolicies does what a controller says until ctx ends.
func (a *Agent) followPolicies(ctx context.Context) error {
	if a.policies == nil {
		return nil
	}
	return a.policies.Run(ctx)
}

// tellAttached sends the addresses of new pods to other nodes: kubelet writes them to the API only
// a second or so later. Those on further Networks have Ports in the API at once.
func (a *Agent) tellAttached(list []attachment.Attachment) {
	if a.policies == nil {
		return
	}
	ports := a.intent.State().Ports()
	for _, at := range list {
		p, there := ports.Get(at.Key.String())
		if there && p.Network == intent.DefaultNetworkName && evaluate.PoliciesApply(p) && !at.IsPort() {
			a.policies.Attached(policy.Attachment{Namespace: p.Namespace, Name: p.Pod, Subject: p.SubjectKey(),
				Addresses: p.Addresses})
		}
	}
}

// policiesTimeout is how long an agent that starts waits for the policies of now, rather than have
// the switch follow for a moment what it remembers of them. The switch goes on as before meanwhile.
const policiesTimeout = 2 * time.Second

// awaitPolicies waits a little for a controller.
func (a *Agent) awaitPolicies(ctx context.Context) {
	if a.policies == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, policiesTimeout)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-a.policies.Complete():
	}
}
