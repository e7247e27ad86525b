// SPDX-License-Identifier: Apache-2.0

// Package ovntest runs real OVN databases and ovn-northd for tests, in a directory of their own.
// What the rows mean is asked of ovn-trace, or of packets where an ovn-controller serves an Open
// vSwitch of package ovstest. It needs the Debian packages ovn-central, ovn-common and ovn-host.
package ovntest

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"coelan.io/coelan/internal/child"
	"coelan.io/coelan/internal/ovstest"
)

// schemas is where Debian's ovn-common puts the databases' schemas.
const schemas = "/usr/share/ovn"

// timeout bounds every wait for one of the programs.
const timeout = time.Minute

// OVN is two databases and perhaps ovn-northd.
type OVN struct {
	Daemons
	t  testing.TB
	nb *exec.Cmd
}

// Start runs the databases until the test ends.
func Start(t testing.TB) *OVN {
	t.Helper()
	dir, err := os.MkdirTemp("", "ovn") //nolint:usetesting // the paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	o := newOVN(t, dir)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	for _, db := range []string{"nb", "sb"} {
		o.create(db)
	}
	o.StartNB()
	o.must(o.Serve("sb"))
	return o
}

// newOVN runs nothing yet. Its programs end with the test.
func newOVN(t testing.TB, dir string) *OVN {
	o := &OVN{t: t}
	o.Daemons = Daemons{Dir: dir, Start: func(cmd *exec.Cmd) error {
		return o.start(cmd, child.Start)
	}}
	return o
}

func (o *OVN) create(db string) {
	o.t.Helper()
	if err := o.Create(o.t.Context(), db); err != nil {
		o.t.Fatal(err)
	}
}

func (o *OVN) must(cmd *exec.Cmd, err error) *exec.Cmd {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
	return cmd
}

// Northd runs ovn-northd until the test ends.
func (o *OVN) Northd() {
	o.t.Helper()
	o.must(o.Daemons.Northd())
}

// Controller runs ovn-controller for an Open vSwitch until the test ends: a chassis of that name.
func (o *OVN) Controller(ovs *ovstest.OVS, name string) {
	o.t.Helper()
	chassis := o.ChassisOf(name, netip.AddrFrom4([4]byte{127, 0, 0, 1}), ovs.Datapath)
	if _, err := ovs.Vsctl(o.t.Context(), chassis...); err != nil {
		o.t.Fatal(err)
	}
	there := o.Daemons
	there.Start = func(cmd *exec.Cmd) error { return o.start(cmd, ovs.Start) }
	o.must(there.Controller(ovs.Dir, ovs.DBSocket()))
}

// StartNB runs the server of the northbound database, with more remotes and options if any.
func (o *OVN) StartNB(args ...string) {
	o.t.Helper()
	o.nb = o.must(o.Serve("nb", append([]string{"--unixctl=" + filepath.Join(o.Dir, "nb.ctl")}, args...)...))
	o.run("ovsdb-client", "wait", o.Remote("nb"), "OVN_Northbound", "connected")
}

// StopNB ends the server of the northbound database.
func (o *OVN) StopNB() {
	o.t.Helper()
	if err := o.nb.Process.Kill(); err != nil {
		o.t.Fatal(err)
	}
	_, _ = o.nb.Process.Wait()
}

// FreezeNB has the server of the northbound database stand still until ThawNB: its connections
// stay, and nothing is answered.
func (o *OVN) FreezeNB() { o.signal(syscall.SIGSTOP) }

// ThawNB has the server go on.
func (o *OVN) ThawNB() { o.signal(syscall.SIGCONT) }

func (o *OVN) signal(s syscall.Signal) {
	o.t.Helper()
	if err := o.nb.Process.Signal(s); err != nil {
		o.t.Fatal(err)
	}
}

// WipeNB ends the server of the northbound database and has it start with an empty one.
func (o *OVN) WipeNB() {
	o.t.Helper()
	o.StopNB()
	if err := os.Remove(o.File("nb")); err != nil {
		o.t.Fatal(err)
	}
	o.create("nb")
	o.StartNB()
}

// SaveNB returns the content of the northbound database's file, for RestoreNB.
func (o *OVN) SaveNB() []byte {
	o.t.Helper()
	data, err := os.ReadFile(o.File("nb"))
	if err != nil {
		o.t.Fatal(err)
	}
	return data
}

// RestoreNB has the server of the northbound database start with what SaveNB returned.
func (o *OVN) RestoreNB(data []byte) {
	o.t.Helper()
	o.StopNB()
	if err := os.WriteFile(o.File("nb"), data, 0o600); err != nil {
		o.t.Fatal(err)
	}
	o.StartNB()
}

// Appctl asks the server of the northbound database something.
func (o *OVN) Appctl(args ...string) string {
	o.t.Helper()
	return o.run("ovs-appctl", append([]string{"--target=" + filepath.Join(o.Dir, "nb.ctl")}, args...)...)
}

// Nbctl runs ovn-nbctl and returns what it prints.
func (o *OVN) Nbctl(args ...string) string {
	o.t.Helper()
	return o.run("ovn-nbctl", append([]string{"--timeout=60", "--db=" + o.Remote("nb")}, args...)...)
}

// Chassis makes a chassis by hand, as ovn-controller would, that has the given logical ports.
func (o *OVN) Chassis(name string, ports ...string) {
	o.t.Helper()
	o.Sbctl("chassis-add", name, "geneve", "127.0.0.1")
	for _, port := range ports {
		o.Sbctl("lsp-bind", port, name)
	}
}

// Neighbor has a router's port know the MAC of an address, as if it had answered.
func (o *OVN) Neighbor(port, address, mac string) {
	o.t.Helper()
	datapath := o.Sbctl("--bare", "--columns=datapath", "find", "port_binding", fmt.Sprintf("logical_port=%q", port))
	o.Sbctl("create", "mac_binding", fmt.Sprintf("logical_port=%q", port), fmt.Sprintf("ip=%q", address),
		fmt.Sprintf("mac=%q", mac), "datapath="+strings.TrimSpace(datapath))
}

// Sbctl runs ovn-sbctl and returns what it prints.
func (o *OVN) Sbctl(args ...string) string {
	o.t.Helper()
	return o.run("ovn-sbctl", append([]string{"--timeout=60", "--db=" + o.Remote("sb")}, args...)...)
}

// Trace asks ovn-trace what becomes of a packet on a logical switch. A logical flow that cannot be
// parsed fails the test.
func (o *OVN) Trace(datapath, packet string) string {
	o.t.Helper()
	trace := o.trace(datapath, packet)
	if strings.Contains(trace, warning) {
		o.t.Errorf("ovn-trace warns:\n%s", trace)
	}
	return trace
}

// warning is in each line of a log that warns.
const warning = "|WARN|"

// Warnings are what ovn-trace warns of when it is asked about a packet: logical flows that cannot
// be parsed.
func (o *OVN) Warnings(datapath, packet string) string {
	o.t.Helper()
	var all []string
	for line := range strings.Lines(o.trace(datapath, packet)) {
		if strings.Contains(line, warning) {
			all = append(all, line)
		}
	}
	return strings.Join(all, "")
}

func (o *OVN) trace(datapath, packet string) string {
	o.t.Helper()
	return o.run("ovn-trace", "--db="+o.Remote("sb"), "--ct=new", datapath, packet)
}

func (o *OVN) run(program string, args ...string) string {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		o.t.Fatalf("%s %s: %v: %s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// start starts a program that ends with the test.
func (o *OVN) start(cmd *exec.Cmd, start func(*exec.Cmd) error) error {
	if err := start(cmd); err != nil {
		return err
	}
	o.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_, _ = cmd.Process.Wait()
	})
	return nil
}

// Member is one server of a RAFT cluster.
type Member struct {
	Remote string // where it listens
	cmd    *exec.Cmd
}

// StartCluster runs a RAFT cluster of three servers with an empty northbound database until the
// test ends. All listen on the loopback interface.
func StartCluster(t testing.TB) []*Member {
	t.Helper()
	dir, err := os.MkdirTemp("", "ovn") //nolint:usetesting // the paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	o := newOVN(t, dir)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const size = 3
	members := make([]*Member, size)
	var first string
	for i := range members {
		file, raft := o.File(fmt.Sprint("nb", i)), "unix:"+filepath.Join(dir, fmt.Sprint("raft", i))
		if i == 0 {
			first = raft
			o.run("ovsdb-tool", "create-cluster", file, filepath.Join(schemas, "ovn-nb.ovsschema"), raft)
		} else {
			o.run("ovsdb-tool", "join-cluster", file, "OVN_Northbound", raft, first)
		}
		m := &Member{Remote: o.Remote(fmt.Sprint("nb", i))}
		m.cmd = o.must(o.Serve(fmt.Sprint("nb", i), "--unixctl="+filepath.Join(dir, fmt.Sprint("ctl", i))))
		o.run("ovsdb-client", "wait", m.Remote, "OVN_Northbound", "connected")
		members[i] = m
	}
	return members
}

// Kill ends the server.
func (m *Member) Kill() error {
	if err := m.cmd.Process.Kill(); err != nil {
		return err
	}
	_, err := m.cmd.Process.Wait()
	return err
}
