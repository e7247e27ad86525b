// SPDX-License-Identifier: Apache-2.0

package ovstest

import (
	"os"
	"os/exec"
	"syscall"
)

// inNamespace is set in the environment of a test that OwnNamespace has begun anew.
const inNamespace = "COELAN_TEST_NAMESPACE"

// OwnNamespace is for the beginning of TestMain: it runs the program of the test again as a process
// in a new network namespace, and exits as that does. It returns in that process. The namespace,
// with all that tests leave in it, ends with it.
func OwnNamespace() {
	if os.Getenv(inNamespace) != "" {
		return
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if cmd.Run() != nil {
		os.Exit(1)
	}
	os.Exit(0)
}
