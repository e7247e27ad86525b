// SPDX-License-Identifier: Apache-2.0

package ovntest

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Daemons are OVN's programs, as tests and labs start them, on databases in a directory.
type Daemons struct {
	Dir string // with a short path: sockets are there
	// Start starts a program that ends with what it is started for.
	Start func(*exec.Cmd) error
}

// Create makes a database, nb or sb, with the one row of its global table: the first writer would
// make it, and a change that is made meanwhile would wait forever.
func (d Daemons) Create(ctx context.Context, db string) error {
	schema := map[string]string{"nb": "OVN_Northbound", "sb": "OVN_Southbound"}[db]
	row := fmt.Sprintf(`[%q,{"op":"insert","table":"%s_Global","row":{}}]`, schema, strings.ToUpper(db))
	for _, args := range [][]string{
		{"create", d.File(db), filepath.Join(schemas, "ovn-"+db+".ovsschema")}, {"transact", d.File(db), row},
	} {
		if out, err := exec.CommandContext(ctx, "ovsdb-tool", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("OVN's %s database: %w: %s", db, err, out)
		}
	}
	return nil
}

// File is that of a database.
func (d Daemons) File(db string) string { return filepath.Join(d.Dir, db+".db") }

// Remote is where a database listens: nb or sb.
func (d Daemons) Remote(db string) string { return "unix:" + filepath.Join(d.Dir, db+".sock") }

// Serve starts the server of a database, with more options if any.
func (d Daemons) Serve(db string, args ...string) (*exec.Cmd, error) {
	return d.start(exec.Command("ovsdb-server", append([]string{d.File(db), "--remote=p" + d.Remote(db)}, args...)...),
		d.Dir)
}

// Northd starts ovn-northd.
func (d Daemons) Northd() (*exec.Cmd, error) {
	return d.start(exec.Command("ovn-northd", "--ovnnb-db="+d.Remote("nb"), "--ovnsb-db="+d.Remote("sb")), d.Dir)
}

// Controller starts ovn-controller for the Open vSwitch of a run directory.
func (d Daemons) Controller(runDir, database string) (*exec.Cmd, error) {
	return d.start(exec.Command("ovn-controller", "unix:"+database), runDir)
}

func (d Daemons) start(cmd *exec.Cmd, runDir string) (*exec.Cmd, error) {
	cmd.Env = append(os.Environ(), "OVN_RUNDIR="+runDir, "OVS_RUNDIR="+runDir)
	if err := d.Start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	return cmd, nil
}

// ChassisOf are the arguments of ovs-vsctl that make an Open vSwitch a chassis of that name.
func (d Daemons) ChassisOf(name string, address netip.Addr, datapath string) []string {
	return []string{
		"set", "open_vswitch", ".", "external_ids:system-id=" + name, "external_ids:hostname=" + name,
		"external_ids:ovn-remote=" + d.Remote("sb"),
		"external_ids:ovn-encap-type=geneve", fmt.Sprintf("external_ids:ovn-encap-ip=%q", address),
		"external_ids:ovn-bridge-datapath-type=" + datapath,
	}
}
