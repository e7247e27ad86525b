// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"coelan.io/coelan/test/lab"
)

// vswitchdPID is the process of a node's ovs-vswitchd.
func vswitchdPID(n *lab.Node) (int, error) {
	text, err := os.ReadFile(filepath.Join(n.OVS.Dir, "ovs-vswitchd.pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// vswitchdTime is the processor time of all threads of the nodes' ovs-vswitchd so far. The kernel's
// own counters of a process are in hundredths of a second; those of its threads are exact.
func vswitchdTime(nodes []*lab.Node) (time.Duration, error) {
	var sum time.Duration
	for _, n := range nodes {
		pid, err := vswitchdPID(n)
		if err != nil {
			return 0, err
		}
		ran, err := processTime(pid)
		if err != nil {
			return 0, err
		}
		sum += ran
	}
	return sum, nil
}

// processTime is the processor time of all threads of a process so far.
func processTime(pid int) (sum time.Duration, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		return 0, fmt.Errorf("process %d: no threads", pid)
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		var ran time.Duration
		if _, err := fmt.Sscan(string(text), &ran); err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		sum += ran
	}
	return sum, nil
}
