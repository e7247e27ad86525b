// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"time"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// emulated says that the tests run on the kernel's datapath, in an emulated machine, an order of
// magnitude slower than a real one: they do less of the same there.
var emulated = lab.Datapath() == config.DatapathSystem

func init() {
	if emulated {
		probe.AnswerTimeout *= 4
	}
}

// vswitchdGap bounds the interruption by a restart of ovs-vswitchd.
const vswitchdGap = 2 * time.Second

var (
	bulkBytes   = map[bool]int{false: 32 << 20, true: 8 << 20}[emulated]
	bulkTimeout = map[bool]time.Duration{false: 15 * time.Second, true: time.Minute}[emulated]
	churnPods   = map[bool]int{false: 500, true: 60}[emulated]

	// Short, since each loss is as short, but not so short that packets come faster than
	// ovs-vswitchd takes them while it adds ports.
	linkChurnInterval = map[bool]time.Duration{false: 4 * time.Millisecond, true: 10 * time.Millisecond}[emulated]
	linkChurnPods     = map[bool]int{false: 60, true: 8}[emulated]
)
