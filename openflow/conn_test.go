// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func dialFake(t testing.TB, sw *fakeSwitch, opts ConnOptions) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), startFake(t, sw), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestHandshake(t *testing.T) {
	tests := []struct {
		name  string
		hello []byte
		want  string // of the error
	}{
		{"1.5 only", hello15, ""},
		{"1.0 to 1.5, no bitmap", []byte{6, 0, 0, 8, 0, 0, 0, 1}, ""},
		{"later, no bitmap", []byte{7, 0, 0, 8, 0, 0, 0, 1}, ""},
		{"bitmap of 1.0 and 1.5", []byte{6, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 0x42}, ""},
		{"unknown element first", []byte{6, 0, 0, 24, 0, 0, 0, 1, 0, 9, 0, 5, 1, 0, 0, 0, 0, 1, 0, 8, 0, 0, 0, 0x40}, ""},
		{"bitmap of 1.0 and 1.3", []byte{4, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 0x12}, "speaks OpenFlow 1.0, 1.3, not 1.5: add OpenFlow15"},
		{"up to 1.4, no bitmap", []byte{5, 0, 0, 8, 0, 0, 0, 1}, "speaks OpenFlow 1.0, 1.1, 1.2, 1.3, 1.4, not 1.5"},
		{"refusal", append([]byte{1, 1, 0, 18, 0, 0, 0, 1, 0, 0, 0, 0}, "no way"...), `refuses OpenFlow 1.5 ("no way")`},
		{"other message", []byte{6, 2, 0, 8, 0, 0, 0, 1}, "message type 2 in place of a Hello"},
		{"not OpenFlow", []byte("HTTP/1.1 400 Bad Request\r\n"), "not an OpenFlow switch"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sw := &fakeSwitch{hello: tt.hello}
			c, err := Dial(t.Context(), startFake(t, sw), ConnOptions{})
			if err == nil {
				c.Close()
			}
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestDialErrors(t *testing.T) {
	for _, address := range []string{"", "/run/s", "ssl:1.2.3.4:6653", "unix:" + t.TempDir() + "/missing"} {
		if c, err := Dial(t.Context(), address, ConnOptions{}); err == nil {
			c.Close()
			t.Errorf("Dial(%q) worked", address)
		}
	}
	mute := &fakeSwitch{hello: []byte{}}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, startFake(t, mute), ConnOptions{}); err == nil || !strings.Contains(err.Error(), "handshake") {
		t.Errorf("a switch that says nothing: %v", err)
	}
}

// Answers find their requests though they come in another order.
func TestRequestsAtOnce(t *testing.T) {
	const n = 50
	var mu sync.Mutex
	var held []uint32
	sw := &fakeSwitch{}
	sw.answer = func(c *fakeConn, typ uint8, xid uint32, body []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		held = append(held, xid)
		if len(held) < n {
			return true
		}
		for _, xid := range held[1:] {
			c.serve(typ, xid, body)
		}
		c.serve(typ, held[0], body)
		return true
	}
	c := dialFake(t, sw, ConnOptions{})
	var wg sync.WaitGroup
	var got sync.Map
	for range n {
		wg.Go(func() {
			f, err := c.Features(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if _, twice := got.LoadOrStore(f.DatapathID, true); twice {
				t.Errorf("two requests got the answer of %d", f.DatapathID)
			}
		})
	}
	wg.Wait()
}

func TestRequestRefused(t *testing.T) {
	sw := &fakeSwitch{answer: func(c *fakeConn, typ uint8, xid uint32, _ []byte) bool {
		c.refuse(xid, errBadRequest, 1)
		return true
	}}
	c := dialFake(t, sw, ConnOptions{})
	_, err := c.Features(t.Context())
	var refused *Error
	if !errors.As(err, &refused) || refused.Type != errBadRequest || refused.Code != 1 {
		t.Errorf("error %v", err)
	}
}

func flows(n int) []Message {
	msgs := make([]Message, n)
	for i := range msgs {
		msgs[i] = AddFlow(Flow{Table: 1, Priority: uint16(i)})
	}
	return msgs
}

func TestDo(t *testing.T) {
	tests := []struct {
		name   string
		refuse []int // messages, from 1
		want   int   // index in the error
	}{
		{"all good", nil, -1},
		{"first", []int{1}, 0},
		{"last", []int{5}, 4},
		{"two", []int{2, 4}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := 0
			sw := &fakeSwitch{}
			sw.answer = func(c *fakeConn, typ uint8, xid uint32, _ []byte) bool {
				n++
				for _, r := range tt.refuse {
					if r == n {
						c.refuse(xid, errBadAction, 0)
					}
				}
				return typ == wireFlowMod
			}
			c := dialFake(t, sw, ConnOptions{})
			checkMessageError(t, c.Do(t.Context(), flows(5)), tt.want)
			if err := c.Barrier(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// checkMessageError wants an error about message number index, or none if that
// is -1.
func checkMessageError(t *testing.T, err error, index int) {
	t.Helper()
	var refused *MessageError
	switch {
	case index < 0 && err != nil:
		t.Errorf("error %v, want none", err)
	case index >= 0 && (!errors.As(err, &refused) || refused.Index != index || refused.Message == nil):
		t.Errorf("error %v, want one about message %d", err, index)
	}
}

func TestBundle(t *testing.T) {
	tests := []struct {
		name    string
		refuse  int // the nth message, 1 is the open request
		atEnd   int // the ADD that makes the commit fail, from 1
		want    int // index in the error; -1: none; -2: one about no message
		control []uint8
	}{
		{"good", 0, 0, -1, []uint8{bundleOpen, bundleCommit}},
		{"refused open", 1, 0, -2, []uint8{bundleOpen, bundleDiscard}},
		{"refused add", 3, 0, 1, []uint8{bundleOpen, bundleDiscard}},
		{"refused commit", 0, 5, 4, []uint8{bundleOpen, bundleCommit}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var mu sync.Mutex
			var control []uint8
			var adds []uint32
			n := 0
			sw := &fakeSwitch{}
			sw.answer = func(c *fakeConn, typ uint8, xid uint32, body []byte) bool {
				mu.Lock()
				defer mu.Unlock()
				n++
				switch typ {
				case wireBundleAdd:
					adds = append(adds, xid)
				case wireBundleControl:
					control = append(control, body[5])
					if body[5] == bundleCommit && tt.atEnd > 0 {
						c.refuse(adds[tt.atEnd-1], errBadAction, 0)
						c.refuse(xid, errBundleFailed, 7)
						return true
					}
				}
				if n == tt.refuse {
					c.refuse(xid, errBadAction, 0)
					return true
				}
				return false
			}
			c := dialFake(t, sw, ConnOptions{})
			err := c.Bundle(t.Context(), flows(5))
			var refused *Error
			if tt.want == -2 && !errors.As(err, &refused) {
				t.Errorf("error %v", err)
			} else if tt.want != -2 {
				checkMessageError(t, err, tt.want)
			}
			if err := c.Barrier(t.Context()); err != nil { // the discard has arrived
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(tt.control, control); diff != "" {
				t.Errorf("bundle control: %s", diff)
			}
		})
	}
}

func TestBundleWithTooLongMessage(t *testing.T) {
	sw := &fakeSwitch{}
	c := dialFake(t, sw, ConnOptions{})
	long := flows(3)
	long[1] = AddFlow(Flow{Actions: []Action{Note(make([]byte, 65000)), Note(make([]byte, 65000))}})
	checkMessageError(t, c.Bundle(t.Context(), long), 1)
	checkMessageError(t, c.Do(t.Context(), long), 1)
	checkMessageError(t, c.Bundle(t.Context(), flows(3)), -1)
	for _, typ := range sw.seen() {
		if typ == wireFlowMod {
			t.Error("a message of the refused call was sent alone")
		}
	}
}

// What waits for an answer when the connection is lost learns of it at once.
func TestLostConnection(t *testing.T) {
	sw := &fakeSwitch{}
	sw.answer = func(c *fakeConn, typ uint8, _ uint32, _ []byte) bool {
		if typ == wireSetConfig {
			c.Close()
		}
		return true
	}
	c := dialFake(t, sw, ConnOptions{})
	calls := map[string]func() error{
		"request":   func() error { _, err := c.Features(t.Context()); return err },
		"dump":      func() error { _, err := c.Flows(t.Context()); return err },
		"bundle":    func() error { return c.Bundle(t.Context(), flows(2)) },
		"do":        func() error { return c.Do(t.Context(), flows(2)) },
		"after all": func() error { <-c.Done(); return c.Send(t.Context(), flows(1)...) },
	}
	var wg sync.WaitGroup
	for name, call := range calls {
		wg.Go(func() {
			if err := call(); !errors.Is(err, ErrDisconnected) {
				t.Errorf("%s: error %v", name, err)
			}
		})
	}
	for end := time.Now().Add(30 * time.Second); len(sw.seen()) < 4; time.Sleep(time.Millisecond) {
		// Until all are under way.
		if time.Now().After(end) {
			t.Fatalf("the switch has seen %d messages in half a minute", len(sw.seen()))
		}
	}
	if c.Err() != nil {
		t.Errorf("lost early: %v", c.Err())
	}
	if err := c.Send(t.Context(), &SetConfig{}); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if !errors.Is(c.Err(), ErrDisconnected) {
		t.Errorf("Err = %v", c.Err())
	}
}

// A call that was given up leaves the connection usable, also when its answer
// comes late.
func TestDeadline(t *testing.T) {
	release := make(chan struct{})
	first := true
	sw := &fakeSwitch{}
	sw.answer = func(c *fakeConn, typ uint8, xid uint32, body []byte) bool {
		if typ != wireFeaturesRequest || !first {
			return false
		}
		first = false
		go func() { <-release; c.serve(typ, xid, body) }()
		return true
	}
	c := dialFake(t, sw, ConnOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Features(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	close(release)
	if _, err := c.Features(t.Context()); err != nil {
		t.Error(err)
	}
}

// A switch that does not read holds senders back, and only until their deadline.
func TestBackPressure(t *testing.T) {
	unblock := make(chan struct{})
	sw := &fakeSwitch{answer: func(*fakeConn, uint8, uint32, []byte) bool { <-unblock; return true }}
	defer close(unblock)
	c := dialFake(t, sw, ConnOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var err error
			for i := 0; err == nil && i < 1000; i++ {
				err = c.Send(ctx, flows(1000)...)
			}
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrDisconnected) {
				t.Errorf("error %v", err)
			}
		})
	}
	wg.Wait()
}

func TestMultipart(t *testing.T) {
	sw := &fakeSwitch{}
	sw.answer = func(c *fakeConn, typ uint8, xid uint32, _ []byte) bool {
		if typ != wireMultipartRequest {
			return false
		}
		// Table statistics: three parts of one table each.
		for i := range byte(3) {
			more := byte(1)
			if i == 2 {
				more = 0
			}
			c.send(wireMultipartReply, xid, append([]byte{0, 3, 0, more, 0, 0, 0, 0, i, 0, 0, 0, 0, 0, 0, 10 + i}, make([]byte, 16)...)...)
		}
		return true
	}
	c := dialFake(t, sw, ConnOptions{})
	got, err := c.TableStats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []TableStat{{Table: 0, Active: 10}, {Table: 1, Active: 11}, {Table: 2, Active: 12}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := c.Flows(t.Context()); err == nil || !strings.Contains(err.Error(), "TableStats") {
		t.Errorf("wrong kind of answer: %v", err)
	}
}

func TestAnswerThatCannotBeRead(t *testing.T) {
	broken := true
	sw := &fakeSwitch{}
	sw.answer = func(c *fakeConn, typ uint8, xid uint32, _ []byte) bool {
		if typ != wireFeaturesRequest || !broken {
			return false
		}
		broken = false
		c.send(wireFeaturesReply, xid, 1, 2, 3)
		return true
	}
	c := dialFake(t, sw, ConnOptions{})
	if _, err := c.Features(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("error %v", err)
	}
	if _, err := c.Features(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestBrokenFraming(t *testing.T) {
	sw := &fakeSwitch{answer: func(c *fakeConn, _ uint8, _ uint32, _ []byte) bool {
		_, _ = c.Write([]byte{6, 0, 0, 3, 0, 0, 0, 1})
		return true
	}}
	c := dialFake(t, sw, ConnOptions{})
	if err := c.Barrier(t.Context()); !errors.Is(err, ErrDisconnected) {
		t.Errorf("error %v", err)
	}
}

func TestUnasked(t *testing.T) {
	got, enter := make(chan string, 10), make(chan struct{})
	sw := &fakeSwitch{}
	sw.answer = func(c *fakeConn, typ uint8, xid uint32, _ []byte) bool {
		if typ == wireFlowMod {
			c.refuse(xid, errBadAction, 3)
			return true
		}
		return false
	}
	c := dialFake(t, sw, ConnOptions{QueueLen: 2, Handler: func(m Message) {
		<-enter
		if e, ok := m.(*Error); ok {
			got <- fmt.Sprintf("error %d.%d", e.Type, e.Code)
		}
	}})
	// One with the handler, two that wait, and some that are lost.
	for range 10 {
		if err := c.Send(t.Context(), flows(1)...); err != nil {
			t.Fatal(err)
		}
		if err := c.Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	close(enter)
	for range 2 {
		if text := <-got; text != "error 2.3" {
			t.Errorf("handler got %s", text)
		}
	}
	if d := c.Dropped(); d < 7 || d > 8 {
		t.Errorf("%d dropped", d)
	}
}

func TestAsyncSetup(t *testing.T) {
	sw := &fakeSwitch{}
	dialFake(t, sw, ConnOptions{Async: true, ControllerID: 7})
	const experimenter = 4
	if diff := cmp.Diff([]uint8{experimenter, wireSetConfig, experimenter, wireBarrierRequest}, sw.seen()); diff != "" {
		t.Error(diff)
	}
}

func TestFragmentPorts(t *testing.T) {
	for _, async := range []bool{false, true} {
		sw := &fakeSwitch{}
		var config []byte
		sw.answer = func(_ *fakeConn, typ uint8, _ uint32, body []byte) bool {
			if typ == wireSetConfig {
				config = slices.Clone(body)
			}
			return false
		}
		dialFake(t, sw, ConnOptions{Async: async, FragmentPorts: true})
		if want := map[bool][]byte{false: {0, 3, 0, 0}, true: {0, 3, 0xff, 0xff}}[async]; !bytes.Equal(config, want) {
			t.Errorf("asynchronous is %v: the configuration is %x, want %x", async, config, want)
		}
	}
}

func TestAnswersEchoRequests(t *testing.T) {
	echoed := make(chan string, 1)
	sw := &fakeSwitch{}
	sw.answer = func(c *fakeConn, typ uint8, xid uint32, body []byte) bool {
		switch typ {
		case wireBarrierRequest:
			c.send(wireEchoRequest, 77, []byte("hello")...)
		case wireEchoReply:
			echoed <- string(body)
		}
		return false
	}
	c := dialFake(t, sw, ConnOptions{})
	if err := c.Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	if data := <-echoed; data != "hello" {
		t.Errorf("echo of %q", data)
	}
}
