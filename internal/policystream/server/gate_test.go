// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// pipes is a listener of connections that are pipes.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return nil }

// gateTest has a gate that counts what it refuses.
type gateTest struct {
	*Gate
	t *testing.T

	counts  sync.Mutex // guards refused
	refused map[string]int
}

func newGateTest(t *testing.T) *gateTest {
	g := &gateTest{t: t, refused: map[string]int{}}
	g.Gate = NewGate(make(pipes, 1), func(reason string) {
		g.counts.Lock()
		defer g.counts.Unlock()
		g.refused[reason]++
	})
	return g
}

// connect returns both ends of a new connection.
func (g *gateTest) connect() (client net.Conn, accepted *gated) {
	g.t.Helper()
	client, server := net.Pipe()
	g.Listener.(pipes) <- server
	c, err := g.Accept()
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = client.Close(); _ = c.Close() })
	return client, c.(*gated)
}

func (g *gateTest) expect(handshakes, strangers, knowns int, refused map[string]int) {
	g.t.Helper()
	g.mu.Lock()
	got := []int{len(g.conns[handshaking]), len(g.conns[stranger]), len(g.conns[known])}
	g.mu.Unlock()
	g.counts.Lock()
	defer g.counts.Unlock()
	if diff := cmp.Diff([]int{handshakes, strangers, knowns}, got); diff != "" {
		g.t.Errorf("connections in handshakes, of strangers and known (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(refused, g.refused); diff != "" {
		g.t.Errorf("refused (-want +got):\n%s", diff)
	}
}

// Each stage has places of its own, and what is known takes none of them.
func TestGateBounds(t *testing.T) {
	g := newGateTest(t)
	const more = 100
	var end []func()
	for range more {
		_, c := g.connect()
		g.shaken(c)
		end = append(end, c.begin())
	}
	g.expect(0, 0, more, map[string]int{})
	for range maxStrangers + more {
		_, c := g.connect()
		g.shaken(c)
	}
	for range maxHandshakes + more {
		g.connect()
	}
	g.expect(maxHandshakes, maxStrangers, more, map[string]int{reasonHandshakes: more, reasonStrangers: more})
	// What has no call any more is a stranger again.
	for _, f := range end {
		f()
	}
	g.expect(maxHandshakes, maxStrangers, 0, map[string]int{reasonHandshakes: more, reasonStrangers: 2 * more})
	if h, s := g.Peak(); h != maxHandshakes || s != maxStrangers {
		t.Errorf("at most %d and %d connections", h, s)
	}
}

// Strangers have to become known in time; what is known stays.
func TestGateTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateTest(t)
		_, first := g.connect()
		_, second := g.connect()
		g.shaken(second)
		_, third := g.connect()
		g.shaken(third)
		end, another := third.begin(), third.begin()
		time.Sleep(strangerTimeout - time.Second)
		synctest.Wait()
		g.expect(1, 1, 1, map[string]int{})
		time.Sleep(time.Hour)
		synctest.Wait()
		g.expect(0, 0, 1, map[string]int{reasonTimeout: 2})
		if _, err := first.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a connection that is late is open: %v", err)
		}
		end()
		time.Sleep(time.Hour)
		synctest.Wait()
		g.expect(0, 0, 1, map[string]int{reasonTimeout: 2})
		another()
		time.Sleep(strangerTimeout + time.Second)
		synctest.Wait()
		g.expect(0, 0, 0, map[string]int{reasonTimeout: 3})
	})
}

// Strangers may send little, what is known any amount.
func TestGateBytes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		known bool
		want  map[string]int
	}{{"stranger", false, map[string]int{reasonBytes: 1}}, {"known", true, map[string]int{}}} {
		t.Run(tc.name, func(t *testing.T) {
			g := newGateTest(t)
			client, c := g.connect()
			g.shaken(c)
			if tc.known {
				defer c.begin()()
			}
			const sent = 4 * strangerBytes
			go func() {
				for range sent / 1024 {
					if _, err := client.Write(make([]byte, 1024)); err != nil {
						return
					}
				}
			}()
			n, err := io.CopyN(io.Discard, c, sent)
			g.counts.Lock()
			defer g.counts.Unlock()
			if g.refused[reasonBytes] != tc.want[reasonBytes] || tc.known != (err == nil) || !tc.known && n > strangerBytes {
				t.Errorf("%d bytes are read, %v; refused %v", n, err, g.refused)
			}
		})
	}
}
