// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"coelan.io/coelan/internal/sandbox"
	"coelan.io/coelan/test/lab/probe"
)

// ownName is the sandbox that exists for one run of the tests.
const ownName = "e2e"

// upTimeout bounds everything before the first test. A machine that does other work, too, needs
// many times what an idle one does.
const upTimeout = 8 * time.Minute

// world is the cluster of all tests. They run one after the other: some restart its nodes.
var world *cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	name := os.Getenv("COELAN_E2E_SANDBOX")
	if name == "" {
		name = ownName
		defer func() {
			if err := sandbox.Down(context.Background(), name, os.Stderr); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
	}
	err := probe.RaiseBuffers()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), upTimeout)
	defer cancel()
	if world, err = newCluster(ctx, name, sandbox.Install{}); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	code := m.Run()
	if name != ownName {
		if err := world.disconnectOffice(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return 1
		}
	}
	if err := measured.write(os.Getenv("COELAN_E2E_TABLE")); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return code
}

// TestCoelan is the tests of pods and nodes in their order: the later ones disturb the
// cluster more. Those of the mapping by namespace follow (mapping_test.go), those of
// Networks (networks_test.go) and, as the last one, the removal: Go runs tests in the order
// of their files' names.
func TestCoelan(t *testing.T) {
	inOrder(t, []step{
		{"no external Network", leaveOffice},
		{"reach", testReach},
		{"names", testNames},
		{"kubectl", testKubectl},
		{"tenants", testTenants},
		{"command", testCommand},
		{"events", testEvents},
		{"restarts", testRestarts},
		{"API server ends", testAPIServerEnds},
		{"without API server", testWithoutAPIServer},
		{"reboots", testReboots},
	})
}

// step is a part of a test.
type step struct {
	name string
	run  func(*testing.T)
}

// inOrder runs the steps and shows the state of the cluster after each that fails.
func inOrder(t *testing.T, steps []step) {
	for _, s := range steps {
		if !t.Run(s.name, s.run) {
			world.report(t)
		}
	}
}

// within bounds a test.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually tries until there is no error or the context ends. It is for what nothing announces,
// such as that all nodes know a Service. Its error has that of the last try that the context's end
// did not cut short.
func eventually(ctx context.Context, try func() error) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w; at last: %w", ctx.Err(), last)
		}
	}
}
