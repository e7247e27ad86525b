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
	"path/filepath"
	"sync"
	"time"

	"coelan.io/coelan/internal/backend/ovs/reconnect"
	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/trigger"
)

// OwnerKey and OwnerValue are the external_ids entry of what is Coelan's.
const (
	OwnerKey   = "coelan-owner"
	OwnerValue = "coelan"
)

const (
	connectTimeout = 5 * time.Second
	// DefaultTimeout bounds a call if its context has no deadline.
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
	socket   string
	sessions *reconnect.Client[*session]
	changed  broadcast.Broadcast // after each change of the view

	mu sync.Mutex
	// awaited are ports that a call waits for, with the OpenFlow number that the
	// switch gave meanwhile (PortAdded), and how many calls wait.
	awaited map[string]*awaited
}

type awaited struct{ calls, ofport int }

// Open starts a client. It does not wait for a connection: WaitConnected does.
func Open(opts Options) *Client {
	c := &Client{socket: opts.Socket, awaited: map[string]*awaited{}}
	c.sessions = reconnect.New(reconnect.Options[*session]{
		Server:       "the Open vSwitch database at " + opts.Socket,
		Socket:       opts.Socket,
		Dial:         func(ctx context.Context) (*session, error) { return connect(ctx, opts.Socket, c.changed.Send) },
		Disconnected: ErrNotConnected,
		Log:          opts.Logger,
		OnConnect: func(*session) {
			c.changed.Send()
			if opts.OnConnect != nil {
				opts.OnConnect()
			}
		},
		OnDisconnect: func(err error) {
			c.changed.Send()
			if opts.OnDisconnect != nil {
				opts.OnDisconnect(err)
			}
		},
	})
	c.sessions.Start()
	return c
}

// OpenSilently is Open for the database in the run directory of Open vSwitch, such as
// /run/openvswitch, without a log.
func OpenSilently(runDir string) *Client {
	return Open(Options{Socket: filepath.Join(runDir, "db.sock"), Logger: slog.New(slog.DiscardHandler)})
}

// Close ends the connection and waits until everything has stopped.
func (c *Client) Close() { c.sessions.Close() }

// WaitConnected waits for a connection. Its error says why there is none.
func (c *Client) WaitConnected(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := c.sessions.Conn(ctx)
	return err
}

// Watch returns a channel that receives after each change of the view, several
// changes at a time if the reader is slow. Stop it when it is not needed.
func (c *Client) Watch() (changes <-chan struct{}, stop func()) {
	out := trigger.New()
	ctx, cancel := context.WithCancel(context.Background())
	changed := c.changed.Changed()
	go func() {
		for {
			select {
			case <-changed:
				changed = c.changed.Changed()
			case <-c.sessions.Ended():
				return
			case <-ctx.Done():
				return
			}
			out.Fire()
		}
	}()
	return out, cancel
}

// with runs fn on the connection. If that is lost while fn runs, fn runs again
// on the next one, so fn must start from the view each time.
func (c *Client) with(ctx context.Context, fn func(context.Context, *session) error) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for {
		s, err := c.sessions.Conn(ctx)
		if err != nil {
			return err
		}
		err = fn(ctx, s)
		if !s.lost(err) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w (%w)", s.errLost(), ctx.Err())
		}
		s.end() // so that the next one is waited for
	}
}

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}
