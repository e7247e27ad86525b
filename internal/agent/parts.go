// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"coelan.io/coelan/internal/agent/blockipam"
	"coelan.io/coelan/internal/agent/egressclaims"
	"coelan.io/coelan/internal/agent/nodestatus"
	"coelan.io/coelan/internal/agent/podplan"
	"coelan.io/coelan/internal/agent/portbinding"
	"coelan.io/coelan/internal/agent/portleases"
	"coelan.io/coelan/internal/agent/portstatus"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/config"
)

// writers work on objects of the API: the node's own, its blocks, Ports, claims and guests.
type writers struct {
	node   *nodestatus.Status
	blocks *blockipam.Blocks
	ports  *portstatus.Publisher
	claims *egressclaims.Claims
	guests *portbinding.Binder
	leases *portleases.Leases
}

// keepBlocks is how long the blocks of a Network stay that has no pod any more on a node with the
// backend neutron: its ports there are made by Neutron's API, and go with the blocks. A pod that is
// replaced finds them.
const keepBlocks = time.Minute

func (a *Agent) makeWriters() {
	a.blocks = blockipam.New(a.Log, a.NodeName, a.Cluster, a.view, a.store)
	a.blocks.Subnets = a.Config.Subnets
	if a.Config.Backend.Type == config.NeutronBackend {
		a.blocks.Keep = keepBlocks
	}
	a.ports = portstatus.New(portstatus.Options{
		Log: a.Log, Node: a.NodeName, API: a.Cluster, View: a.view, Store: a.store, Singles: a.blocks,
		All:         a.Backend.AllPorts,
		Annotations: podplan.Annotations(podplan.Serves(a.Log, a.Config)),
	})
	a.node = nodestatus.New(nodestatus.Options{
		Log: a.Log, Intent: a.intent, Writer: a.ports,
		Own: a.networks.Own, PhysicalNetworks: a.backend.PhysicalNetworks,
	})
	if a.Configuration != nil {
		a.node.Configuration = a.Configuration.Report
	}
	a.claims = egressclaims.New(a.Log, a.NodeName, a.Cluster, a.view)
	a.leases = portleases.New(a.Log, a.NodeName, a.Cluster)
	a.guests = portbinding.New(portbinding.Options{
		Log: a.Log, Node: a.NodeName, Mapping: a.Config.Mapping, Guests: a.backend, API: a.Cluster, Blocks: a.blocks,
		View:  a.view,
		Store: a.store, Flows: a.dataplane(), Events: a.Events, MTU: func() int { return a.intent.State().Local().MTU },
		BoundFirst: a.Backend.AllPorts, Leases: a.wire.machines,
	})
}

func (a *Agent) newPlanner() cni.Planner {
	return podplan.New(podplan.Options{
		Log: a.Log, Node: a.NodeName, Mapping: a.Config.Mapping, Serves: podplan.Serves(a.Log, a.Config),
		Neutron:   a.Config.Backend.Type == config.NeutronBackend,
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
