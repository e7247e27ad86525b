// SPDX-License-Identifier: Apache-2.0

// Package appctl calls the control commands of Open vSwitch daemons, as
// ovs-appctl does: ofproto/trace, dpctl/dump-flows, tnl/neigh/set and so on.
//
// The protocol is JSON-RPC 1.0 over a unix socket (ovs: lib/unixctl.c).
package appctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// DefaultTimeout bounds a call if its context has no deadline.
const DefaultTimeout = 30 * time.Second

// ErrNotRunning is wrapped by the error of a call to a daemon that does not
// run.
var ErrNotRunning = errors.New("not running")

// Error is what a daemon answers to a command that failed, in its own words.
type Error struct {
	Daemon, Method string
	Text           string
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %s", e.Daemon, e.Method, e.Text) }

// Client calls one daemon. It holds no connection: every call finds the
// daemon's present socket, so a restart of the daemon needs no care.
type Client struct {
	runDir, daemon string
}

// Vswitchd is a client of the ovs-vswitchd with the run directory runDir, for
// example /run/openvswitch.
func Vswitchd(runDir string) *Client { return &Client{runDir: runDir, daemon: "ovs-vswitchd"} }

// DBServer is a client of the ovsdb-server with the run directory runDir.
func DBServer(runDir string) *Client { return &Client{runDir: runDir, daemon: "ovsdb-server"} }

// Socket is the path of the daemon's control socket: DAEMON.PID.ctl, with the
// pid that the daemon wrote into DAEMON.pid.
func (c *Client) Socket() (string, error) {
	pidFile := filepath.Join(c.runDir, c.daemon+".pid")
	raw, err := os.ReadFile(pidFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is %w: %s does not exist", c.daemon, ErrNotRunning, pidFile)
	}
	if err != nil {
		return "", err
	}
	pid := strings.TrimSpace(string(raw))
	if pid == "" || strings.Trim(pid, "0123456789") != "" {
		return "", fmt.Errorf("%s holds no process id: %.20q", pidFile, pid)
	}
	return filepath.Join(c.runDir, c.daemon+"."+pid+".ctl"), nil
}

// Call runs one command and returns the text it printed. A command that the
// daemon refuses is an *Error; a daemon that does not run is ErrNotRunning.
func (c *Client) Call(ctx context.Context, method string, args ...string) (string, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	socket, err := c.Socket()
	if err != nil {
		return "", err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is %w: %w", c.daemon, ErrNotRunning, err)
	}
	if err != nil {
		return "", err
	}
	defer conn.Close()
	// Closing the connection is what ends a blocked read or write.
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	text, err := c.exchange(conn, method, args)
	if err != nil && ctx.Err() != nil {
		return "", fmt.Errorf("%s: %s: no answer: %w", c.daemon, method, ctx.Err())
	}
	return text, err
}

type request struct {
	ID     int      `json:"id"`
	Method string   `json:"method"`
	Params []string `json:"params"`
}

type reply struct {
	Result *string         `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func (c *Client) exchange(conn net.Conn, method string, args []string) (string, error) {
	if args == nil {
		args = []string{} // the daemon wants an array
	}
	if err := json.NewEncoder(conn).Encode(request{Method: method, Params: args}); err != nil {
		return "", fmt.Errorf("%s: %s: %w", c.daemon, method, err)
	}
	var r reply
	if err := json.NewDecoder(conn).Decode(&r); err != nil {
		return "", fmt.Errorf("%s: %s: the daemon hung up: %w", c.daemon, method, err)
	}
	if r.Result != nil {
		return *r.Result, nil
	}
	var text string
	if err := json.Unmarshal(r.Error, &text); err != nil {
		text = string(r.Error)
	}
	return "", &Error{Daemon: c.daemon, Method: method, Text: strings.TrimSpace(text)}
}
