// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// fakeSwitch is the other end of connections in tests. It knows nothing of this
// package's codec: it reads and writes bytes.
type fakeSwitch struct {
	listener net.Listener
	// hello is what it says first; nil: a Hello for OpenFlow 1.5.
	hello []byte
	// answer may take a message over from the default behavior, which is to
	// answer echo, barrier and bundle control requests.
	answer func(c *fakeConn, typ uint8, xid uint32, body []byte) bool

	mu    sync.Mutex
	conns []*fakeConn
	types []uint8 // of all messages received, but for Hello
}

type fakeConn struct {
	net.Conn
	mu sync.Mutex
}

var hello15 = []byte{6, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 1 << 6}

// Numbers of OpenFlow message types on the wire.
const (
	wireError, wireEchoRequest, wireEchoReply    = 1, 2, 3
	wireFeaturesRequest, wireFeaturesReply       = 5, 6
	wireSetConfig, wirePortStatus, wireFlowMod   = 9, 12, 14
	wireMultipartRequest, wireMultipartReply     = 18, 19
	wireBarrierRequest, wireBarrierReply         = 20, 21
	wireBundleControl, wireBundleAdd             = 33, 34
	bundleOpen, bundleCommit, bundleDiscard      = 0, 4, 6
	errBadRequest, errBundleFailed, errBadAction = 1, 17, 2
)

// startFake listens on a unix socket until the test ends.
func startFake(t testing.TB, sw *fakeSwitch) (address string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	if err := sw.listen(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sw.stop)
	return "unix:" + path
}

func (sw *fakeSwitch) listen(path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	sw.listener = l
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go sw.serve(nc)
		}
	}()
	return nil
}

// SwitchForExamples is a switch for the examples.
func SwitchForExamples() (address string, stop func()) {
	dir, err := os.MkdirTemp("", "openflow")
	if err != nil {
		panic(err)
	}
	sw := &fakeSwitch{}
	if err := sw.listen(filepath.Join(dir, "s")); err != nil {
		panic(err)
	}
	return "unix:" + filepath.Join(dir, "s"), func() { sw.stop(); os.RemoveAll(dir) }
}

// stop closes the socket and all connections.
func (sw *fakeSwitch) stop() {
	sw.listener.Close()
	sw.mu.Lock()
	defer sw.mu.Unlock()
	for _, c := range sw.conns {
		c.Close()
	}
	sw.conns = nil
}

func (sw *fakeSwitch) serve(nc net.Conn) {
	defer nc.Close()
	c := &fakeConn{Conn: nc}
	sw.mu.Lock()
	sw.conns = append(sw.conns, c)
	sw.mu.Unlock()
	hello := sw.hello
	if hello == nil {
		hello = hello15
	}
	go func() { _, _ = c.Write(hello) }()
	for {
		typ, xid, body, err := readFake(nc)
		if err != nil {
			return
		}
		if typ == 0 {
			continue
		}
		sw.mu.Lock()
		sw.types = append(sw.types, typ)
		sw.mu.Unlock()
		if sw.answer == nil || !sw.answer(c, typ, xid, body) {
			c.serve(typ, xid, body)
		}
	}
}

func readFake(r io.Reader) (typ uint8, xid uint32, body []byte, err error) {
	var head [8]byte
	if _, err = io.ReadFull(r, head[:]); err != nil {
		return 0, 0, nil, err
	}
	body = make([]byte, binary.BigEndian.Uint16(head[2:])-8)
	_, err = io.ReadFull(r, body)
	return head[1], binary.BigEndian.Uint32(head[4:]), body, err
}

// serve is the default behavior.
func (c *fakeConn) serve(typ uint8, xid uint32, body []byte) {
	switch typ {
	case wireEchoRequest:
		c.send(wireEchoReply, xid, body...)
	case wireBarrierRequest:
		c.send(wireBarrierReply, xid)
	case wireFeaturesRequest:
		c.send(wireFeaturesReply, xid, 0, 0, 0, 0, 0, 0, 0, byte(xid), 0, 0, 0, 0, 254, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	case wireBundleControl:
		body[5]++ // the reply to a request of type n has n+1
		c.send(wireBundleControl, xid, body...)
	}
}

func (c *fakeConn) send(typ uint8, xid uint32, body ...byte) {
	b := []byte{6, typ}
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(body)))
	b = binary.BigEndian.AppendUint32(b, xid)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.Write(append(b, body...))
}

// refuse sends an error about message xid.
func (c *fakeConn) refuse(xid uint32, typ, code uint16) {
	body := binary.BigEndian.AppendUint16(nil, typ)
	c.send(wireError, xid, binary.BigEndian.AppendUint16(body, code)...)
}

// seen are the types of the messages received so far.
func (sw *fakeSwitch) seen() []uint8 {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	return slices.Clone(sw.types)
}
