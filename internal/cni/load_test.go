// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/cni/wire"
)

// Calls for one container wait for each other, those for different ones do not.
func TestConcurrency(t *testing.T) {
	w := newWorld(t)
	w.bridge.block, w.bridge.entered = make(chan struct{}), make(chan string)
	var wg sync.WaitGroup
	wg.Go(func() { w.must(addRequest("a")) })
	wg.Go(func() { w.must(addRequest("b")) })
	both := map[string]bool{<-w.bridge.entered: true, <-w.bridge.entered: true} // at the same time
	if !both["a"] || !both["b"] {
		t.Errorf("in Attach: %v, want a and b", both)
	}
	// While ADD of a is under way, its DEL waits, and gives up when its time is over.
	r := as("DEL", addRequest("a"))
	r.TimeoutMillis = 50
	if _, err := w.Handle(t.Context(), r); err == nil || err.Code != wire.CodeTryAgainLater || !strings.Contains(err.Error(), "another call for container a is still running") {
		t.Errorf("DEL during ADD: %v", err)
	}
	deleted := make(chan struct{})
	go func() { w.must(as("DEL", addRequest("a"))); close(deleted) }()
	close(w.bridge.block)
	<-deleted
	wg.Wait()
	if list := w.store.List(); len(list) != 1 || list[0].ContainerID != "b" {
		t.Errorf("attachments: %v, want only b", list)
	}
}

func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	w.node.node.PodCIDRs = prefixes("10.0.0.0/22")
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for n := range 25 {
				name := fmt.Sprintf("c%d-%d", worker, n)
				w.kernel.mu.Lock()
				w.kernel.pods["/run/netns/"+name] = map[string]podnet.Interface{}
				w.kernel.mu.Unlock()
				ctx, cancel := context.WithCancel(t.Context())
				if n%5 == 4 {
					cancel() // killed before, or half way
				}
				if _, err := w.Handle(ctx, addRequest(name)); (err != nil) != (n%5 == 4) {
					t.Errorf("ADD: %v", err)
				}
				cancel()
				for range n % 3 {
					w.must(as("DEL", addRequest(name)))
				}
				w.must(as("DEL", addRequest(name)))
			}
		})
	}
	wg.Wait()
	if got := w.snapshot(); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
}

// A runtime that gives up, or an agent's limit, ends an ADD, which then leaves nothing.
func TestADDThatTakesTooLong(t *testing.T) {
	for name, request := range map[string]func(w *world) *wire.Error{
		"plugin's limit": func(w *world) *wire.Error {
			r := addRequest("a")
			r.TimeoutMillis = 50
			_, err := w.Handle(t.Context(), r)
			return err
		},
		"plugin killed": func(w *world) *wire.Error {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-w.bridge.entered; cancel() }()
			_, err := w.Handle(ctx, addRequest("a"))
			return err
		},
		"agent's limit": func(w *world) *wire.Error {
			w.opts.Timeout = 50 * time.Millisecond
			_, err := w.Handle(t.Context(), addRequest("a"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.bridge.block, w.bridge.entered = make(chan struct{}), make(chan string, 1)
			if err := request(w); err == nil || err.Code != wire.CodeTryAgainLater {
				t.Errorf("error %v, want code 11", err)
			}
			if got := w.snapshot(); len(got) != 0 {
				t.Errorf("left behind: %v", got)
			}
		})
	}
}

// The agent gives up before the plugin does, so that the plugin receives the reason.
func TestTimeLeftForUndoing(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		millis int64
		want   time.Duration
	}{{0, 60 * time.Second}, {10_000, 8 * time.Second}, {3600_000, 60 * time.Second}} {
		if got := w.timeout(wire.Request{TimeoutMillis: tt.millis}); got != tt.want {
			t.Errorf("of a plugin that waits %d ms: %v, want %v", tt.millis, got, tt.want)
		}
	}
}
