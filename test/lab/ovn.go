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

	"coelan.io/coelan/internal/config"
)

// OVN is OVN on a lab's nodes, as Debian has it: both databases and ovn-northd, and ovn-controller
// on each node. With agents, the northbound database is as the API's objects say; without, nothing
// is there but what tests write.
type OVN struct {
	lab *Lab
	dir string
	// stop ends what writes into the northbound database.
	stop func()
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

// ovnSchemas is where Debian's ovn-common puts the databases' schemas.
const ovnSchemas = "/usr/share/ovn"

// ovnTimeout bounds every wait for one of OVN's programs.
const ovnTimeout = time.Minute

// startOVN runs the databases and ovn-northd until the lab ends.
func (l *Lab) startOVN(ctx context.Context) error {
	o := &OVN{lab: l, dir: filepath.Join(l.dir, "ovn"), stop: func() {}, kill: map[OVNProgram]func(){}}
	l.OVN = o
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	for db, schema := range map[OVNProgram]string{OVNNorthbound: "OVN_Northbound", OVNSouthbound: "OVN_Southbound"} {
		// The first writer makes the one row of the global table: a change that is made meanwhile
		// would wait forever.
		row := fmt.Sprintf(`[%q,{"op":"insert","table":"%s_Global","row":{}}]`, schema, strings.ToUpper(string(db)))
		for _, args := range [][]string{
			{"create", o.file(db), filepath.Join(ovnSchemas, fmt.Sprintf("ovn-%s.ovsschema", db))}, {"transact", o.file(db), row},
		} {
			if out, err := exec.CommandContext(ctx, "ovsdb-tool", args...).CombinedOutput(); err != nil {
				return fmt.Errorf("OVN's %s database: %w: %s", db, err, out)
			}
		}
	}
	for _, p := range []OVNProgram{OVNNorthbound, OVNSouthbound, OVNNorthd} {
		if err := o.Start(p); err != nil {
			return err
		}
	}
	if l.options.NoAgents {
		return nil
	}
	return o.Resume()
}

func (o *OVN) file(db OVNProgram) string { return filepath.Join(o.dir, string(db)+".db") }

// Start starts one of the programs, which ends with the lab. It must not run.
func (o *OVN) Start(p OVNProgram) error {
	program, args := "ovsdb-server", []string{o.file(p), "--remote=p" + o.Remote(string(p))}
	if p == OVNNorthd {
		program, args = "ovn-northd", []string{"--ovnnb-db=" + o.Remote("nb"), "--ovnsb-db=" + o.Remote("sb")}
	}
	kill, err := o.killable(o.lab.Outside, o.dir, program, args...)
	if err == nil {
		o.kill[p] = kill
	}
	return err
}

// Kill kills one of the programs as kill -9 does, and waits until it is gone.
func (o *OVN) Kill(p OVNProgram) { o.kill[p]() }

// Remote is where a database listens: nb or sb.
func (o *OVN) Remote(db string) string { return "unix:" + filepath.Join(o.dir, db+".sock") }

// daemon starts one of OVN's programs, which ends with the host.
func (o *OVN) daemon(h *Host, runDir, program string, args ...string) (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(runDir, program+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+runDir, "OVN_RUNDIR="+runDir)
	cmd.Stdout, cmd.Stderr = log, log
	if err := h.Start(cmd); err != nil {
		return nil, fmt.Errorf("start %s on %s: %w", program, h.Name, err)
	}
	return cmd, nil
}

// killable starts one of OVN's programs, and returns what kills it and waits until it is gone.
func (o *OVN) killable(h *Host, runDir, program string, args ...string) (kill func(), err error) {
	cmd, err := o.daemon(h, runDir, program, args...)
	if err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(exited)
	}()
	return func() {
		_ = cmd.Process.Kill() // fails only if it is gone already
		<-exited
	}, nil
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
		if _, err := n.OVS.Appctl(ctx, "ovs/route/add", n.Addresses[0].Masked().String(), physicalBridge); err != nil {
			return err
		}
	}
	if _, err := n.OVS.Vsctl(ctx, "set", "open_vswitch", ".", "external_ids:system-id="+n.Name,
		"external_ids:ovn-remote="+n.lab.OVN.Remote("sb"), "external_ids:ovn-encap-type=geneve",
		fmt.Sprintf("external_ids:ovn-encap-ip=%q", n.Addresses[0].Addr()),
		"external_ids:ovn-bridge-datapath-type="+n.OVS.Datapath); err != nil {
		return err
	}
	if err := n.StartOVNController(); err != nil {
		return err
	}
	_, err := n.OVS.Vsctl(ctx, "wait-until", "bridge", bridge)
	return err
}

// StartOVNController starts the node's ovn-controller, which ends with the node.
func (n *Node) StartOVNController() error {
	kill, err := n.lab.OVN.killable(n.Host, n.ovsDir(), "ovn-controller", "unix:"+n.OVS.DBSocket())
	if err != nil {
		return err
	}
	n.controller = kill
	return nil
}

// KillOVNController kills it as kill -9 does, and waits until it is gone.
func (n *Node) KillOVNController() { n.controller() }
