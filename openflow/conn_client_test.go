// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestClientReconnects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	connected, lost := make(chan *Conn, 10), make(chan error, 10)
	client := NewClient(ClientOptions{
		Address:      "unix:" + path,
		OnConnect:    func(c *Conn) { connected <- c },
		OnDisconnect: func(err error) { lost <- err },
	})
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := client.Conn(ctx); !errors.Is(err, ErrDisconnected) || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("without a switch: %v", err)
	}
	var last *Conn
	for range 3 {
		sw := &fakeSwitch{}
		if err := sw.listen(path); err != nil {
			t.Fatal(err)
		}
		c, err := client.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c == last {
			t.Error("got the old connection")
		}
		if noted := <-connected; noted != c {
			t.Error("OnConnect got another connection")
		}
		if err := c.Barrier(t.Context()); err != nil {
			t.Error(err)
		}
		sw.stop()
		if err := <-lost; !errors.Is(err, ErrDisconnected) {
			t.Errorf("OnDisconnect got %v", err)
		}
		last = c
	}
	client.Close()
	if _, err := client.Conn(t.Context()); !errors.Is(err, ErrDisconnected) {
		t.Errorf("after Close: %v", err)
	}
}

// A switch that accepts and hangs up is not asked a thousand times a second.
func TestClientBacksOff(t *testing.T) {
	sw := &fakeSwitch{}
	sw.answer = func(c *fakeConn, _ uint8, _ uint32, _ []byte) bool { c.Close(); return true }
	attempts := make(chan struct{}, 1000)
	client := NewClient(ClientOptions{
		Address: startFake(t, sw),
		OnConnect: func(c *Conn) {
			attempts <- struct{}{}
			_ = c.Send(t.Context(), &BarrierRequest{})
		},
	})
	defer client.Close()
	began := time.Now()
	for i := range 6 {
		select {
		case <-attempts:
		case <-time.After(30 * time.Second):
			t.Fatalf("%d connections in half a minute", i)
		}
	}
	// 10, 20, 40, 80 and 160 ms lie between six attempts; a busy machine only makes it longer.
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("6 connections in %v", took)
	}
}
