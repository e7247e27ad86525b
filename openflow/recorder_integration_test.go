// SPDX-License-Identifier: Apache-2.0

//go:build integration

package openflow

import (
	"bytes"
	"context"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// recorder is a switch that answers what ovs-ofctl needs to go on, and records all that
// it is sent.
type recorder struct {
	listener net.Listener
	path     string
	got      chan []byte
}

func newRecorder(t *testing.T) *recorder {
	path := filepath.Join(t.TempDir(), "switch.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{listener: l, path: path, got: make(chan []byte, 1000)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.serve(c)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return r
}

func (r *recorder) target() string { return "unix:" + r.path }

func (r *recorder) ofctl(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	args = append([]string{"--no-names", "--timeout=10", "-O", "OpenFlow15"}, args...)
	out, err := exec.CommandContext(ctx, "ovs-ofctl", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ovs-ofctl %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// take returns what was recorded since the last time.
func (r *recorder) take() (list [][]byte) {
	for {
		select {
		case b := <-r.got:
			list = append(list, b)
		default:
			return list
		}
	}
}

func (r *recorder) serve(c net.Conn) {
	defer c.Close()
	hello, err := AppendMessage(nil, 1, &Hello{})
	if err == nil {
		_, err = c.Write(hello)
	}
	for err == nil {
		var head [HeaderLen]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		h, err := ParseHeader(head[:])
		if err != nil {
			return
		}
		b := append(head[:], make([]byte, int(h.Length)-HeaderLen)...)
		if _, err := io.ReadFull(c, b[HeaderLen:]); err != nil {
			return
		}
		r.got <- bytes.Clone(b)
		if answer := answerTo(h, b); answer != nil {
			reply, err := AppendMessage(nil, h.XID, answer)
			if err != nil {
				return
			}
			if _, err := c.Write(reply); err != nil {
				return
			}
		}
	}
}

// answerTo returns what a switch without tables answers, nil for nothing.
func answerTo(h Header, b []byte) Message {
	_, m, err := Decode(b)
	if err != nil {
		return &Error{Type: 1, Code: 1, Data: b}
	}
	switch m := m.(type) {
	case *EchoRequest:
		return &EchoReply{m.Data}
	case *BarrierRequest:
		return &BarrierReply{}
	case *FeaturesRequest:
		return &Features{DatapathID: 1, NTables: 254}
	case *GetConfigRequest:
		return &GetConfigReply{}
	case *BundleControl:
		return &BundleControl{m.BundleID, m.Type + 1, m.Flags}
	case *TLVTableRequest:
		return &TLVTableReply{MaxSpace: 256, MaxFields: 64}
	case *MultipartRequest:
		if body, ok := m.Body.(*UnknownMultipart); ok {
			return &Error{Type: 1, Code: 2, Data: append(b[:HeaderLen:HeaderLen], body.Data...)}
		}
		return &MultipartReply{Body: emptyReply(m.Body)}
	}
	return nil
}

// emptyReply is the answer that there is nothing.
func emptyReply(request MultipartBody) MultipartBody {
	if request.multipartType() == mpDesc {
		return &Desc{}
	}
	return &UnknownMultipart{Type: request.multipartType()}
}
