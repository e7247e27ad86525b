// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/diagnose"
)

func newClusterStatusCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Show every node's agent: Open vSwitch, ports, tunnels, last sync, errors; and how far OVN is behind",
		Args:  cobra.NoArgs,
	}
	flags := addClusterFlags(c)
	flags.addNodeFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		withOVN := false
		err := flags.eachNode(cmd, func(agents diagnose.Agents, node string) error {
			s, err := diagnose.Status(cmd.Context(), agents, node)
			switch {
			case err != nil:
				return err
			case flags.json:
				return printJSON(out, s)
			}
			printNodeStatus(out, s)
			withOVN = withOVN || s.Backend == string(config.OVNBackend)
			return nil
		})
		if flags.json || flags.node != "" || !withOVN {
			return err
		}
		return errors.Join(err, flags.printOVN(cmd))
	}
	return c
}

// printOVN says how long OVN takes to follow.
func (f *clusterFlags) printOVN(cmd *cobra.Command) error {
	cluster, _, err := f.connect()
	if err != nil {
		return err
	}
	p, err := cluster.OVN(cmd.Context())
	if err != nil {
		return fmt.Errorf("how far OVN is behind: %w", err)
	}
	if p != nil {
		fmt.Fprintf(cmd.OutOrStdout(), "OVN: %s\n", progressOf(*p))
	}
	return nil
}

// progressOf says how long ovn-northd and the chassis took, or that they did not follow.
func progressOf(p agentapi.OVNProgress) string {
	after := func(name string, took *time.Duration) string {
		if took == nil {
			return fmt.Sprintf("%s NOT within %s", name, p.Waited.Round(time.Millisecond))
		}
		return fmt.Sprintf("%s within %s", name, took.Round(time.Millisecond))
	}
	return after("ovn-northd follows", p.Northd) + ", " + after("all chassis", p.Chassis)
}

func printNodeStatus(w io.Writer, s agentapi.Status) {
	ready := "ready"
	if !s.Ready {
		ready = "NOT READY"
	}
	fmt.Fprintf(w, "%s: %s\n", s.Node, ready)
	connected := "connected"
	if !s.OVS.Connected {
		connected = "NOT CONNECTED"
	}
	t := newTable(w, "  agent", fmt.Sprintf("%s, since %s", s.Version, s.Since.Format(time.RFC3339)))
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "  "+name+"\t"+format+"\n", args...) }
	row("Open vSwitch", "%s, bridge %s, datapath %s, %s", s.OVS.Version, s.OVS.Bridge, s.OVS.Datapath, connected)
	row("pods", "%d ports, addresses from %s, MTU %d", s.Ports, join(s.PodCIDRs), s.MTU)
	row("configuration", "%s", configurationOf(s.Configuration))
	row("last sync", "%s, %.1f ms: %d flows (%d added, %d changed, %d deleted)", s.Sync.Time.Format(time.RFC3339),
		float64(s.Sync.Duration)/float64(time.Millisecond), s.Sync.Flows, s.Sync.Added, s.Sync.Changed, s.Sync.Deleted)
	row("policies", "%s", policiesOf(s.Policies))
	for _, p := range s.Peers {
		by := s.Encapsulation + " to " + p.TunnelIP
		if p.TunnelIP == "" {
			by = "by " + join(p.Addresses)
		}
		row("to "+p.Node, "%s: %s", by, join(p.PodCIDRs))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Conditions)) {
		if reason := s.Conditions[name]; reason != "" {
			row("ERROR", "%s: %s", name, reason)
		}
	}
	for _, p := range s.Problems {
		row("PROBLEM", "%s", p)
	}
	_ = t.Flush()
}

// configurationOf says which configuration a node runs with.
func configurationOf(c agentapi.ConfigurationStatus) string {
	text := "the ConfigMap's"
	if c.Name != "" {
		text = fmt.Sprintf("nodenetworkconfig %s, generation %d, since %s", c.Name, c.Generation,
			c.Since.Format(time.RFC3339))
	}
	if c.Trial != "" {
		text += ", on trial: " + c.Trial
	}
	return text
}

// policiesOf says what is enforced, and which controller sends changes.
func policiesOf(p agentapi.PolicyStatus) string {
	if p.Mode != string(config.EnforcedPolicies) {
		return "not enforced"
	}
	by := "NO CONTROLLER"
	if p.Connected {
		by = "from " + p.Controller
	}
	if !p.Since.IsZero() {
		by += " since " + p.Since.Format(time.RFC3339)
	}
	text := fmt.Sprintf("%d rules for %d ports, %d peers, %s", p.Rules, p.Subjects, p.Peers, by)
	if len(p.Closed) > 0 {
		text += fmt.Sprintf(", %d ports CLOSED", len(p.Closed))
	}
	return text
}
