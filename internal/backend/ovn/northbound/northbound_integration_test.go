// SPDX-License-Identifier: Apache-2.0

//go:build integration

package northbound

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovn/compile"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// syncTimeout bounds every wait for a database to be as wanted.
const syncTimeout = time.Minute

// controller is a Client with the compiler that feeds it.
type controller struct {
	t        testing.TB
	client   *Client
	compiler *compile.Compiler
	reports  chan error

	mu    sync.Mutex
	state *intent.State
	used  *intent.State // what rows of the last comparison were compiled from
	stop  func()
}

func start(t testing.TB, remotes []string, s *intent.State, change func(*Options)) *controller {
	return startCluster(t, "", remotes, s, change)
}

// startCluster is start for the cluster of that name.
func startCluster(
	t testing.TB, cluster names.Cluster, remotes []string, s *intent.State, change func(*Options),
) *controller {
	compiler := compile.New(compile.Options{Cluster: cluster})
	c := &controller{t: t, compiler: compiler, reports: make(chan error, 1000), state: s, used: s}
	o := Options{Cluster: cluster, Remotes: remotes, Rows: c.rows, Report: c.report}
	if change != nil {
		change(&o)
	}
	c.client = New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.client.Run(ctx)
	}()
	c.stop = func() { cancel(); <-done }
	t.Cleanup(c.stop)
	return c
}

func (c *controller) rows() *nb.Rows {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compiler.Update(c.state)
	c.used = c.state
	return c.compiler.Rows()
}

// report notes an outcome. That a database is as it was wanted before is none.
func (c *controller) report(err error) {
	c.mu.Lock()
	former := c.used != c.state
	c.mu.Unlock()
	if err != nil || !former {
		c.reports <- err
	}
}

// set makes a State the one that is wanted.
func (c *controller) set(s *intent.State) {
	c.mu.Lock()
	c.state = s
	c.mu.Unlock()
	c.drain()
	c.client.Changed()
}

func (c *controller) drain() {
	for len(c.reports) > 0 {
		<-c.reports //nolint:errcheck // of before
	}
}

// until waits for a report.
func (c *controller) until(what string, ok func(error) bool) {
	c.t.Helper()
	after := time.After(syncTimeout)
	var last error
	for {
		select {
		case last = <-c.reports:
			if ok(last) {
				return
			}
		case <-after:
			c.t.Fatalf("%s: not after %v; the last report: %v", what, syncTimeout, last)
		}
	}
}

func (c *controller) synced() {
	c.t.Helper()
	c.until("in sync", func(err error) bool { return err == nil })
}

func (c *controller) fails(text string, target error) {
	c.t.Helper()
	c.until("fails", func(err error) bool {
		return err != nil && strings.Contains(err.Error(), text) && (target == nil || errors.Is(err, target))
	})
}
