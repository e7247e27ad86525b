// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Connections without an authenticated call are bounded, because everything that reaches the port
// can open them: behind a node's address all of its pods look alike, so there is no bound per
// source. When there is one too many, one of them at random is closed. So an agent always finds a
// place, and keeps it long enough unless many connections arrive in the time of its handshake.
// Those that have finished the handshake, which costs the client as much as the server, have places
// of their own: half-open ones cannot displace them.
const (
	maxHandshakes = 512
	maxStrangers  = 512
	// strangerTimeout is how long a connection may have no authenticated call: a handshake and a
	// review fit into it.
	strangerTimeout = handshake + reviewTimeout + 5*time.Second
	// strangerBytes is more than a handshake and a call with a token have.
	strangerBytes = 128 << 10
)

// stage is how far a connection is.
type stage int

const (
	handshaking stage = iota
	stranger          // the handshake is done
	known             // it has an authenticated call
	closed
	stages
)

// Why a connection without an authenticated call is closed.
const (
	reasonHandshakes = "handshakes"
	reasonStrangers  = "unauthenticated"
	reasonTimeout    = "timeout"
	reasonBytes      = "bytes"
)

// Gate counts the connections of a listener, and closes some of those without
// an authenticated call.
type Gate struct {
	net.Listener
	limits  [stages]int
	refused func(reason string)

	mu    sync.Mutex
	conns [stages][]*gated
	peak  [stages]int // the most there were at a time
}

// NewGate bounds the connections of a listener. Refused is called with the reason for each
// connection that is closed.
func NewGate(l net.Listener, refused func(reason string)) *Gate {
	g := &Gate{Listener: l, refused: refused}
	g.limits[handshaking], g.limits[stranger] = maxHandshakes, maxStrangers
	return g
}

// Peak returns the most connections that there were at a time: in a handshake, and
// without an authenticated call.
func (g *Gate) Peak() (handshakes, strangers int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.peak[handshaking], g.peak[stranger]
}

// Known returns the number of connections with an authenticated call.
func (g *Gate) Known() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.conns[known])
}

// gated is a connection. The gate's mutex guards all but Conn.
type gated struct {
	net.Conn
	gate  *Gate
	stage stage
	index int // in gate.conns[stage]
	calls int // that are authenticated
	bytes int // received without an authenticated call
	timer *time.Timer
}

// Accept implements net.Listener.
func (g *Gate) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &gated{Conn: conn, gate: g}
	g.mu.Lock()
	c.timer = time.AfterFunc(strangerTimeout, func() { g.expire(c) })
	drop := g.enter(c, handshaking)
	g.mu.Unlock()
	g.refuse(drop, reasonHandshakes)
	return c, nil
}

// enter puts a connection into a stage, and returns the one to be closed for it. The mutex is held.
func (g *Gate) enter(c *gated, s stage) (drop *gated) {
	c.stage, c.index = s, len(g.conns[s])
	g.conns[s] = append(g.conns[s], c)
	if limit := g.limits[s]; limit > 0 && len(g.conns[s]) > limit {
		drop = g.conns[s][rand.IntN(len(g.conns[s]))]
		g.leave(drop)
		drop.stage = closed
		drop.timer.Stop()
	}
	g.peak[s] = max(g.peak[s], len(g.conns[s]))
	return drop
}

// leave takes a connection out of its stage. The mutex is held.
func (g *Gate) leave(c *gated) {
	if c.stage == closed {
		return
	}
	list := g.conns[c.stage]
	last := list[len(list)-1]
	list[c.index], last.index = last, c.index
	list[len(list)-1] = nil
	g.conns[c.stage] = list[:len(list)-1]
}

func (g *Gate) refuse(c *gated, reason string) {
	if c != nil {
		g.refused(reason)
		_ = c.Conn.Close()
	}
}

// shaken puts a connection, unless it is closed, among those that have ended their handshake.
func (g *Gate) shaken(c *gated) {
	g.mu.Lock()
	drop := g.moved(c, stranger)
	g.mu.Unlock()
	g.refuse(drop, reasonStrangers)
}

func (g *Gate) moved(c *gated, s stage) (drop *gated) {
	if c.stage == closed || c.stage == s {
		return nil
	}
	g.leave(c)
	return g.enter(c, s)
}

// expire closes a connection that had no authenticated call for too long.
func (g *Gate) expire(c *gated) {
	g.mu.Lock()
	late := c.stage == handshaking || c.stage == stranger
	if late {
		g.leave(c)
		c.stage = closed
	}
	g.mu.Unlock()
	if late {
		g.refuse(c, reasonTimeout)
	}
}

// begin notes an authenticated call, and returns what notes its end.
func (c *gated) begin() (end func()) {
	g := c.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	c.calls++
	c.bytes = 0
	c.timer.Stop()
	g.moved(c, known)
	return func() {
		g.mu.Lock()
		if c.calls--; c.calls > 0 || c.stage == closed {
			g.mu.Unlock()
			return
		}
		drop := g.moved(c, stranger)
		if drop != c {
			c.timer.Reset(strangerTimeout)
		}
		g.mu.Unlock()
		g.refuse(drop, reasonStrangers)
	}
}

// errBytes ends the connection of a stranger that sends too much.
var errBytes = errors.New("too many bytes before a call is authenticated")

// Read implements net.Conn.
func (c *gated) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	g := c.gate
	g.mu.Lock()
	over := false
	if c.stage == handshaking || c.stage == stranger {
		if c.bytes += n; c.bytes > strangerBytes {
			over = true
			g.leave(c)
			c.stage = closed
			c.timer.Stop()
		}
	}
	g.mu.Unlock()
	if over {
		g.refuse(c, reasonBytes)
		return 0, errBytes
	}
	return n, err
}

// Close implements net.Conn.
func (c *gated) Close() error {
	g := c.gate
	g.mu.Lock()
	g.leave(c)
	c.stage = closed
	c.timer.Stop()
	g.mu.Unlock()
	return c.Conn.Close()
}

// handshakes reports the end of handshakes to the gate, and gives calls their connection.
type handshakes struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (h handshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ServerHandshake(raw)
	c, ok := raw.(*gated)
	if err != nil || !ok {
		return conn, info, err
	}
	c.gate.shaken(c)
	tls, ok := info.(credentials.TLSInfo)
	if !ok {
		return conn, info, err
	}
	return conn, gatedInfo{tls, c}, nil
}

// Clone implements credentials.TransportCredentials.
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone()}
}

// gatedInfo is what a call knows of its connection.
type gatedInfo struct {
	credentials.TLSInfo
	conn *gated
}

// authenticated notes that a call is authenticated, and returns what notes its end.
func authenticated(ctx context.Context) (end func()) {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(gatedInfo); ok {
			return info.conn.begin()
		}
	}
	return func() {}
}
