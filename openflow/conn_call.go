// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"context"
	"fmt"
)

// Send sends messages and does not wait for the switch to process them. If it
// refuses one, the Handler gets the Error.
func (c *Conn) Send(ctx context.Context, msgs ...Message) error {
	return c.write(ctx, c.newXID(len(msgs)), msgs...)
}

// Request sends a message that is answered by one message and returns the
// answer. A refusal is an *Error.
func (c *Conn) Request(ctx context.Context, m Message) (Message, error) {
	k, err := c.call(ctx, m)
	if err != nil {
		return nil, err
	}
	return k.replies[0], nil
}

// Do sends messages and waits until the switch has processed them all. If it
// refused some, the error wraps a *MessageError for each of them, see Refusals;
// the others have been processed.
func (c *Conn) Do(ctx context.Context, msgs []Message) error {
	k, err := c.begin(ctx, append(msgs[:len(msgs):len(msgs)], &BarrierRequest{}))
	if err != nil {
		return err
	}
	if err := c.wait(ctx, k); err != nil {
		return err
	}
	return k.refusal(msgs)
}

// Barrier waits until the switch has processed everything sent before.
func (c *Conn) Barrier(ctx context.Context) error { return c.Do(ctx, nil) }

// Multipart sends a multipart request and returns all parts of the answer.
func (c *Conn) Multipart(ctx context.Context, request MultipartBody) ([]MultipartBody, error) {
	k, err := c.call(ctx, &MultipartRequest{Body: request})
	if err != nil {
		return nil, err
	}
	parts := make([]MultipartBody, 0, len(k.replies))
	for _, m := range k.replies {
		part, ok := m.(*MultipartReply)
		if !ok {
			return nil, fmt.Errorf("openflow: %T answers a multipart request", m)
		}
		parts = append(parts, part.Body)
	}
	return parts, nil
}

// call sends one message and waits for its answer, which is there if err is nil.
func (c *Conn) call(ctx context.Context, m Message) (*call, error) {
	k, err := c.begin(ctx, []Message{m})
	if err != nil {
		return nil, err
	}
	if err := c.wait(ctx, k); err != nil {
		return nil, err
	}
	if len(k.errors) > 0 {
		return nil, k.errors[0].err
	}
	return k, nil
}

// begin sends messages of which the last one is answered.
func (c *Conn) begin(ctx context.Context, msgs []Message) (*call, error) {
	first := c.newXID(len(msgs))
	last := first + uint32(len(msgs)-1)
	k := &call{first: first, last: last, end: last}
	return k, c.start(ctx, k, first, msgs...)
}

// start sends messages, with ids from xid on; their answer goes to k.
func (c *Conn) start(ctx context.Context, k *call, xid uint32, msgs ...Message) error {
	k.over = make(chan struct{})
	c.mu.Lock()
	c.calls[k.end] = k
	c.mu.Unlock()
	err := c.write(ctx, xid, msgs...)
	if err != nil {
		c.forget(k)
	}
	return err
}

// wait waits until k is over.
func (c *Conn) wait(ctx context.Context, k *call) error {
	select {
	case <-k.over:
	case <-c.done:
		select {
		case <-k.over: // the answer was the last thing that came
		default:
			return c.err
		}
	case <-ctx.Done():
		c.forget(k)
		return fmt.Errorf("openflow: no answer from the switch: %w", ctx.Err())
	}
	if k.bad != nil {
		return fmt.Errorf("openflow: answer cannot be read: %w", k.bad)
	}
	return nil
}

func (c *Conn) forget(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, k.end)
}

// refusal is the errors of those of msgs that the switch refused. An error about a
// message that followed them is returned as it is, if there is no other.
func (k *call) refusal(msgs []Message) error {
	var refused []error
	for _, e := range k.errors {
		if e.index >= 0 && e.index < len(msgs) {
			refused = append(refused, &MessageError{Index: e.index, Message: msgs[e.index], Err: e.err})
		}
	}
	if len(refused) == 0 && len(k.errors) > 0 {
		return k.errors[0].err
	}
	return joinRefusals(refused)
}
