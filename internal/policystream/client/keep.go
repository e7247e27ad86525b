// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"time"

	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/statefile"
)

// How long changes are gathered before they are written: a second, or longer where writing takes
// long; and the pause after a failure.
const (
	savePause   = time.Second
	saveShare   = 20 // a write takes at most this part of the time
	saveFailure = 30 * time.Second
)

// saveChanges writes what is known until ctx ends; what is new then is still written.
func (c *Client) saveChanges(ctx context.Context) {
	for pause := savePause; ; {
		select {
		case <-ctx.Done():
			select {
			case <-c.dirty:
				c.keep()
			default:
			}
			return
		case <-c.dirty:
		}
		retry.Sleep(ctx, pause)
		start := time.Now()
		if c.keep() {
			pause = max(savePause, saveShare*time.Since(start))
		} else {
			pause = saveFailure
		}
	}
}

// keep writes the file. If that fails, the agent works on, and there is no file: what an older one
// allows may be denied by now.
func (c *Client) keep() bool {
	c.mu.Lock()
	items := make([][]byte, 0, len(c.state.items))
	for _, e := range c.state.items {
		items = append(items, e.data)
	}
	basis := c.basis
	c.mu.Unlock()
	err := c.save(c.File, content{items, basis})
	if err == nil {
		c.update(func(s *Status) { s.SaveError = "" })
		return true
	}
	text := "a start without a controller would close all ports"
	if e := statefile.Remove(c.File); e != nil {
		err, text = errors.Join(err, e), "a start without a controller would enforce older ones"
	}
	before := c.Status().SaveError
	c.update(func(s *Status) { s.SaveError = err.Error(); s.SaveFailures++ })
	if before != err.Error() {
		c.Log.Error("cannot write policies to disk", "err", err, "consequence", text)
	}
	c.dirty.Fire()
	return false
}
