// SPDX-License-Identifier: Apache-2.0

// Command bench measures Coelan against what it could be compared with, both in
// one run on one machine: the reference CNI plugin, ovs-ofctl, a plain switch.
// It needs root and Open vSwitch.
//
//	bench [-run REGEXP] [-o results.json]
//
// It prints one table and writes the same as JSON: a list of Result. A bar that
// is not met is reported, and is no failure of the command.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

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
}

func main() {
	only := flag.String("run", "", "measure only the groups that match: cni, flow-sync, pod, recirc, agent")
	out := flag.String("o", "bench/results.json", "file for the results as JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only, out string) error {
	match, err := regexp.Compile(only)
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
	for _, m := range measures {
		if !match.MatchString(m.name) {
			continue
		}
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
	return writeJSON(out, results)
}
