// SPDX-License-Identifier: Apache-2.0

package reconnect

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errDisconnected = errors.New("no connection")

// conn is a connection that end ends.
type conn struct {
	once sync.Once
	done chan struct{}
	err  error
}

func (c *conn) Done() <-chan struct{} { return c.done }

func (c *conn) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

func (c *conn) Close() error {
	c.end(errors.New("closed"))
	return nil
}

func (c *conn) end(err error) {
	c.once.Do(func() {
		c.err = err
		close(c.done)
	})
}

// server accepts connections unless it is down; those that it hangs up end at once.
type server struct {
	down, hangsUp atomic.Bool
	dials         atomic.Int32
}

func (s *server) dial(context.Context) (*conn, error) {
	s.dials.Add(1)
	if s.down.Load() {
		return nil, errors.New("connection refused")
	}
	c := &conn{done: make(chan struct{})}
	if s.hangsUp.Load() {
		c.end(io.EOF)
	}
	return c, nil
}

func start(t *testing.T, s *server, o Options[*conn]) *Client[*conn] {
	t.Helper()
	o.Server, o.Dial, o.Disconnected = "the server", s.dial, errDisconnected
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := New(o)
	c.Start()
	return c
}

func current(t *testing.T, c *Client[*conn]) *conn {
	t.Helper()
	got, err := c.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAnotherConnectionAfterEachLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var connected []*conn
		var lost []error
		c := start(t, &server{}, Options[*conn]{
			OnConnect:    func(c *conn) { connected = append(connected, c) },
			OnDisconnect: func(err error) { lost = append(lost, err) },
		})
		for i := range 3 {
			now := current(t, c)
			synctest.Wait()
			if len(connected) != i+1 || connected[i] != now || len(lost) != i {
				t.Fatalf("connection %d: OnConnect got %v, OnDisconnect %v", i, connected, lost)
			}
			now.end(io.ErrUnexpectedEOF)
			if next := current(t, c); next == now {
				t.Error("Conn returns a connection that has ended")
			}
			if !errors.Is(lost[i], io.ErrUnexpectedEOF) {
				t.Errorf("OnDisconnect got %v", lost[i])
			}
		}
		last := current(t, c)
		c.Close()
		if last.Err() == nil || len(lost) != 4 {
			t.Errorf("after Close the connection has error %v, and %d losses are known", last.Err(), len(lost))
		}
		if _, err := c.Conn(t.Context()); !errors.Is(err, errDisconnected) || !strings.Contains(err.Error(), "closed") {
			t.Errorf("Conn after Close: %v", err)
		}
	})
}

func TestErrorSaysWhyThereIsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.down.Store(true)
		c := start(t, s, Options[*conn]{})
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Conn(ctx)
		if !errors.Is(err, errDisconnected) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "refused") {
			t.Errorf("error %v", err)
		}
		s.down.Store(false)
		current(t, c)
	})
	unstarted := New(Options[*conn]{Server: "the server", Disconnected: errDisconnected})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := unstarted.Conn(ctx); !errors.Is(err, errDisconnected) || !strings.Contains(err.Error(), "not connected to the server yet") {
		t.Errorf("before the first attempt: %v", err)
	}
}

// A server that cannot be reached, or accepts and hangs up, is not asked a thousand times a second.
func TestPausesGrow(t *testing.T) {
	for name, fail := range map[string]func(*server){
		"down":     func(s *server) { s.down.Store(true) },
		"hangs up": func(s *server) { s.hangsUp.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				fail(s)
				c := start(t, s, Options[*conn]{})
				defer c.Close()
				// The pauses of a minute are at least 10, 20, 40, 80, 160 and then 250 ms, and at
				// most half as long again.
				time.Sleep(time.Minute)
				if n := s.dials.Load(); n < 155 || n > 245 {
					t.Errorf("%d attempts in a minute", n)
				}
				s.down.Store(false)
				s.hangsUp.Store(false)
				time.Sleep(time.Second)
				before := s.dials.Load()
				began := time.Now()
				current(t, c).end(io.EOF)
				current(t, c)
				if s.dials.Load() != before+1 || time.Since(began) != 0 {
					t.Errorf("after a connection that lasted, the next took %v", time.Since(began))
				}
			})
		})
	}
}

// A reason is logged when it comes, not at each attempt.
func TestReasonIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		s := &server{}
		s.down.Store(true)
		c := start(t, s, Options[*conn]{Log: slog.New(slog.NewTextHandler(&text, nil))})
		time.Sleep(time.Minute)
		c.Close()
		if n := strings.Count(text.String(), "cannot connect to Open vSwitch"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, text.String())
		}
	})
}
