// SPDX-License-Identifier: Apache-2.0

// Package dataplane connects the interfaces of pods and guests: it makes their Ports intent, and
// waits until the backend has brought them about.
package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"coelan.io/coelan/internal/agent/networks"
	"coelan.io/coelan/internal/agent/portbinding"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/conditions"
	"coelan.io/coelan/internal/intent"
)

// Dataplane is one node's.
type Dataplane struct {
	NodeName   string
	Intent     *intent.Store
	Backend    Backend
	Conditions *conditions.Set
	Networks   *networks.Source
	// Neutron says that the backend is OpenStack's, of which a node can be a machine.
	Neutron bool
	// Ports has the Port objects of pods written before they are attached; nil: nothing waits for
	// them.
	Ports Ports
}

// Ports writes Port objects.
type Ports interface {
	Write(ctx context.Context, at attachment.Attachment) error
	Remove(at attachment.Attachment)
}

// Backend brings about what intent says of attachments; the agent's interface of that name
// describes the methods.
type Backend interface {
	Expect(at attachment.Attachment)
	Attach(ctx context.Context, at attachment.Attachment, revision uint64) error
	Detach(ctx context.Context, at attachment.Attachment, revision uint64) error
	Check(ctx context.Context, at attachment.Attachment) error
	Forwards(ctx context.Context, at attachment.Attachment, revision uint64) error
	Withdrawn(ctx context.Context, at attachment.Attachment, revision uint64)
}

var (
	_ cni.Dataplane     = Dataplane{}
	_ cni.NodeSource    = Dataplane{}
	_ portbinding.Flows = Dataplane{}
)

// ReadyTimeout is how long an ADD waits for an agent that has just started, or a backend that comes
// back. The runtime tries again, so the wait is short.
const ReadyTimeout = 5 * time.Second

// Attach implements cni.Dataplane.
func (d Dataplane) Attach(ctx context.Context, at attachment.Attachment) error {
	ready, cancel := context.WithTimeout(ctx, ReadyTimeout)
	defer cancel()
	if err := d.Conditions.Await(ready); err != nil {
		return err
	}
	if d.Ports != nil {
		if err := d.Ports.Write(ctx, at); err != nil {
			return err
		}
	}
	revision, err := d.set(at)
	if err != nil {
		return err
	}
	return d.Backend.Attach(ctx, at, revision)
}

// set makes an attachment's Port intent.
func (d Dataplane) set(at attachment.Attachment) (revision uint64, err error) {
	d.Backend.Expect(at)
	return d.update(func(tx *intent.Tx) { tx.SetPort(d.Networks.Port(at)) })
}

// remove deletes an attachment's Port from intent.
func (d Dataplane) remove(at attachment.Attachment) (revision uint64, err error) {
	return d.update(func(tx *intent.Tx) { tx.DeletePort(at.Key.String()) })
}

func (d Dataplane) update(change func(*intent.Tx)) (revision uint64, err error) {
	state, err := d.Intent.Update(func(tx *intent.Tx) error { change(tx); return nil })
	if err != nil {
		return 0, err
	}
	return state.Revision(), nil
}

// Detach implements cni.Dataplane.
func (d Dataplane) Detach(ctx context.Context, at attachment.Attachment) error {
	if d.Ports != nil {
		d.Ports.Remove(at)
	}
	revision, err := d.remove(at)
	if err != nil {
		return err
	}
	return d.Backend.Detach(ctx, at, revision)
}

// Check implements cni.Dataplane.
func (d Dataplane) Check(ctx context.Context, at attachment.Attachment) error {
	if err := d.Conditions.Attaching(); err != nil {
		return fmt.Errorf("agent is not ready: %w", err)
	}
	return d.Backend.Check(ctx, at)
}

// Ready implements cni.Dataplane.
func (d Dataplane) Ready(context.Context) error {
	err := d.Conditions.Attaching()
	var unmet *conditions.UnmetError
	if errors.As(err, &unmet) && unmet.Condition.Limits {
		return fmt.Errorf("%w: %w", cni.ErrLimited, err)
	}
	return err
}

// Node implements cni.NodeSource.
func (d Dataplane) Node() (cni.Node, error) {
	s := d.Intent.State()
	n, err := backend.OwnNode(s, d.NodeName)
	if err != nil {
		return cni.Node{}, err
	}
	local := s.Local()
	if local.Node == "" {
		return cni.Node{}, fmt.Errorf("agent is not ready: %w", d.Conditions.Attaching())
	}
	return cni.Node{
		PodCIDRs: n.Prefixes(), MTU: local.MTU, TXOffload: local.Datapath == intent.DatapathSystem,
		Trunk:     d.Neutron && n.TrunkPort != "",
		NetworkID: intent.DefaultNetwork, Cluster: func() []netip.Prefix { return networks.Cluster(s) },
	}, nil
}

// Connect implements portbinding.Flows.
func (d Dataplane) Connect(ctx context.Context, at attachment.Attachment) error {
	revision, err := d.set(at)
	if err != nil {
		return err
	}
	return d.Backend.Forwards(ctx, at, revision)
}

// Disconnect implements portbinding.Flows.
func (d Dataplane) Disconnect(ctx context.Context, at attachment.Attachment) error {
	revision, err := d.remove(at)
	if err != nil {
		return err
	}
	// If another node has bound the Port meanwhile, it is that one's from now on.
	d.Networks.Refresh()
	d.Backend.Withdrawn(ctx, at, revision)
	return nil
}

// Network implements portbinding.Flows.
func (d Dataplane) Network(name string) (intent.Network, bool) {
	return d.Intent.State().Networks().Get(name)
}

// NodeExists implements portbinding.Flows.
func (d Dataplane) NodeExists(name string) bool {
	_, ok := d.Intent.State().Nodes().Get(name)
	return ok
}
