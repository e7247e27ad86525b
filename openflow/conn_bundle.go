// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const bundleFlags = BundleAtomic | BundleOrdered

// Bundle makes the switch apply all messages, in order, or none of them; no
// packet sees a state in between. Flow mods, group mods and packet-outs can be
// in a bundle, meter mods cannot. If the switch refuses some, the error
// wraps a *MessageError for each that it names; see Refusals.
func (c *Conn) Bundle(ctx context.Context, msgs []Message) error {
	if len(msgs) == 0 {
		return nil
	}
	id := c.newXID(1) // as good a number as any
	filled, err := c.fillBundle(ctx, id, msgs)
	if err != nil {
		c.discardBundle(id)
		return err
	}
	return c.commitBundle(ctx, id, filled, msgs)
}

// fillBundle opens a bundle and adds the messages. Open vSwitch checks some of
// what a message says when it is added, and a commit would apply the others: so
// all errors must be in before the commit.
func (c *Conn) fillBundle(ctx context.Context, id uint32, msgs []Message) (*call, error) {
	all := make([]Message, 0, len(msgs)+2)
	all = append(all, &BundleControl{BundleID: id, Type: BundleOpenRequest, Flags: bundleFlags})
	for _, m := range msgs {
		all = append(all, &BundleAdd{BundleID: id, Flags: bundleFlags, Message: m})
	}
	k, err := c.begin(ctx, append(all, &BarrierRequest{}))
	var tooLong *MessageError
	if errors.As(err, &tooLong) && tooLong.Index > 0 && tooLong.Index <= len(msgs) {
		return nil, &MessageError{Index: tooLong.Index - 1, Message: msgs[tooLong.Index-1], Err: tooLong.Err}
	}
	if err != nil {
		return nil, err
	}
	if err := c.wait(ctx, k); err != nil {
		return nil, err
	}
	return k, k.bundleError(msgs)
}

// commitBundle commits what filled says has been added.
func (c *Conn) commitBundle(ctx context.Context, id uint32, filled *call, msgs []Message) error {
	xid := c.newXID(1)
	k := &call{first: filled.first, last: filled.last, end: xid}
	commit := &BundleControl{BundleID: id, Type: BundleCommitRequest, Flags: bundleFlags}
	if err := c.start(ctx, k, xid, commit); err != nil {
		return err
	}
	if err := c.wait(ctx, k); err != nil {
		return err
	}
	return k.bundleError(msgs)
}

// discardBundle makes the switch discard a bundle, without waiting for that: a bundle that stays
// costs memory only, until the switch finds it idle.
func (c *Conn) discardBundle(id uint32) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Send(ctx, &BundleControl{BundleID: id, Type: BundleDiscardRequest, Flags: bundleFlags})
}

// bundleError is the errors of those of msgs that were refused, else that of the
// bundle itself. A call's messages are the open request, msgs, the barrier.
func (k *call) bundleError(msgs []Message) error {
	var refused []error
	for _, e := range k.errors {
		if e.index > 0 && e.index <= len(msgs) {
			refused = append(refused, &MessageError{Index: e.index - 1, Message: msgs[e.index-1], Err: e.err})
		}
	}
	if len(refused) > 0 {
		return joinRefusals(refused)
	}
	if len(k.errors) > 0 {
		return fmt.Errorf("openflow: bundle refused: %w", k.errors[0].err)
	}
	return nil
}
