// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// ClientOptions says to which switch a Client keeps a connection.
type ClientOptions struct {
	// Address is as for Dial.
	Address string
	// Conn are the options of each connection.
	Conn ConnOptions
	// OnConnect, if set, is called after each handshake, the first included:
	// the switch may have restarted, so its flows should be looked at. It must
	// not block.
	OnConnect func(*Conn)
	// OnDisconnect, if set, is called after each loss. It must not block.
	OnDisconnect func(error)
	// MinBackoff and MaxBackoff bound the time between attempts, which doubles
	// from the one to the other. 0: 10 ms, 250 ms.
	MinBackoff, MaxBackoff time.Duration
}

// Client keeps a connection to a switch and makes a new one whenever it is
// lost. It is safe for concurrent use.
type Client struct {
	opts   ClientOptions
	log    *slog.Logger
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	conn    *Conn         // nil while there is none
	err     error         // why there is none
	changed chan struct{} // closed and replaced when conn changes
}

// NewClient starts to connect, in the background.
func NewClient(opts ClientOptions) *Client {
	if opts.MinBackoff == 0 {
		opts.MinBackoff = 10 * time.Millisecond
	}
	if opts.MaxBackoff == 0 {
		opts.MaxBackoff = 250 * time.Millisecond
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{
		opts: opts, log: opts.Conn.Logger, cancel: cancel,
		ended: make(chan struct{}), changed: make(chan struct{}),
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

// Close ends the connection and waits until nothing of the client runs.
func (c *Client) Close() {
	c.cancel()
	<-c.ended
}

// Conn returns the present connection, and waits for one if there is none. Its
// error says why there is none.
func (c *Client) Conn(ctx context.Context) (*Conn, error) {
	for {
		c.mu.Lock()
		conn, err, changed := c.conn, c.err, c.changed
		c.mu.Unlock()
		if conn != nil && conn.Err() == nil {
			return conn, nil
		}
		select {
		case <-changed:
		case <-c.ended:
			return nil, fmt.Errorf("%w: the client is closed", ErrDisconnected)
		case <-ctx.Done():
			if err == nil {
				return nil, fmt.Errorf("%w: not connected to %s yet: %w", ErrDisconnected, c.opts.Address, ctx.Err())
			}
			return nil, fmt.Errorf("%w: %w (%w)", ErrDisconnected, err, ctx.Err())
		}
	}
}

func (c *Client) run(ctx context.Context) {
	backoff := c.opts.MinBackoff
	for ctx.Err() == nil {
		conn, err := Dial(ctx, c.opts.Address, c.opts.Conn)
		if err != nil {
			if c.set(nil, err) && ctx.Err() == nil {
				c.log.Warn("OpenFlow switch cannot be reached", "address", c.opts.Address, "error", err)
			}
			pause(ctx, backoff)
			backoff = min(2*backoff, c.opts.MaxBackoff)
			continue
		}
		start := time.Now()
		c.set(conn, nil)
		c.log.Info("OpenFlow switch connected", "address", c.opts.Address)
		if c.opts.OnConnect != nil {
			c.opts.OnConnect(conn)
		}
		select {
		case <-conn.Done():
		case <-ctx.Done():
		}
		conn.Close()
		c.set(nil, conn.Err())
		if c.opts.OnDisconnect != nil {
			c.opts.OnDisconnect(conn.Err())
		}
		if time.Since(start) > c.opts.MaxBackoff {
			backoff = c.opts.MinBackoff
			continue
		}
		// A switch that hangs up at once gets no storm of connections.
		pause(ctx, backoff)
		backoff = min(2*backoff, c.opts.MaxBackoff)
	}
}

// set reports whether err is another one than before.
func (c *Client) set(conn *Conn, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	news := err != nil && (c.err == nil || c.err.Error() != err.Error())
	c.conn, c.err = conn, err
	close(c.changed)
	c.changed = make(chan struct{})
	return news
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
