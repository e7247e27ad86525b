// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"coelan.io/coelan/internal/backend/ovn/northbound"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/ovntest"
)

// OVN is OVN on a lab's nodes, as Debian has it: both databases and ovn-northd, and ovn-controller
// on each node. With agents, the northbound database is as the API's objects say; without, nothing
// is there but what tests write.
type OVN struct {
	lab     *Lab
	daemons ovntest.Daemons
	// stop ends what writes into the northbound database, which client is.
	stop   func()
	client *northbound.Client
	// kill ends each of the programs, by its name.
	kill     map[OVNProgram]func()
	policies clusterPolicies

	mu      sync.Mutex
	failure error
}

// OVNProgram is one of OVN's programs that a lab has once.
type OVNProgram string

// The servers of the databases, and ovn-northd.
const (
	OVNNorthbound OVNProgram = "nb"
	OVNSouthbound OVNProgram = "sb"
	OVNNorthd     OVNProgram = "northd"
)

// ovnTimeout bounds every wait for one of OVN's programs.
const ovnTimeout = time.Minute

// startOVN runs the databases and ovn-northd until the lab ends.
func (l *Lab) startOVN(ctx context.Context) error {
	dir := filepath.Join(l.dir, "ovn")
	o := &OVN{
		lab: l, daemons: ovntest.Daemons{Dir: dir, Start: logged(l.Outside, dir)}, stop: func() {},
		kill: map[OVNProgram]func(){},
	}
	l.OVN = o
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, db := range []OVNProgram{OVNNorthbound, OVNSouthbound} {
		if err := o.daemons.Create(ctx, string(db)); err != nil {
			return err
		}
	}
	for _, p := range []OVNProgram{OVNNorthbound, OVNSouthbound, OVNNorthd} {
		if err := o.Start(p); err != nil {
			return err
		}
	}
	if l.options.NoAgents || l.options.Neutron {
		return nil
	}
	return o.Resume()
}

// Start starts one of the programs, which ends with the lab. It must not run.
func (o *OVN) Start(p OVNProgram) error {
	start := o.daemons.Northd
	if p != OVNNorthd {
		start = func() (*exec.Cmd, error) { return o.daemons.Serve(string(p)) }
	}
	cmd, err := start()
	if err == nil {
		o.kill[p] = killable(cmd)
	}
	return err
}

// Kill kills one of the programs as kill -9 does, and waits until it is gone.
func (o *OVN) Kill(p OVNProgram) { o.kill[p]() }

// Remote is where a database listens: nb or sb.
func (o *OVN) Remote(db string) string { return o.daemons.Remote(db) }

// logged starts programs that end with a host, and leaves what they print in a directory.
func logged(h *Host, dir string) func(*exec.Cmd) error {
	return func(cmd *exec.Cmd) error {
		file := filepath.Join(dir, filepath.Base(cmd.Path)+".log")
		log, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return err
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
		return h.Start(cmd)
	}
}

// killable returns what kills a program that runs, and waits until it is gone.
func killable(cmd *exec.Cmd) (kill func()) {
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(exited)
	}()
	return func() {
		_ = cmd.Process.Kill() // fails only if it is gone already
		<-exited
	}
}

// Nbctl changes the northbound database and waits until all nodes have followed.
func (o *OVN) Nbctl(ctx context.Context, args ...string) (string, error) {
	return o.tool(ctx, "ovn-nbctl", append([]string{"--db=" + o.Remote("nb"), "--wait=hv"}, args...)...)
}

// Sbctl asks the southbound database.
func (o *OVN) Sbctl(ctx context.Context, args ...string) (string, error) {
	return o.tool(ctx, "ovn-sbctl", append([]string{"--db=" + o.Remote("sb")}, args...)...)
}

func (o *OVN) tool(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, ovnTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("%s %v: %w: %s", program, args, err, out)
	}
	return text, nil
}

// bootOVN configures the node as a chassis, and returns when ovn-controller has made its bridge.
func (n *Node) bootOVN(ctx context.Context) error {
	if n.lab.options.Datapath == config.DatapathNetdev {
		// Else each interface that appears on the node costs tunnels a few milliseconds, while
		// ovs-vswitchd reads the kernel's routes anew.
		if err := n.addRoute(ctx); err != nil {
			return err
		}
	}
	chassis := n.lab.OVN.daemons.ChassisOf(n.Name, n.Addresses[0].Addr(), n.OVS.Datapath)
	if _, err := n.OVS.Vsctl(ctx, chassis...); err != nil {
		return err
	}
	if err := n.StartOVNController(); err != nil {
		return err
	}
	_, err := n.OVS.Vsctl(ctx, "wait-until", "bridge", bridge)
	return err
}

// addRoute tells ovs-vswitchd the way to the other nodes, as soon as it knows the node's address.
func (n *Node) addRoute(ctx context.Context) error {
	for {
		_, err := n.OVS.Appctl(ctx, "ovs/route/add", n.Addresses[0].Masked().String(), physicalBridge)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// StartOVNController starts the node's ovn-controller, which ends with the node.
func (n *Node) StartOVNController() error {
	daemons := n.lab.OVN.daemons
	daemons.Start = logged(n.Host, n.ovsDir())
	cmd, err := daemons.Controller(n.ovsDir(), n.OVS.DBSocket())
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	n.controller = killable(cmd)
	return nil
}

// KillOVNController kills it as kill -9 does, and waits until it is gone.
func (n *Node) KillOVNController() { n.controller() }
