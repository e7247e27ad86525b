// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"bufio"
	"io"
	"slices"
	"time"
)

// call is a request that waits for its answer, which has transaction id end.
// Errors of messages first to last belong to it, too. Only the reader changes
// it, until over is closed.
type call struct {
	first, last, end uint32
	replies          []Message
	errors           []callError
	bad              error // an answer that could not be read
	over             chan struct{}
}

// callError is a refusal of a message of a call.
type callError struct {
	index int // of the message; -1: the one with id end, if it is not among them
	err   *Error
}

// index is the place of the message with id xid, -1 if it is not in the call.
func (k *call) index(xid uint32) int {
	if xid < k.first || xid > k.last {
		return -1
	}
	return int(xid - k.first)
}

// readAll reads until the connection ends. It never waits for anything but the
// switch.
func (c *Conn) readAll() {
	r := bufio.NewReaderSize(c.nc, MaxMessageLen+1)
	buf := make([]byte, MaxMessageLen)
	for {
		if _, err := io.ReadFull(r, buf[:HeaderLen]); err != nil {
			c.fail(err)
			return
		}
		h, err := ParseHeader(buf[:HeaderLen])
		if err != nil {
			c.fail(err)
			return
		}
		if _, err := io.ReadFull(r, buf[HeaderLen:h.Length]); err != nil {
			c.fail(err)
			return
		}
		c.read.Store(time.Now().UnixNano())
		_, m, err := Decode(buf[:h.Length])
		if c.opts.Pack {
			packDumped(m)
		}
		c.deliver(h, m, err)
	}
}

// packDumped packs the actions in an answer with flows or groups.
func packDumped(m Message) {
	reply, ok := m.(*MultipartReply)
	if !ok {
		return
	}
	pack := func(actions *[]Action) {
		if len(*actions) > 0 {
			*actions = []Action{Pack(*actions...)}
		}
	}
	switch body := reply.Body.(type) {
	case FlowDescs:
		for i := range body {
			pack(&body[i].Flow.Actions)
			pack(&body[i].Flow.WriteActions)
		}
	case GroupDescs:
		for i := range body {
			body[i].Buckets = slices.Clip(body[i].Buckets)
			for j := range body[i].Buckets {
				pack(&body[i].Buckets[j].Actions)
			}
		}
	}
}

// deliver passes a message to the call or handler that waits for it.
func (c *Conn) deliver(h Header, m Message, bad error) {
	if echo, ok := m.(*EchoRequest); ok {
		select {
		case c.echoes <- echo.Data:
		default: // so many at once ask for no answer each
		}
		return
	}
	if c.answer(h.XID, m, bad) {
		return
	}
	switch m.(type) {
	case *EchoReply, *BarrierReply, *BundleControl:
		return // to a call that was given up
	}
	if bad != nil {
		c.log.Warn("cannot decode an OpenFlow message", "type", h.Type, "length", h.Length, "error", bad)
		return
	}
	if c.opts.Handler == nil {
		return
	}
	select {
	case c.unasked <- m:
	default:
		c.dropped.Add(1)
	}
}

// answer adds a message to the call it belongs to, if there is one.
func (c *Conn) answer(xid uint32, m Message, bad error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	ofErr, isErr := m.(*Error)
	k := c.calls[xid]
	if k == nil && isErr {
		for _, other := range c.calls {
			if i := other.index(xid); i >= 0 {
				other.errors = append(other.errors, callError{i, ofErr})
				return true
			}
		}
	}
	if k == nil {
		return false
	}
	more := false
	switch m := m.(type) {
	case *Error:
		k.errors = append(k.errors, callError{k.index(xid), m})
	case *MultipartReply:
		k.replies, more = append(k.replies, m), m.More
	default:
		k.replies = append(k.replies, m)
	}
	if bad != nil {
		k.bad = bad
	}
	if !more {
		delete(c.calls, xid)
		close(k.over)
	}
	return true
}
