// SPDX-License-Identifier: Apache-2.0

// Package ovstest runs a real Open vSwitch for tests: an ovsdb-server and an
// ovs-vswitchd of their own, in a directory and a network namespace of their
// own, which a test can stop, kill and start again.
//
// The processes are children of the test and die with it, however it ends. It
// needs root and the Debian packages openvswitch-switch and -common.
package ovstest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// DatapathEnv names the environment variable that selects the datapath type of
// tests: "netdev" (the default) or "system".
const DatapathEnv = "COELAN_TEST_DATAPATH"

// Schema is where Debian's openvswitch-common puts the database schema.
const Schema = "/usr/share/openvswitch/vswitch.ovsschema"

// startTimeout bounds every wait for a daemon; it is long because the same
// tests run in an emulated machine.
const startTimeout = 60 * time.Second

// Options says where an Open vSwitch runs. The zero value is a temporary
// directory and a new network namespace.
type Options struct {
	// Dir holds the database, the sockets, the pid files and the logs. Socket
	// paths must stay below 108 bytes. Empty: a temporary one, removed by Stop.
	Dir string
	// Netns is the path of the network namespace to run in. Empty: a new one
	// that has only a loopback interface and vanishes with the processes.
	Netns string
	// Datapath is "netdev" or "system". Empty: DatapathEnv, else "netdev".
	Datapath string
	// OwnRoutes has tunnels of the userspace datapath go by the routes that ovs-vswitchd is told
	// alone, not by the kernel's.
	OwnRoutes bool
}

// OVS is one running Open vSwitch. Its methods are not safe for concurrent
// use, except Command, Vsctl, Ofctl, Appctl and Do.
type OVS struct {
	// Dir is the run, database and log directory.
	Dir string
	// Datapath is the datapath_type that bridges of the test should have.
	Datapath string

	ownDir   bool
	args     []string // of ovs-vswitchd
	ns       *Namespace
	db       *process
	vswitchd *process
}

// Start runs an Open vSwitch until the test ends. If the test failed, the end
// of the logs is in the test's output.
func Start(t testing.TB, opts Options) *OVS {
	t.Helper()
	o, err := New(context.Background(), opts)
	if err != nil {
		t.Fatalf("start Open vSwitch: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			_, _ = o.Appctl(context.Background(), "vlog/reopen") // it flushes the log
			t.Logf("ovs-vswitchd.log ends:\n%s", o.LogTail("ovs-vswitchd"))
			t.Logf("ovsdb-server.log ends:\n%s", o.LogTail("ovsdb-server"))
		}
		o.Stop()
	})
	return o
}

// New runs an Open vSwitch until Stop. It returns when ovs-vswitchd has read
// its database.
func New(ctx context.Context, opts Options) (*OVS, error) {
	o := &OVS{Dir: opts.Dir, Datapath: opts.Datapath}
	if o.Datapath == "" {
		o.Datapath = os.Getenv(DatapathEnv)
	}
	if o.Datapath == "" {
		o.Datapath = "netdev"
	}
	if opts.OwnRoutes {
		o.args = []string{"--disable-system-route"}
	}
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "ovs")
		if err != nil {
			return nil, err
		}
		o.Dir, o.ownDir = dir, true
	} else if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	ns, err := NewNamespace(opts.Netns)
	if err != nil {
		o.Stop()
		return nil, err
	}
	o.ns = ns
	if err := errors.Join(o.createDB(ctx), o.StartDB(ctx)); err != nil {
		o.Stop()
		return nil, err
	}
	if err := o.StartVswitchd(ctx); err != nil {
		o.Stop()
		return nil, err
	}
	return o, nil
}

// Stop kills the daemons and removes what New made.
func (o *OVS) Stop() {
	o.KillVswitchd()
	o.KillDB()
	if o.ns != nil {
		o.ns.Close()
		o.ns = nil
	}
	if o.ownDir {
		os.RemoveAll(o.Dir)
	}
}

// DBSocket is the path of the database's socket.
func (o *OVS) DBSocket() string { return filepath.Join(o.Dir, "db.sock") }

// MgmtSocket is the path of a bridge's OpenFlow socket.
func (o *OVS) MgmtSocket(bridge string) string { return filepath.Join(o.Dir, bridge+".mgmt") }

// Netns is the path of the network namespace that the daemons run in.
func (o *OVS) Netns() string { return o.ns.Path() }

// Do runs fn on a thread that is in the network namespace of the daemons.
// Calls run one after the other.
func (o *OVS) Do(fn func() error) error { return o.ns.Do(fn) }

// Start starts a program where Open vSwitch runs. It is killed with that.
func (o *OVS) Start(cmd *exec.Cmd) error { return o.ns.Start(cmd) }

// AddBridge makes a bridge of the test's datapath type, in secure fail mode,
// with OpenFlow 1.5.
func (o *OVS) AddBridge(ctx context.Context, name string) error {
	_, err := o.Vsctl(ctx, "--may-exist", "add-br", name, "--",
		"set", "bridge", name, "datapath_type="+o.Datapath, "fail_mode=secure", "protocols=[OpenFlow10,OpenFlow15]")
	return err
}

func (o *OVS) createDB(ctx context.Context) error {
	path := filepath.Join(o.Dir, "conf.db")
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	out, err := o.Command(ctx, "ovsdb-tool", "create", path, Schema).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ovsdb-tool create %s: %w: %s", path, err, strings.TrimSpace(string(out)))
	}
	return nil
}
