// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"
)

// chunkLen is about how much is written at a time: enough that a system call
// costs nothing by message, little enough that others get their turn.
const chunkLen = 256 << 10

var chunks = sync.Pool{New: func() any { b := make([]byte, 0, chunkLen+MaxMessageLen); return &b }}

// newXID returns the first of n transaction ids in a row.
func (c *Conn) newXID(n int) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.xid > math.MaxUint32-uint32(n) {
		c.xid = 0
	}
	first := c.xid + 1
	c.xid += uint32(n)
	return first
}

// write sends messages with transaction ids from first on. When the switch does
// not read, it waits, as long as ctx lets it. An error of ctx in the middle of a
// message ends the connection, because the rest cannot be told apart then.
func (c *Conn) write(ctx context.Context, first uint32, msgs ...Message) error {
	chunk := chunks.Get().(*[]byte)
	defer chunks.Put(chunk)
	buf := (*chunk)[:0]
	for i, m := range msgs {
		var err error
		buf, err = AppendMessage(buf, first+uint32(i), m)
		if err != nil {
			return &MessageError{Index: i, Message: m, Err: err}
		}
		if len(buf) >= chunkLen || i == len(msgs)-1 {
			if err := c.writeBytes(ctx, buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	return nil
}

func (c *Conn) writeBytes(ctx context.Context, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	select {
	case c.writing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("openflow: the switch does not read: %w", ctx.Err())
	case <-c.done:
		return c.err
	}
	defer func() { <-c.writing }()

	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.nc.SetWriteDeadline(time.Unix(1, 0))
		close(cut)
	})
	n, err := c.nc.Write(b)
	if !stop() {
		<-cut
		_ = c.nc.SetWriteDeadline(time.Time{})
	}
	switch {
	case err == nil:
		return nil
	case n == 0 && ctx.Err() != nil:
		return fmt.Errorf("openflow: the switch does not read: %w", ctx.Err())
	}
	c.fail(err)
	return c.err
}
