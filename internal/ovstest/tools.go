// SPDX-License-Identifier: Apache-2.0

package ovstest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Command is a command that talks to this Open vSwitch: the environment points
// OVS's own tools to its directory. It runs in the network namespace only if
// it is started by Do.
func (o *OVS) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+o.Dir, "OVS_DBDIR="+o.Dir, "OVS_LOGDIR="+o.Dir)
	return cmd
}

// Run runs a command in the network namespace and returns what it printed.
func (o *OVS) Run(ctx context.Context, name string, args ...string) (string, error) {
	var out []byte
	cmd := o.Command(ctx, name, args...)
	err := o.Do(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	return toolResult(cmd, out, err)
}

// Vsctl runs ovs-vsctl, bounded to 30 seconds, and returns what it printed.
func (o *OVS) Vsctl(ctx context.Context, args ...string) (string, error) {
	return o.tool(ctx, "ovs-vsctl", append([]string{"--timeout=30", "--db=unix:" + o.DBSocket()}, args...)...)
}

// Ofctl runs ovs-ofctl in OpenFlow 1.5 and returns what it printed.
func (o *OVS) Ofctl(ctx context.Context, args ...string) (string, error) {
	return o.tool(ctx, "ovs-ofctl", append([]string{"--timeout=60", "--no-names", "-O", "OpenFlow15"}, args...)...)
}

// Appctl runs ovs-appctl on ovs-vswitchd and returns what it printed.
func (o *OVS) Appctl(ctx context.Context, args ...string) (string, error) {
	return o.tool(ctx, "ovs-appctl", append([]string{"--timeout=30"}, args...)...)
}

func (o *OVS) tool(ctx context.Context, name string, args ...string) (string, error) {
	cmd := o.Command(ctx, name, args...)
	out, err := cmd.CombinedOutput()
	return toolResult(cmd, out, err)
}

func toolResult(cmd *exec.Cmd, out []byte, err error) (string, error) {
	text := strings.TrimRight(string(out), "\n")
	if err != nil {
		return text, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, text)
	}
	return text, nil
}
