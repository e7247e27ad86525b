// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/trigger"
)

// The errors that callers tell apart.
var (
	// ErrUnreachable is wrapped by errors of a database that does not answer.
	ErrUnreachable = errors.New("OVN's northbound database does not answer")
	// ErrReadOnly is wrapped by the error of a database that takes no changes.
	ErrReadOnly = errors.New("OVN's northbound database is read-only")
)

// Pauses between attempts to connect, and between attempts to write what was refused.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

// DefaultProbe is how often a server is asked for an echo, and how long that may take.
const DefaultProbe = 10 * time.Second

// Options of a Client. Remotes and Rows are needed.
type Options struct {
	Cluster names.Cluster
	// Remotes are the servers of the database, such as unix:/run/ovn/ovnnb_db.sock,
	// tcp:10.0.0.1:6641 or ssl:[fd00::1]:6641: one, or those of a RAFT cluster, of which the
	// leader is used.
	Remotes []string
	TLS     *tls.Config   // for ssl
	Probe   time.Duration // 0: DefaultProbe
	// Rows brings what is wanted up to date and returns it. It is called before each comparison, by
	// the goroutine of Run, which alone uses the rows.
	Rows func() *nb.Rows
	// Report, if set, is called after each comparison, and when a connection fails: nil says that
	// the database is as wanted.
	Report func(error)
	Log    *slog.Logger // slog.Default without
}

// Client makes a northbound database be as wanted.
type Client struct {
	o       Options
	changed trigger.Trigger
	// transactions are how many the database took.
	transactions atomic.Int64
	current      atomic.Pointer[session] // nil: none
	questions    chan question
}

// New returns a Client that Run lets work.
func New(o Options) *Client {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Probe == 0 {
		o.Probe = DefaultProbe
	}
	if o.Report == nil {
		o.Report = func(error) {}
	}
	return &Client{o: o, changed: trigger.New(), questions: make(chan question)}
}

// Changed says that Rows has something else.
func (c *Client) Changed() { c.changed.Fire() }

// Transactions is how many the database took.
func (c *Client) Transactions() int64 { return c.transactions.Load() }

// Run connects, again after each loss, and keeps the database as wanted until ctx ends.
func (c *Client) Run(ctx context.Context) {
	pause, last := retry.New(firstPause, lastPause), ""
	for ctx.Err() == nil {
		began := time.Now()
		err := c.connection(ctx)
		if ctx.Err() != nil {
			return
		}
		c.o.Report(err)
		if err.Error() != last { // each reason once
			last = err.Error()
			c.o.Log.Warn("no connection to OVN's northbound database, trying again", "error", err)
		}
		if time.Since(began) > lastPause {
			pause.Reset()
		}
		pause.Wait(ctx)
	}
}

// connection is one connection from its beginning to its end, and says why it ended.
func (c *Client) connection(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := connect(ctx, c.o, c.changed)
	if err != nil {
		return c.unreachable(err)
	}
	defer s.cli.Close()
	c.current.Store(s)
	defer c.current.Store(nil)
	c.o.Log.Info("connected to OVN's northbound database", "remote", s.cli.CurrentEndpoint())
	go s.probe(ctx, c.o.Probe)
	w := writer{session: s, client: c, pending: map[nb.Ref]*nb.Change{}, all: true}
	again := retry.New(firstPause, lastPause)
	var asked questions
	for {
		err := w.pass(ctx)
		if s.ended() {
			return c.unreachable(errors.New("the connection was lost"))
		}
		if ctx.Err() == nil && !w.behind() {
			c.o.Report(err)
			asked.answer(&w, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.done:
			return c.unreachable(errors.New("the connection was lost"))
		case <-c.changed:
		case q := <-c.questions:
			asked = append(asked, q)
		case <-asked.due():
		case <-again.After(err):
		}
	}
}

func (c *Client) unreachable(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w at %s: %w", ErrUnreachable, strings.Join(c.o.Remotes, ","), err)
}
