// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"time"
)

// How long changes are gathered before they are written: a second, or longer where writing takes long; and the pause after
// a failure.
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
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		start := time.Now()
		if c.keep() {
			pause = max(savePause, saveShare*time.Since(start))
		} else {
			pause = saveFailure
		}
	}
}

// keep writes the file. If that fails, the agent works on; only a start without a controller would miss the changes.
func (c *Client) keep() bool {
	c.mu.Lock()
	items := make([][]byte, 0, len(c.state.items))
	for _, e := range c.state.items {
		items = append(items, e.data)
	}
	c.mu.Unlock()
	err := c.save(c.File, items)
	if err == nil {
		c.update(func(s *Status) { s.SaveError = "" })
		return true
	}
	if c.Status().SaveError != err.Error() {
		c.Log.Error("policies are not remembered: a start without a controller would enforce older ones", "err", err)
	}
	c.update(func(s *Status) { s.SaveError = err.Error(); s.SaveFailures++ })
	kick(c.dirty)
	return false
}
