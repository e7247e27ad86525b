// SPDX-License-Identifier: Apache-2.0

// Package reconnect keeps a connection to a server: it dials again whenever the connection is lost,
// with growing pauses between attempts that fail, and as soon as the server has made its socket.
package reconnect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/retry"
)

// minBackoff and maxBackoff bound the pauses between attempts: servers are on this machine, and all
// that the agent does waits for them.
const (
	minBackoff = 10 * time.Millisecond
	maxBackoff = 250 * time.Millisecond
)

// Conn is a connection.
type Conn interface {
	// Done is closed when the connection has ended.
	Done() <-chan struct{}
	// Err says why it has ended; nil if it has not.
	Err() error
	// Close ends the connection and waits until nothing of it runs.
	Close() error
}

// Options describe a server. Server, Dial and Disconnected are needed.
type Options[C Conn] struct {
	// Server names it in log messages and errors, such as "the OpenFlow switch at unix:/run/x".
	Server string
	// Socket is the path of the server's UNIX socket, if it listens at one.
	Socket string
	Dial   func(context.Context) (C, error)
	// Disconnected is wrapped by the errors of Client.Conn.
	Disconnected error
	// Log defaults to slog.Default.
	Log *slog.Logger
	// OnConnect, if set, is called after each connection, the first included. It must not block.
	OnConnect func(C)
	// OnDisconnect, if set, is called after the end of each connection. It must not block.
	OnDisconnect func(error)
}

// Client keeps a connection to a server. It is safe for concurrent use.
type Client[C Conn] struct {
	opts   Options[C]
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{}

	mu        sync.Mutex
	conn      C
	connected bool
	err       error               // why it is not connected
	changed   broadcast.Broadcast // after each change of conn and err
}

// New returns a Client that Start lets connect.
func New[C Conn](o Options[C]) *Client[C] {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	c := &Client[C]{opts: o, ended: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start has the client connect, in the background, until Close.
func (c *Client[C]) Start() {
	go func() {
		defer close(c.ended)
		c.run()
	}()
}

// Close ends the connection and waits until nothing of the client runs, which was started.
func (c *Client[C]) Close() {
	c.cancel()
	<-c.ended
}

// Ended is closed when the client is closed.
func (c *Client[C]) Ended() <-chan struct{} { return c.ended }

// Conn returns the present connection, and waits for one if there is none. Its error says why there
// is none.
func (c *Client[C]) Conn(ctx context.Context) (C, error) {
	var none C
	for {
		changed := c.changed.Changed()
		c.mu.Lock()
		conn, connected, err := c.conn, c.connected, c.err
		c.mu.Unlock()
		if connected && conn.Err() == nil {
			return conn, nil
		}
		select {
		case <-changed:
		case <-c.ended:
			return none, fmt.Errorf("%w: the client is closed", c.opts.Disconnected)
		case <-ctx.Done():
			switch {
			case err == nil:
				err = fmt.Errorf("%w: not connected to %s yet", c.opts.Disconnected, c.opts.Server)
			case !errors.Is(err, c.opts.Disconnected):
				err = fmt.Errorf("%w: %w", c.opts.Disconnected, err)
			}
			return none, fmt.Errorf("%w (%w)", err, ctx.Err())
		}
	}
}

func (c *Client[C]) run() {
	backoff := retry.New(minBackoff, maxBackoff)
	listens := newSocket(c.opts.Socket)
	defer listens.close()
	unwatched := func(err error) {
		if err != nil {
			c.opts.Log.Debug("cannot watch for a socket, the end of the pause is waited for",
				"server", c.opts.Server, "error", err)
		}
	}
	for c.ctx.Err() == nil {
		unwatched(listens.watch())
		conn, err := c.opts.Dial(c.ctx)
		if err != nil {
			if c.disconnected(err) && c.ctx.Err() == nil {
				c.opts.Log.Warn("cannot connect to Open vSwitch, retrying", "server", c.opts.Server, "error", err)
			}
			unwatched(listens.wait(c.ctx, backoff))
			continue
		}
		listens.close()
		start := time.Now()
		c.use(conn)
		// A server that hangs up at once gets no storm of connections.
		if time.Since(start) <= maxBackoff {
			backoff.Wait(c.ctx)
			continue
		}
		backoff.Reset()
	}
}

// use has conn be the client's connection until it ends or the client is closed.
func (c *Client[C]) use(conn C) {
	c.mu.Lock()
	c.conn, c.connected, c.err = conn, true, nil
	c.mu.Unlock()
	c.changed.Send()
	c.opts.Log.Info("connected to Open vSwitch", "server", c.opts.Server)
	if c.opts.OnConnect != nil {
		c.opts.OnConnect(conn)
	}
	select {
	case <-conn.Done():
	case <-c.ctx.Done():
	}
	_ = conn.Close() // it is of no use any more
	err := conn.Err()
	c.disconnected(err)
	if c.opts.OnDisconnect != nil {
		c.opts.OnDisconnect(err)
	}
}

// disconnected notes why there is no connection, and reports whether the reason is another one than
// before.
func (c *Client[C]) disconnected(err error) bool {
	c.mu.Lock()
	differs := c.err == nil || c.err.Error() != err.Error()
	var none C
	c.conn, c.connected, c.err = none, false, err
	c.mu.Unlock()
	c.changed.Send()
	return differs
}
