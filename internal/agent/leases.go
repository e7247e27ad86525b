// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"coelan.io/coelan/internal/agent/dhcprelay"
	"coelan.io/coelan/internal/agent/guestleases"
	"coelan.io/coelan/internal/agent/podleases"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/intent"
)

// wireSender is implemented by backends that can ask DHCP servers of physical networks: they send
// frames without a VLAN tag to that of a Network, and give the answers to backend.Hooks.Replied.
// What machines ask by themselves they give to backend.Hooks.Asked.
type wireSender interface {
	ToWire(ctx context.Context, network string, frame []byte) error
	// ToMachine sends a frame to the Port with that ID.
	ToMachine(ctx context.Context, port string, frame []byte) error
}

// wireLeases are of Networks with ipam DHCP: of pods, and of machines that ask by themselves.
type wireLeases struct {
	pods     *podleases.Leases
	machines *guestleases.Leases
	relay    *dhcprelay.Relay
}

// received takes what a server of a Network answers.
func (w *wireLeases) received(network string, frame []byte) {
	w.pods.Received(network, frame)
	w.machines.Answered(network, frame)
}

// servers names the servers of a Network that the node asks, and what is wrong with what a Port has
// asked them.
func (w *wireLeases) servers(network, port string) (which, problem string) {
	if w.relay.Relays(network) {
		return w.relay.Servers(network, port)
	}
	return "DHCP server of its physical network", ""
}

// makeLeases makes them.
func (a *Agent) makeLeases() (err error) {
	a.wire.relay = dhcprelay.New(dhcprelay.Options{
		Log: a.Log, Intent: a.intent, Received: a.wire.received, Metrics: a.health.metrics.Registry,
		Warn: func(reason string, err error) bool {
			ready := a.warner.Ready()
			a.warner.Warn(reason, err)
			return ready
		},
	})
	leased := func(l backend.Lease) { a.leases.Set(l) }
	pods := podleases.Options{
		Log: a.Log, Store: a.store, Servers: a.wire.servers, Withheld: a.refreshLeased, Leased: leased,
		Events: a.Events,
	}
	machines := guestleases.Options{
		Log: a.Log, Store: a.store, Servers: a.wire.servers, Leased: leased, Events: a.Events,
		Changed: func() { a.guests.Kick() },
		Connect: func(ctx context.Context, at attachment.Attachment) error { return a.dataplane().Connect(ctx, at) },
	}
	if w, ok := a.backend.(wireSender); ok {
		ask := func(ctx context.Context, network, port string, frame []byte) error {
			if a.wire.relay.Relays(network) {
				return a.wire.relay.Ask(ctx, network, port, frame)
			}
			return w.ToWire(ctx, network, frame)
		}
		pods.Send, machines.Ask, machines.Deliver = ask, ask, w.ToMachine
	}
	if a.wire.pods, err = podleases.New(pods); err != nil {
		return err
	}
	a.wire.machines, err = guestleases.New(machines)
	return err
}

// refreshLeased has the Port of an attachment send as its lease says.
func (a *Agent) refreshLeased(k attachment.Key) {
	_, err := a.intent.Update(func(tx *intent.Tx) error {
		at, attached := a.store.Get(k)
		if _, connected := a.intent.State().Ports().Get(k.String()); attached && connected {
			tx.SetPort(a.networks.Port(at))
		}
		return nil
	})
	if err != nil {
		a.Log.Error("cannot follow the lease of a pod", "attachment", k, "err", err)
	}
}
