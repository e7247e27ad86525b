// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/wire"
)

// listen serves a world on a socket until the test ends or stop is called.
func (w *world) listen(path string) (client *http.Client, stop func() error) {
	w.t.Helper()
	l, err := Listen(path)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- w.Serve(ctx, l) }()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", path)
	}}
	stop = func() error { cancel(); return <-served }
	w.t.Cleanup(cancel)
	return &http.Client{Transport: transport}, stop
}

func post(t *testing.T, c *http.Client, path string, body []byte) (status int, header, answer string) {
	t.Helper()
	resp, err := c.Post("http://agent"+path, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get(wire.Header), string(text)
}

func TestSocket(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(t.TempDir(), "run", "cni.sock")
	client, stop := w.listen(path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v, want mode 0600", info, err)
	}
	body, err := json.Marshal(addRequest("a"))
	if err != nil {
		t.Fatal(err)
	}
	huge, err := json.Marshal(wire.Request{Command: "ADD", Config: make([]byte, wire.MaxRequest)})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path string
		body       []byte
		status     int
		want       string
	}{
		{"ADD", wire.Path, body, 200, `"address": "10.244.1.2/24"`},
		{"DEL", wire.Path, bytes.Replace(body, []byte(`"ADD"`), []byte(`"DEL"`), 1), 200, ""},
		{"bad", wire.Path, bytes.Replace(body, []byte(`"ADD"`), []byte(`"XXX"`), 1), 500, `"code":4`},
		{"not JSON", wire.Path, []byte("{"), 400, `"code":6`},
		{"too long", wire.Path, huge, 400, "too large"},
		{"another path", "/v1/status", body, 404, "not a CNI request: POST /v1/status"},
	} {
		status, header, answer := post(t, client, tt.path, tt.body)
		if status != tt.status || header != wire.Version || !strings.Contains(answer, tt.want) {
			t.Errorf("%s: status %d, header %q, %s", tt.name, status, header, answer)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	// The name stays, as after a crash; the next agent takes it over.
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	client, stop = w.listen(path)
	if status, _, answer := post(t, client, wire.Path, body); status != 200 {
		t.Errorf("after a restart: %d %s", status, answer)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// An agent that is asked to stop finishes what it has begun.
func TestStopWaitsForRequests(t *testing.T) {
	w := newWorld(t)
	w.bridge.block, w.bridge.entered = make(chan struct{}), make(chan string)
	client, stop := w.listen(filepath.Join(t.TempDir(), "cni.sock"))
	body, err := json.Marshal(addRequest("a"))
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan int)
	go func() { status, _, _ := post(t, client, wire.Path, body); answered <- status }()
	<-w.bridge.entered
	stopped := make(chan error)
	go func() { stopped <- stop() }()
	select {
	case err := <-stopped:
		t.Fatalf("stopped in the middle of a request: %v", err)
	default:
	}
	close(w.bridge.block)
	if status := <-answered; status != 200 {
		t.Errorf("status %d", status)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if _, ok := w.store.Get(attachment.Key{ContainerID: "a", IfName: "eth0"}); !ok {
		t.Error("the pod is not attached")
	}
}

func TestListenErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		filepath.Join(file, "cni.sock"),
		filepath.Join(t.TempDir(), strings.Repeat("x", 120)), // the kernel takes 107 bytes
	} {
		if l, err := Listen(path); err == nil || !strings.Contains(err.Error(), "CNI socket") {
			t.Errorf("Listen(%s) = %v, %v", path, l, err)
		}
	}
}
