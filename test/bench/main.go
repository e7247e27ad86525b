// SPDX-License-Identifier: Apache-2.0

// Command bench compares Coelan with other software, both in one run on one machine: the reference
// CNI plugin, ovs-ofctl, a plain switch. It needs root and Open vSwitch.
//
//	bench [-run REGEXP] [-o FILE]
//
// It prints one table. A run of all groups writes the same as JSON to
// bench/results.json, a list of Result; one of some groups writes no file unless
// -o names one. A bar that is not met is reported, and is no failure of the command.
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
}

// measures in the order of the table.
var measures = []measure{
	{"cni", measureCNI},
	{"flow-sync", measureFlowSync},
	{"pod", measurePods},
	{"recirc", measureRecirculations},
	{"agent", measureAgent},
	{"networks", measureNetworks},
	{"networks-churn", measureNetworksChurn},
	{"borders", measureBorders},
	{"cluster", measureCluster},
	{"gateways-traffic", measureGatewayTraffic},
	{"gateways", measureGateways},
	{"dhcp", measureDHCP},
	{"restconf", measureRESTCONF},
	{"watcher", measureWatcher},
	{"service-traffic", measureServiceTraffic},
	{"service-churn", measureServiceChurn},
	{"service-scale", measureServiceScale},
	{"policy-compute", measurePolicyCompute},
	{"policy-agents", measurePolicyAgents},
	{"policy-traffic", measurePolicyTraffic},
	{"policy-connections", measurePolicyConnections},
	{"policy-latency", measurePolicyLatency},
	{"noisy-neighbour", measureNoisyNeighbour},
}

func main() {
	streamtest.RunAgents() // in the process that measurePolicyAgents starts
	only := flag.String("run", "", "measure only the groups that match: "+groups())
	out := flag.String("o", "", "file for the results as JSON; default, of a run of all groups: "+resultsFile)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// resultsFile has the results of the last run of all groups.
const resultsFile = "bench/results.json"

// groups are the names of all measures.
func groups() string {
	var names []string
	for _, m := range measures {
		names = append(names, m.name)
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
	for _, m := range measures {
		if match.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, "", fmt.Errorf("-run %s: no group matches; there are %s", only, groups())
	}
	if out == "" && len(chosen) == len(measures) {
		out = resultsFile
	}
	return chosen, out, nil
}

func run(ctx context.Context, only, out string) error {
	chosen, out, err := choose(only, out)
	if err != nil {
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
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		fmt.Fprintln(os.Stderr, time.Since(start).Round(time.Second))
		results = append(results, got...)
	}
	printTable(os.Stdout, results)
	if out == "" {
		return nil
	}
	return writeJSON(out, results)
}
