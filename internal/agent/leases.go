// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"coelan.io/coelan/internal/agent/podleases"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/intent"
)

// wireSender is implemented by backends that can ask DHCP servers of physical networks: they send
// frames without a VLAN tag to that of a Network, and give the answers to backend.Hooks.Replied.
type wireSender interface {
	ToWire(ctx context.Context, network string, frame []byte) error
}

// makeLeases makes what has the addresses of pods on Networks with ipam DHCP.
func (a *Agent) makeLeases() (err error) {
	o := podleases.Options{
		Log: a.Log, Store: a.store, Withheld: a.refreshLeased, Events: a.Events,
		Leased: func(l backend.Lease) { a.leases.Set(l) },
	}
	if w, ok := a.backend.(wireSender); ok {
		o.Send = w.ToWire
	}
	a.podLeases, err = podleases.New(o)
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
