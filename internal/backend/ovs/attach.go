// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/kernelview"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
)

// attacher connects attachments: their ports, flows and host ports.
type attacher struct {
	ports     *ports
	flows     *flows
	numbers   *numbers
	hostPorts *kernelview.HostPorts
}

// expect prepares for an attachment before its Port becomes intent: flows name the
// number of its port.
func (a *attacher) expect(at attachment.Attachment) { a.numbers.set(at.Key.String(), at.OFPort) }

// attach makes the port of an attachment, and returns when it forwards by the intent of that
// revision. The port and its flows are made at the same time: the flows name the port's number,
// which is known before Open vSwitch has the port.
func (a *attacher) attach(ctx context.Context, at attachment.Attachment, revision uint64) error {
	unlock, err := a.ports.interfaces.Lock(ctx, at.HostInterface)
	if err != nil {
		return fmt.Errorf("port %s: %w", at.HostInterface, err)
	}
	defer unlock()
	port := make(chan error, 1)
	go func() { port <- a.ports.make(ctx, at) }()
	flows := a.forwards(ctx, at, revision)
	if err := errors.Join(<-port, flows); err != nil {
		return fmt.Errorf("attach %s: %w", at.PodRef(), err)
	}
	if err := a.ports.links.SetUp(at.HostInterface); err != nil {
		return fmt.Errorf("attach %s: %w", at.PodRef(), err)
	}
	if err := a.hostPorts.Attach(at); err != nil {
		return fmt.Errorf("attach %s: %w", at.PodRef(), err)
	}
	return nil
}

// forwards returns when the flows of that revision of the intent, or of a newer one, are on the
// switch. It returns a *backend.RefusedError if the switch does not have an attachment's flows
// although it has all others.
func (a *attacher) forwards(ctx context.Context, at attachment.Attachment, revision uint64) error {
	if err := a.flows.wait(ctx, revision); err != nil {
		return err
	}
	return a.flows.of(at)
}

// detachTimeout is how long a DEL waits for a database that is away.
const detachTimeout = 3 * time.Second

// withdrawn returns when the flows of an attachment that is not in the intent of that revision are
// gone, or cannot be removed now: a later sync does it.
func (a *attacher) withdrawn(ctx context.Context, at attachment.Attachment, revision uint64) {
	a.numbers.delete(at.Key.String())
	if a.flows.connected() {
		ctx, cancel := context.WithTimeout(ctx, detachTimeout)
		defer cancel()
		_ = a.flows.wait(ctx, revision)
	}
}

// detach returns when the port of an attachment is gone, and the flows that it had before that
// revision of the intent. It succeeds also while Open vSwitch is away: what is left of a port
// without an attachment is removed as soon as it is seen.
func (a *attacher) detach(ctx context.Context, at attachment.Attachment, revision uint64) error {
	unlock, err := a.ports.interfaces.Lock(ctx, at.HostInterface)
	if err != nil {
		return fmt.Errorf("port %s: %w", at.HostInterface, err)
	}
	defer unlock()
	if err := a.hostPorts.Detach(at); err != nil {
		return fmt.Errorf("detach %s: %w", at.PodRef(), err)
	}
	bounded, cancel := context.WithTimeout(ctx, detachTimeout)
	defer cancel()
	err = a.ports.delete(bounded, at)
	if err != nil && !errors.Is(err, ovsdb.ErrNotConnected) {
		return fmt.Errorf("detach %s: %w", at.PodRef(), err)
	}
	a.withdrawn(bounded, at, revision)
	return nil
}

// check looks at the database and at the intent, not at each flow: a difference between intent and
// switch is the agent's own condition. A port that is being made anew is waited for: no packet gets
// through it before.
func (a *attacher) check(ctx context.Context, at attachment.Attachment) error {
	var names []string
	for _, p := range podPorts(a.ports.bridge, at) {
		names = append(names, p.Name)
	}
	if err := a.ports.db.Tried(ctx, names...); err != nil {
		return err
	}
	ports, err := a.ports.db.Ports(ctx)
	if err != nil {
		return err
	}
	if problem := a.ports.problem(at, byName(ports)); problem != nil {
		return fmt.Errorf("port %s of %s %s", problem.port, at.PodRef(), problem.text)
	}
	if err := a.ports.awaitSettled(ctx, at.Key); err != nil {
		return fmt.Errorf("port of %s: the datapath does not forward yet: %w", at.PodRef(), err)
	}
	state := a.ports.intent.State()
	if _, ok := state.Ports().Get(at.Key.String()); !ok {
		return fmt.Errorf("%s has no flows on bridge %s", at.PodRef(), a.ports.bridge)
	}
	if err := a.hostPorts.Check(at); err != nil {
		return err
	}
	return a.flows.of(at)
}
