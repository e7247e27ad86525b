// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/agent/dataplane"
	"coelan.io/coelan/internal/agent/installation"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/keymutex"
	"coelan.io/coelan/internal/trigger"
)

// pods answers the container runtime.
type pods struct {
	server *cni.Server
	// interfaces are locked while something works on them.
	interfaces keymutex.Mutex
	// collect starts a comparison of attachments and interfaces.
	collect trigger.Trigger
}

func newPods() *pods { return &pods{collect: trigger.New()} }

// serve makes the server of the plugin's requests.
func (p *pods) serve(a *Agent) {
	d := a.dataplane()
	p.server = cni.New(cni.Options{
		Store: a.store, Dataplane: d, Node: d, Interfaces: a.Links, Foreign: a.backend,
		Bridge:         a.Config.Bridge,
		OneBridge:      a.Config.Backend.Type != config.OVSBackend,
		KeepsAddresses: !a.Config.SNAT.Enabled,
		Recorder:       a.Events, Logger: a.Log, Observe: a.health.metrics.Request,
		Leases:  a.wire.pods,
		Planner: a.newPlanner(), Changed: a.attachmentsChanged, Reserved: a.backend.Reserves,
	})
}

// serveCNI answers the plugin from the start: a DEL works also while the agent is not ready, and an
// ADD gets an answer that says why it cannot be done.
func (a *Agent) serveCNI(ctx context.Context) error {
	l, err := cni.Listen(a.Config.CNI.Socket)
	if err != nil {
		return err
	}
	return a.pods.server.Serve(ctx, l)
}

// keepCNI tells the container runtime about the network when pods can be attached.
func (a *Agent) keepCNI(ctx context.Context) error {
	if a.health.conditions.Await(ctx) != nil {
		return nil
	}
	return installation.KeepCNI(ctx, a.Config, func(warnings []string, err error) {
		a.health.conditions.Set(condCNI, err)
		for _, w := range warnings {
			a.Log.Warn("another CNI configuration has precedence over Coelan's", "problem", w)
		}
	})
}

// collect makes attachments and the pods' interfaces agree when the agent has become ready, and
// each time something suggests that they do not.
func (a *Agent) collect(ctx context.Context) error {
	if a.health.conditions.Await(ctx) == nil {
		a.pods.server.KeepReconciled(ctx, a.pods.collect, func(r cni.Report) {
			a.health.metrics.Swept("attachment", len(r.Released))
			a.health.metrics.Swept("interface", len(r.Removed))
			a.health.metrics.Repaired(len(r.Repaired))
		})
	}
	return nil
}

// watchPods looks for attachments of pods that are gone: their DEL may have got lost.
func (a *Agent) watchPods(ctx context.Context) error {
	return a.Cluster.WatchPods(ctx, func(pods kube.Delta[*corev1.Pod]) {
		defer a.health.loops.pods.Step()()
		a.view.SetPods(pods)
		a.networks.Refresh()
		a.ports.PodsChanged()
		alive := a.view.State().Pods
		for _, at := range a.store.List() {
			if !at.IsPort() && alive.Get(at.PodUID) == nil {
				a.pods.collect.Fire()
				return
			}
		}
	})
}

// dataplane connects pods and guests.
func (a *Agent) dataplane() dataplane.Dataplane {
	d := dataplane.Dataplane{
		NodeName: a.NodeName, Intent: a.intent, Backend: a.backend, Conditions: a.health.conditions,
		Networks: a.networks, Neutron: a.Config.Backend.Type == config.NeutronBackend,
	}
	if a.Backend.AllPorts {
		d.Ports = a.ports
	}
	return d
}
