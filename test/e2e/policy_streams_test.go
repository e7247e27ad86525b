// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/test/lab/probe"
)

// refusedWay is what ways are called that a policy stops.
const refusedWay = "stopped"

// testPolicyStreams has streams that run when a policy comes. What it allows loses nothing; what it
// does not, stops. When it goes, the same connections go on.
func testPolicyStreams(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	tr := startTraffic(ctx, t,
		route{way: sameNode, from: stage.client1, to: stage.web1},
		route{way: otherNode, from: stage.client2, to: stage.web1},
		route{way: refusedWay + ", same node", from: stage.other1, to: stage.web1},
		route{way: refusedWay + ", other node", from: stage.friend2, to: stage.web1},
	)
	held := hold(ctx, t, stage.other1, stage.web1)
	oneWay := stream(ctx, t, stage.other1, stage.web1)
	began := time.Now()
	t.Run("policy", func(t *testing.T) {
		policy(ctx, t, "web", "podSelector: {matchLabels: {server: web1}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]")
		for i, way := range tr.ways {
			if strings.HasPrefix(way, refusedWay) {
				quiet(ctx, t, way, tr.udp[i])
			}
		}
		if err := held.talk("denied", silence); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a TCP connection that is not allowed any more: %v", err)
		}
		oneWay.ends(ctx, t)
		t.Logf("streams that are not allowed were found quiet after %s", time.Since(began))
	})
	tr.settle(ctx, t) // all of them
	if err := held.hear("denied", learning); err != nil {
		t.Errorf("a TCP connection that is allowed again: %v", err)
	}
	outcomes := tr.stop(t)
	kept := map[string]outcome{}
	for way, o := range outcomes {
		if !strings.HasPrefix(way, refusedWay) {
			kept[way] = o
		} else if len(o.udp.Lost) == 0 || o.tcp.Err != nil {
			t.Errorf("%s: UDP %s, TCP %s; want packets lost and the connection to last", way, o.udp, o.tcp)
		}
	}
	allow(t, kept, 0)
}

// quiet waits until no echo comes back for a while.
func quiet(ctx context.Context, t *testing.T, way string, u *probe.UDPStream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, learning)
	defer cancel()
	err := eventually(ctx, func() error {
		short, cancel := context.WithTimeout(ctx, silence)
		defer cancel()
		if u.Wait(short, 1) == nil {
			return errors.New("echoes come back")
		}
		return nil
	})
	if err != nil {
		t.Errorf("%s: %v", way, err)
	}
}

// held is a TCP connection to a server that sends back what comes.
type held struct{ conn *net.TCPConn }

func hold(ctx context.Context, t *testing.T, from, to place) held {
	t.Helper()
	at := netip.AddrPortFrom(to.address(ipv4), 7200)
	server, err := probe.Serve(to, at, probe.Echo)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	conn, err := probe.Dial(ctx, from, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	h := held{conn}
	if err := h.talk("first", patience); err != nil {
		t.Fatal(err)
	}
	return h
}

// talk says something and waits for it to come back.
func (h held) talk(text string, timeout time.Duration) error {
	if _, err := h.conn.Write([]byte(text)); err != nil {
		return err
	}
	return h.hear(text, timeout)
}

func (h held) hear(text string, timeout time.Duration) error {
	if err := h.conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	buf := make([]byte, 64)
	n, err := h.conn.Read(buf)
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return context.DeadlineExceeded
	}
	if err == nil && string(buf[:n]) != text {
		err = fmt.Errorf("%q comes back, want %q", buf[:n], text)
	}
	return err
}

// monologue is a server's UDP stream to a client that asked once.
type monologue struct{ client, server *net.UDPConn }

func stream(ctx context.Context, t *testing.T, from, to place) monologue {
	t.Helper()
	at := netip.AddrPortFrom(to.address(ipv4), 7201)
	var m monologue
	err := to.Do(func() (err error) {
		m.server, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err == nil {
		err = from.Do(func() (err error) {
			m.client, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(at))
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.client.Close(); m.server.Close() })
	if _, err := m.client.Write([]byte("go on")); err != nil {
		t.Fatal(err)
	}
	if err := m.server.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	_, client, err := m.server.ReadFromUDPAddrPort(make([]byte, 64))
	if err != nil {
		t.Fatal(err)
	}
	stop, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	go func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			if _, err := m.server.WriteToUDPAddrPort([]byte("more"), client); errors.Is(err, net.ErrClosed) {
				return
			}
			select {
			case <-tick.C:
			case <-stop.Done():
				return
			}
		}
	}()
	if !m.comes(patience) {
		t.Fatal("the server's stream does not come")
	}
	return m
}

func (m monologue) comes(timeout time.Duration) bool {
	if m.client.SetReadDeadline(time.Now().Add(timeout)) != nil {
		return false
	}
	_, err := m.client.Read(make([]byte, 64))
	return err == nil
}

// ends waits until nothing comes any more.
func (m monologue) ends(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, learning)
	defer cancel()
	err := eventually(ctx, func() error {
		for ctx.Err() == nil {
			if !m.comes(silence) {
				return nil
			}
		}
		return errors.New("the server goes on")
	})
	if err != nil {
		t.Errorf("a stream of answers only: %v", err)
	}
}
