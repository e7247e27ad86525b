// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/diagnose"
)

func newClusterStatusCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "status",
		Short: "Show every node's agent: Open vSwitch, ports, tunnels, last sync, errors; how far OVN is behind, " +
			"and whether Neutron answers",
		Args: cobra.NoArgs,
	}
	flags := addClusterFlags(c)
	flags.addNodeFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		backends := map[string]bool{}
		err := flags.eachNode(cmd, func(agents diagnose.Agents, node string) error {
			s, err := diagnose.Status(cmd.Context(), agents, node)
			switch {
			case err != nil:
				return err
			case flags.json:
				return printJSON(out, s)
			}
			printNodeStatus(out, s)
			backends[s.Backend] = true
			return nil
		})
		if flags.json || flags.node != "" {
			return err
		}
		if backends[string(config.OVNBackend)] {
			err = errors.Join(err, flags.printOVN(cmd))
		}
		if backends[string(config.NeutronBackend)] {
			err = errors.Join(err, flags.printNeutron(cmd))
		}
		return err
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

// printNeutron says whether Neutron answers, and what it has of the cluster.
func (f *clusterFlags) printNeutron(cmd *cobra.Command) error {
	s, err := answer(f, cmd, "Neutron", config.NeutronBackend, (*diagnose.Cluster).Neutron)
	if err != nil {
		return err
	}
	printNeutronStatus(cmd.OutOrStdout(), *s)
	return nil
}

func printNeutronStatus(w io.Writer, s agentapi.NeutronStatus) {
	state := "works since " + s.Since.Format(time.RFC3339)
	switch {
	case s.Compared.IsZero():
		state = "NOT COMPARED yet"
	case s.Failure != "":
		state = "CANNOT BE USED since " + s.Since.Format(time.RFC3339)
	}
	var has []string
	for _, r := range s.Resources {
		has = append(has, fmt.Sprintf("%s: %d", r.Kind, r.Count))
	}
	fmt.Fprintf(w, "Neutron: %s %s\n", s.Where, state)
	t := newTable(w, "  resources", cmp.Or(strings.Join(has, ", "), "none is known"))
	row := func(name, value string) { fmt.Fprintf(t, "  %s\t%s\n", name, value) }
	if s.Failure != "" {
		row("ERROR", s.Failure)
	}
	if s.Problems > 0 {
		row("PROBLEMS", fmt.Sprintf("%d: coelan check lists them", s.Problems))
	}
	_ = t.Flush()
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
