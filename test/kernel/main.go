// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"coelan.io/coelan/test/debian"
)

// Exit statuses of the harness itself, apart from those of the program.
const (
	statusHarness = 125 // the machine could not be started, or broke down
	statusTimeout = 124 // -timeout was over
)

// options are the command's flags.
type options struct {
	cache   string
	out     string
	timeout time.Duration
	memory  int
	cpus    int
	counted bool
	env     envList
}

// envList is a repeatable NAME=VALUE flag.
type envList []string

func (e *envList) String() string { return strings.Join(*e, " ") }

func (e *envList) Set(s string) error {
	if !strings.Contains(s, "=") {
		return fmt.Errorf("want NAME=VALUE, got %q", s)
	}
	*e = append(*e, s)
	return nil
}

func main() {
	if os.Getpid() == 1 {
		runGuest()
		return
	}
	opts := parseFlags()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	status, err := run(ctx, opts, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernel:", err)
	}
	os.Exit(status)
}

func parseFlags() options {
	o := options{}
	cache := os.Getenv("COELAN_CACHE")
	if cache == "" {
		cache = "/var/cache/coelan"
	}
	flag.StringVar(&o.cache, "cache", cache, "directory that keeps the unpacked kernel")
	flag.StringVar(&o.out, "out", "",
		"directory that the guest may write to (COELAN_OUT there); default a temporary one")
	flag.DurationVar(&o.timeout, "timeout", 20*time.Minute, "longest time the machine may run")
	flag.IntVar(&o.memory, "memory", 3072, "the guest's memory, MiB")
	flag.IntVar(&o.cpus, "cpus", 2, "the guest's processors")
	flag.BoolVar(&o.counted, "counted", false,
		"one processor, by which time passes as it runs instructions (8 ns for each), whatever else this machine does")
	flag.Var(&o.env, "env", "NAME=VALUE for the program's environment; repeatable")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: kernel [flags] PROGRAM [ARGUMENT…]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(statusHarness)
	}
	return o
}

// run boots the machine, runs the program in it and returns its exit status.
// An error means that the status is the harness's own.
func run(ctx context.Context, o options, args []string) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, errTimeout)
	defer cancel()
	k, err := debian.FindKernel(ctx, filepath.Join(o.cache, "kernel"))
	if err != nil {
		return statusHarness, err
	}
	dir, err := os.MkdirTemp("", "coelan-kernel-")
	if err != nil {
		return statusHarness, err
	}
	defer os.RemoveAll(dir)
	if o.out == "" {
		o.out = filepath.Join(dir, "out")
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return statusHarness, err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return statusHarness, err
	}
	program, err := filepath.Abs(args[0])
	if err != nil {
		return statusHarness, err
	}
	if o.counted {
		o.env = append(o.env, instructionTime)
	}
	spec := guestSpec{
		Args: append([]string{program}, args[1:]...), Env: o.env, Dir: cwd,
		ModulesDir: k.ModulesDir(), Release: k.Release,
	}
	status, err := boot(ctx, machine{
		kernel: k, spec: spec, dir: dir, out: o.out, memory: o.memory, cpus: o.cpus, counted: o.counted,
	})
	if errors.Is(context.Cause(ctx), errTimeout) {
		return statusTimeout, fmt.Errorf("%s did not end within %s: %w: %w", args[0], o.timeout, errTimeout, err)
	}
	return status, err
}

var errTimeout = errors.New("time is over (flag -timeout)")
