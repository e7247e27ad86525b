// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"cmp"
	"slices"
	"time"

	"coelan.io/coelan/internal/intent"
)

// OVNProgress is how long OVN takes to follow a change of its northbound database.
type OVNProgress struct {
	// Northd is until ovn-northd had written the southbound database, Chassis until the
	// ovn-controllers of all nodes had followed; nil: they had not when the wait ended.
	Northd  *time.Duration `json:"northd,omitempty"`
	Chassis *time.Duration `json:"chassis,omitempty"`
	// Waited is how long the wait was.
	Waited time.Duration `json:"waited"`
}

// PolicyStatus is how policies are enforced on a node.
type PolicyStatus struct {
	// Mode is enforced or off.
	Mode string `json:"mode"`
	// Connected says that a controller tells of changes, and Controller which; Since when that is
	// so, or not so.
	Connected  bool      `json:"connected"`
	Controller string    `json:"controller,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	// Complete says that a controller has told everything since the agent started: else it is what
	// the agent remembers.
	Complete bool `json:"complete"`
	// Version is the newest that the controller has sent, Programmed the newest that is in effect.
	Version    uint64 `json:"version"`
	Programmed uint64 `json:"programmed"`
	Rules      int    `json:"rules"`
	Subjects   int    `json:"subjects"`
	Peers      int    `json:"peers"`
	// Error is why there is no connection, SaveError why what is known is not on disk.
	Error     string `json:"error,omitempty"`
	SaveError string `json:"saveError,omitempty"`
	// Closed are the Ports that nothing passes but replies and what their own node sends, and why.
	Closed []ClosedPort `json:"closed,omitempty"`
}

// ClosedPort is a Port that is blocked because its policies are not known or cannot be enforced.
type ClosedPort struct {
	Port   string `json:"port"`
	Reason string `json:"reason"`
}

// PolicyStat is an element of the answer to GET /v1/policystats: what a rule has decided on this
// node, or that no rule of some policies has allowed.
type PolicyStat struct {
	// Policies has the one of the rule, or those of which no rule allows the packets;
	// none: Ports are closed.
	Policies []intent.PolicyRef `json:"policies"`
	// Rule is its number in the direction's list, from 1; 0: no rule.
	Rule      int    `json:"rule"`
	Direction string `json:"direction"`
	Tier      string `json:"tier,omitempty"`
	// Decision is allowed, denied or passed.
	Decision string `json:"decision"`
	// Packets and Bytes of the direction in which connections began, since the node's Open vSwitch
	// started or the rule was last written.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

func (s PolicyStat) compare(o PolicyStat) int {
	return cmp.Or(slices.CompareFunc(s.Policies, o.Policies, intent.PolicyRef.Compare),
		cmp.Compare(s.Direction, o.Direction),
		cmp.Compare(s.Rule, o.Rule), cmp.Compare(s.Decision, o.Decision), cmp.Compare(s.Tier, o.Tier))
}

// SumPolicyStats adds up what counts the same, and sorts it.
func SumPolicyStats(stats []PolicyStat) []PolicyStat {
	slices.SortFunc(stats, PolicyStat.compare)
	summed := stats[:0]
	for _, s := range stats {
		if n := len(summed); n > 0 && summed[n-1].compare(s) == 0 {
			summed[n-1].Packets += s.Packets
			summed[n-1].Bytes += s.Bytes
			continue
		}
		summed = append(summed, s)
	}
	return summed
}
