// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"coelan.io/coelan/test/lab/probe"
)

// BinariesEnv names the environment variable with the directory that holds
// coelan-agent and coelan-cni. Without it, Build builds them.
const BinariesEnv = "COELAN_LAB_BIN"

// binaries is the directory of the programs under test.
var binaries = os.Getenv(BinariesEnv)

// program is the path of one of the programs of the node's release.
func (n *Node) program(name string) string {
	return filepath.Join(cmp.Or(n.lab.options.Binaries, binaries), name)
}

// Main runs the tests of a package that uses labs and exits: its TestMain calls
// it. After the tests it calls done, in order.
func Main(m *testing.M, done ...func()) {
	code, err := run(m)
	for _, fn := range done {
		fn()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	if err := probe.RaiseBuffers(); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "labbin")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := Build(dir); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// Build builds the programs under test into dir, as they ship, for labs that are
// started from now on, unless BinariesEnv says where they are. The race detector, which makes them
// ten times slower, is for the tests inside their packages.
func Build(dir string) error {
	if binaries != "" {
		return nil
	}
	args := []string{"build", "-buildvcs=false", "-o", dir, "coelan.io/coelan/cmd/coelan-agent",
		"coelan.io/coelan/cmd/coelan-cni"}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w: %s", args, err, out)
	}
	binaries = dir
	return nil
}
