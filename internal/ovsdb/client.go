// SPDX-License-Identifier: Apache-2.0

// Package ovsdb keeps bridges and ports in an Open vSwitch database as they
// should be, and waits until ovs-vswitchd has made them so.
//
// Everything it makes carries external_ids:coelan-owner=coelan; what does not
// is never changed or removed.
package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// OwnerKey and OwnerValue are the external_ids entry of what is Coelan's.
const (
	OwnerKey   = "coelan-owner"
	OwnerValue = "coelan"
)

const (
	minBackoff     = 10 * time.Millisecond
	maxBackoff     = 250 * time.Millisecond
	connectTimeout = 5 * time.Second
	// DefaultTimeout bounds a call whose context has no deadline.
	DefaultTimeout = 10 * time.Second
)

// ErrNotConnected is wrapped by errors of calls that found no database.
var ErrNotConnected = errors.New("the Open vSwitch database does not answer")

// Options says which database a Client is for.
type Options struct {
	// Socket is the path of the database's unix socket, for example
	// /run/openvswitch/db.sock.
	Socket string
	// Logger defaults to slog.Default.
	Logger *slog.Logger
	// OnConnect, if set, is called after each connection, the first included,
	// when the view of the database is complete: the database may be another
	// one than before, so everything should be ensured again. It must not block.
	OnConnect func()
	// OnDisconnect, if set, is called after each loss of a connection. It must
	// not block.
	OnDisconnect func(error)
}

// Client is a live view of one Open vSwitch database. It connects by itself
// and again after a loss; calls made meanwhile wait, as long as their context
// lets them. It is safe for concurrent use.
type Client struct {
	opts   Options
	log    *slog.Logger
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	session *session      // nil while there is no connection
	lastErr error         // why not
	changed chan struct{} // closed and replaced whenever the view changes
	// awaited are ports that a call waits for, with the OpenFlow number that the
	// switch gave meanwhile (PortAdded), and how many calls wait.
	awaited map[string]*awaited
}

type awaited struct{ calls, ofport int }

// Open starts a client. It does not wait for a connection: WaitConnected does.
func Open(opts Options) *Client {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{
		opts: opts, log: opts.Logger, cancel: cancel,
		ended: make(chan struct{}), changed: make(chan struct{}), awaited: map[string]*awaited{},
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	go func() {
		defer close(c.ended)
		c.run(ctx)
	}()
	return c
}

// Close ends the connection and waits until everything has stopped.
func (c *Client) Close() {
	c.cancel()
	<-c.ended
}

// WaitConnected waits for a connection. Its error says why there is none.
func (c *Client) WaitConnected(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := c.current(ctx)
	return err
}

// Watch returns a channel that receives after each change of the view, several
// changes at a time if the reader is slow. Stop it when it is not needed.
func (c *Client) Watch() (changes <-chan struct{}, stop func()) {
	out := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(context.Background())
	changed := c.changes()
	go func() {
		for {
			select {
			case <-changed:
				changed = c.changes()
			case <-c.ended:
				return
			case <-ctx.Done():
				return
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out, cancel
}

func (c *Client) run(ctx context.Context) {
	backoff := minBackoff
	for ctx.Err() == nil {
		s, err := connect(ctx, c.opts.Socket, c.broadcast)
		if err != nil {
			if c.setSession(nil, err) {
				c.log.Warn("Open vSwitch database cannot be reached", "socket", c.opts.Socket, "error", err)
			}
			wait(ctx, backoff)
			backoff = min(2*backoff, maxBackoff)
			continue
		}
		backoff = minBackoff
		c.setSession(s, nil)
		c.log.Info("Open vSwitch database connected", "socket", c.opts.Socket)
		if c.opts.OnConnect != nil {
			c.opts.OnConnect()
		}
		select {
		case <-s.ended:
		case <-ctx.Done():
		}
		s.close()
		err = fmt.Errorf("%w: connection to %s lost", ErrNotConnected, c.opts.Socket)
		c.setSession(nil, err)
		if c.opts.OnDisconnect != nil {
			c.opts.OnDisconnect(err)
		}
	}
}

// setSession reports whether the reason for having none is a new one.
func (c *Client) setSession(s *session, err error) bool {
	c.mu.Lock()
	news := err != nil && (c.lastErr == nil || c.lastErr.Error() != err.Error())
	c.session, c.lastErr = s, err
	c.mu.Unlock()
	c.broadcast()
	return news
}

func (c *Client) broadcast() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// changes returns a channel that is closed at the next change.
func (c *Client) changes() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// current waits for a connection.
func (c *Client) current(ctx context.Context) (*session, error) {
	for {
		c.mu.Lock()
		s, err, changed := c.session, c.lastErr, c.changed
		c.mu.Unlock()
		if s != nil {
			return s, nil
		}
		select {
		case <-changed:
		case <-c.ended:
			return nil, fmt.Errorf("%w: the client is closed", ErrNotConnected)
		case <-ctx.Done():
			if err == nil {
				err = fmt.Errorf("%w: not connected to %s yet", ErrNotConnected, c.opts.Socket)
			}
			return nil, fmt.Errorf("%w (%w)", err, ctx.Err())
		}
	}
}

// with runs fn on the connection. If that is lost while fn runs, fn runs again
// on the next one, so fn must start from the view each time.
func (c *Client) with(ctx context.Context, fn func(context.Context, *session) error) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for {
		s, err := c.current(ctx)
		if err != nil {
			return err
		}
		err = fn(ctx, s)
		if !s.lost(err) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: connection to %s lost (%w)", ErrNotConnected, c.opts.Socket, ctx.Err())
		}
		c.leave(s)
	}
}

// leave waits until s is not the current session any more.
func (c *Client) leave(s *session) {
	s.end()
	for {
		c.mu.Lock()
		same, changed := c.session == s, c.changed
		c.mu.Unlock()
		if !same {
			return
		}
		select {
		case <-changed:
		case <-c.ended:
			return
		}
	}
}

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
