// SPDX-License-Identifier: Apache-2.0

package config

import "fmt"

// Neighbours limits what pods ask about their neighbors.
type Neighbours struct {
	// MaxPerSecond is how many ARP packets and neighbor solicitations of a Port are checked in a
	// second. 0: all.
	MaxPerSecond int `json:"maxPerSecond"`
}

// DefaultNeighbourRate is more than a pod asks that reaches thousands of others, and costs
// ovs-vswitchd some hundredths of a processor.
const DefaultNeighbourRate = 500

// maxNeighbourRate is beyond what Open vSwitch can answer.
const maxNeighbourRate = 1_000_000

func (n Neighbours) validate() error {
	if n.MaxPerSecond < 0 || n.MaxPerSecond > maxNeighbourRate {
		return fmt.Errorf("neighbours.maxPerSecond: %d is neither 0 (no limit) nor between 1 and %d",
			n.MaxPerSecond, maxNeighbourRate)
	}
	return nil
}
