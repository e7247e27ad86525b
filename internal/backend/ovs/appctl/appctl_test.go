// SPDX-License-Identifier: Apache-2.0

package appctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve listens as a daemon with pid 42 does; answer is sent for each request,
// or nothing if it is empty.
func serve(t *testing.T, answer string) (runDir string, requests <-chan string) {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "ovs-vswitchd.42.ctl"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "42\n")
	got := make(chan string, 1)
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r := bufio.NewReader(conn)
			line, _ := r.ReadString('\n')
			got <- line
			if answer != "" {
				fmt.Fprint(conn, answer)
			} else {
				_, _ = r.ReadByte() // until the client gives up
			}
			conn.Close()
		}
	}()
	return dir, got
}

func write(t *testing.T, dir, pid string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "ovs-vswitchd.pid"), []byte(pid), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCall(t *testing.T) {
	tests := []struct {
		name, answer string
		want         string
		wantErr      error
	}{
		{"result", `{"id":0,"result":"line 1\nline 2\n","error":null}`, "line 1\nline 2\n", nil},
		{"empty result", `{"id":0,"result":"","error":null}`, "", nil},
		{"refused", `{"id":0,"result":null,"error":"no such bridge\n"}`, "",
			&Error{"ovs-vswitchd", "ofproto/trace", "no such bridge"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, requests := serve(t, tt.answer)
			got, err := Vswitchd(dir).Call(t.Context(), "ofproto/trace", "br0", "in_port=1")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if fmt.Sprint(err) != fmt.Sprint(tt.wantErr) {
				t.Errorf("error %v, want %v", err, tt.wantErr)
			}
			want := `{"id":0,"method":"ofproto/trace","params":["br0","in_port=1"]}` + "\n"
			if diff := cmp.Diff(want, <-requests); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDaemonNotThere(t *testing.T) {
	tests := []struct {
		name, pid string
		want      string
		notRuns   bool
	}{
		{"no pid file", "", "does not exist", true},
		{"stale pid file", "4711\n", "4711.ctl", true},
		{"garbage", "../../etc\n", "holds no process id", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.pid != "" {
				write(t, dir, tt.pid)
			}
			_, err := Vswitchd(dir).Call(t.Context(), "version")
			if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, ErrNotRunning) != tt.notRuns {
				t.Errorf("got %v, want one that says %q", err, tt.want)
			}
		})
	}
}

func TestHangingDaemon(t *testing.T) {
	dir, _ := serve(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Vswitchd(dir).Call(ctx, "version"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
}

func TestDaemonHangsUp(t *testing.T) {
	dir, _ := serve(t, " ")
	if _, err := Vswitchd(dir).Call(t.Context(), "exit"); err == nil || !strings.Contains(err.Error(), "hung up") {
		t.Errorf("got %v", err)
	}
}
