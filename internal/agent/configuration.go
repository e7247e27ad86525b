// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/policystream/client"
)

// configurationCall asks a controller which configuration holds for the node.
func (a *Agent) configurationCall() client.Configuration {
	return client.Configuration{Log: a.Log, Received: a.Configuration.Received, Failed: a.Configuration.Failed}
}

// configurationCalls are made on the connection by which policies come; nil if there are none.
func (a *Agent) configurationCalls() client.Calls {
	if a.Configuration == nil {
		return nil
	}
	return a.configurationCall().Follow
}

// followConfiguration has the node's object say what it runs with, until ctx ends, and asks the
// controllers if policies do not come from them.
func (a *Agent) followConfiguration(ctx context.Context) error {
	if a.Configuration == nil {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !a.policed() && a.Controllers != nil && a.Config.Policy.ControllerPort != 0 {
			a.configurationCall().Run(ctx, a.Controllers(ctx), a.Namespace, client.TokenFile(a.Config.Policy.TokenFile))
		}
	}()
	defer func() { <-done }()
	for {
		changed := a.Configuration.Changed()
		a.node.PublishConfiguration()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// Admits says why this node cannot have a configuration in place of its own.
func (a *Agent) Admits(ctx context.Context, c config.Config) error { return a.backend.Admits(ctx, c) }

// Settled returns when the agent can attach pods and the node is connected to these physical
// networks, or says when ctx ends what is missing.
func (a *Agent) Settled(ctx context.Context, physical []string) error {
	if err := a.health.conditions.Await(ctx); err != nil {
		return err
	}
	for {
		looked := a.looked.Changed()
		err := a.unconnected(physical)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-looked:
		}
	}
}

// unconnected says to which of these physical networks the node is not connected, and why.
func (a *Agent) unconnected(physical []string) error {
	known := a.backend.PhysicalNetworks()
	for _, name := range physical {
		if err := a.backend.Connected(name); err != nil {
			return fmt.Errorf("physical network %s: %w", name, err)
		}
		if !known[name] {
			return fmt.Errorf("physical network %s: it is not known yet whether the node is connected", name)
		}
	}
	return nil
}
