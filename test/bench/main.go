// SPDX-License-Identifier: Apache-2.0

// Command bench compares Coelan with other software, both in one run on one machine: the reference
// CNI plugin, ovs-ofctl, a plain switch. It needs root and Open vSwitch.
//
//	bench [-run REGEXP] [-o FILE] [-gate FILE] [-figures FILE]
//
// It prints one table. A run of all groups writes the same as JSON to
// bench/results.json, a list of Result; one of some groups writes no file unless
// -o names one. A bar that is not met is reported, and is no failure of the command. Where
// instructions are counted, -gate compares those of the group instructions with the figures of a
// file, and growth is a failure; -figures writes them to a file.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"coelan.io/coelan/internal/policystream/streamtest"
	"coelan.io/coelan/test/lab"
)

// measure is one group of results that are taken together.
type measure struct {
	name string
	take func(context.Context) ([]Result, error)
	// counted says that the group is measured only where instructions are counted.
	counted bool
}

// measures in the order of the table.
var measures = []measure{
	{name: "cni", take: measureCNI},
	{name: "flow-sync", take: measureFlowSync},
	{name: "pod", take: measurePods},
	{name: "profile-stream", take: profileOf(traffics[0]), counted: true},
	{name: "profile-rr", take: profileOf(traffics[1]), counted: true},
	{name: "profile-crr", take: profileOf(traffics[2]), counted: true},
	{name: briefSet, take: measureInstructions, counted: true},
	{name: "cross-node", take: measureCrossNode, counted: true},
	{name: "recirc", take: measureRecirculations},
	{name: "agent", take: measureAgent},
	{name: "networks", take: measureNetworks},
	{name: "networks-churn", take: measureNetworksChurn},
	{name: "borders", take: measureBorders},
	{name: "cluster", take: measureCluster},
	{name: "gateways-traffic", take: measureGatewayTraffic},
	{name: "gateways", take: measureGateways},
	{name: "dhcp", take: measureDHCP},
	{name: "restconf", take: measureRESTCONF},
	{name: "watcher", take: measureWatcher},
	{name: "service-traffic", take: measureServiceTraffic},
	{name: "service-churn", take: measureServiceChurn},
	{name: "service-scale", take: measureServiceScale},
	{name: "size", take: measureSize},
	{name: "policy-compute", take: measurePolicyCompute},
	{name: "policy-agents", take: measurePolicyAgents},
	{name: "policy-traffic", take: measurePolicyTraffic},
	{name: "policy-connections", take: measurePolicyConnections},
	{name: "policy-latency", take: measurePolicyLatency},
	{name: "ovn", take: measureOVN},
	{name: "neutron", take: measureNeutron},
	{name: "noisy-neighbour", take: measureNoisyNeighbour},
}

func main() {
	streamtest.RunAgents() // in the process that measurePolicyAgents starts
	only := flag.String("run", "", "measure only the groups that match: "+groups())
	out := flag.String("o", "", "file for the results as JSON; default, of a run of all groups: "+resultsFile)
	var g gate
	flag.StringVar(&g.before, "gate", "", "file of figures that the group instructions must not exceed")
	flag.StringVar(&g.after, "figures", "", "file for the figures of the group instructions")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only, *out, g); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// resultsFile has the results of the last run of all groups.
const resultsFile = "bench/results.json"

// groups are the names of all measures; (counted) are those that only a machine that counts
// instructions has.
func groups() string {
	var names []string
	for _, m := range measures {
		name := m.name
		if m.counted {
			name += " (counted)"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// choose returns the measures that match only, and the file for their results:
// empty if those of a full run must not be replaced by some.
func choose(only, out string) ([]measure, string, error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return nil, "", fmt.Errorf("-run %s: %w", only, err)
	}
	var chosen []measure
	_, counts := counting()
	for _, m := range measures {
		if match.MatchString(m.name) && (counts || !m.counted) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, "", fmt.Errorf("-run %s: no group matches that is measured here; there are %s", only, groups())
	}
	if out == "" && match.MatchString("") {
		out = resultsFile
	}
	return chosen, out, nil
}

func run(ctx context.Context, only, out string, g gate) error {
	chosen, out, err := choose(only, out)
	if err != nil {
		return err
	}
	if err := g.open(chosen); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := lab.Build(dir); err != nil {
		return err
	}
	var results []Result
	for _, m := range chosen {
		fmt.Fprintf(os.Stderr, "bench: %s … ", m.name)
		start := time.Now()
		got, err := m.take(ctx)
		results = append(results, got...)
		if err != nil {
			fmt.Fprintln(os.Stderr, "failed")
			printTable(os.Stdout, results) // what there is has taken long
			return fmt.Errorf("%s: %w", m.name, err)
		}
		fmt.Fprintln(os.Stderr, time.Since(start).Round(time.Second))
		if m.name == briefSet {
			g.results = got
		}
	}
	printTable(os.Stdout, results)
	if out != "" {
		if err := writeJSON(out, results); err != nil {
			return err
		}
	}
	return g.pass(os.Stdout)
}
