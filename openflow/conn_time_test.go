// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipe connects to a fake switch in memory, for tests with a clock of their own.
func pipe(t *testing.T, sw *fakeSwitch) *Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	go sw.serve(theirs)
	c, err := NewConn(t.Context(), ours, ConnOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A switch that only answers echo requests is alive forever.
func TestQuietSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sw := &fakeSwitch{}
		c := pipe(t, sw)
		defer c.Close()
		time.Sleep(10 * time.Minute)
		if c.Err() != nil {
			t.Errorf("given up: %v", c.Err())
		}
		if n := len(sw.seen()); n < 60 || n > 120 {
			t.Errorf("%d echo requests in ten minutes", n)
		}
	})
}

func TestDeadSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sw := &fakeSwitch{answer: func(*fakeConn, uint8, uint32, []byte) bool { return true }}
		c := pipe(t, sw)
		defer c.Close()
		start := time.Now()
		_, err := c.Features(t.Context())
		if err == nil || !strings.Contains(err.Error(), "silent for") {
			t.Errorf("error %v", err)
		}
		if d := time.Since(start); d < 30*time.Second || d > 40*time.Second {
			t.Errorf("given up after %v", d)
		}
	})
}

// Also one that does not read any more.
func TestStuckSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sw := &fakeSwitch{answer: func(*fakeConn, uint8, uint32, []byte) bool { time.Sleep(time.Hour); return true }}
		c := pipe(t, sw)
		defer c.Close()
		if err := c.Do(t.Context(), flows(100000)); err == nil || !strings.Contains(err.Error(), "silent for") {
			t.Errorf("error %v", err)
		}
		time.Sleep(2 * time.Hour)
	})
}
