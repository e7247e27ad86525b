// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"coelan.io/coelan/internal/agent/blockipam"
	"coelan.io/coelan/internal/agent/egressclaims"
	"coelan.io/coelan/internal/agent/podplan"
	"coelan.io/coelan/internal/agent/portbinding"
	"coelan.io/coelan/internal/agent/portleases"
	"coelan.io/coelan/internal/agent/portstatus"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni"
)

// makeWriters makes what works on objects of the API: blocks, Ports, bindings.
func (a *Agent) makeWriters() {
	a.blocks = blockipam.New(a.Log, a.NodeName, a.Cluster, a.view, a.store)
	a.blocks.Subnets = a.Config.Subnets
	a.ports = portstatus.New(portstatus.Options{
		Log: a.Log, Node: a.NodeName, API: a.Cluster, View: a.view, Store: a.store, Singles: a.blocks,
		All:         a.Backend.AllPorts,
		Annotations: podplan.Annotations(podplan.Serves(a.Log, a.Config)),
	})
	a.claims = egressclaims.New(a.Log, a.NodeName, a.Cluster, a.view)
	a.leases = portleases.New(a.Log, a.NodeName, a.Cluster)
	a.guests = portbinding.New(portbinding.Options{
		Log: a.Log, Node: a.NodeName, Mapping: a.Config.Mapping, Guests: a.backend, API: a.Cluster, Blocks: a.blocks,
		View:  a.view,
		Store: a.store, Flows: a.dataplane(), Events: a.Events, MTU: func() int { return a.intent.State().Local().MTU },
	})
}

func (a *Agent) newPlanner() cni.Planner {
	return podplan.New(podplan.Options{
		Log: a.Log, Node: a.NodeName, Mapping: a.Config.Mapping, Serves: podplan.Serves(a.Log, a.Config),
		Connected: a.backend.Connected,
		InEffect:  a.networks.InEffect,
		View:      a.view, API: a.Cluster, Blocks: a.blocks, Store: a.store, Ports: a.ports, Events: a.Events,
	})
}

// attachmentsChanged passes on that attachments have come or gone.
func (a *Agent) attachmentsChanged(list []attachment.Attachment) {
	a.ports.Changed(list...)
	a.blocks.Kick()
	a.tellAttached(list)
}
