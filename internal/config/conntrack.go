// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
)

// ConntrackLimits says on which datapaths the agent limits the connections of Routers.
type ConntrackLimits string

// The choices. AutoLimits is the userspace datapath alone: what a limit costs on the
// kernel's is not bounded.
const (
	AutoLimits   ConntrackLimits = "auto"
	AlwaysLimits ConntrackLimits = "always"
	NeverLimits  ConntrackLimits = "never"
)

// Conntrack limits how many connections of a node conntrack remembers for each Router.
type Conntrack struct {
	// Limits says where there are limits.
	Limits ConntrackLimits `json:"limits"`
	// MaxDefault is the limit of the cluster's address space: the Router default and all
	// that are shared. 0: a half of the table.
	MaxDefault int `json:"maxDefault"`
	// MaxPerRouter is that of each private Router, and of all physical networks together.
	// 0: a tenth of the table.
	MaxPerRouter int `json:"maxPerRouter"`
}

func (c Conntrack) validate() error {
	return errors.Join(
		oneOf("conntrack.limits", c.Limits, AutoLimits, AlwaysLimits, NeverLimits),
		notNegative("conntrack.maxDefault", c.MaxDefault),
		notNegative("conntrack.maxPerRouter", c.MaxPerRouter),
	)
}

// maxConnections is what Open vSwitch reads as a limit.
const maxConnections = 1<<31 - 1

func notNegative(field string, n int) error {
	if n < 0 || n > maxConnections {
		return fmt.Errorf("%s: %d is neither 0 (a share of the table) nor between 1 and %d",
			field, n, maxConnections)
	}
	return nil
}
