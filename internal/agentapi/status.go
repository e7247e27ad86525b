// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"net/netip"
	"time"
)

// Status is the answer to GET /v1/status.
type Status struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
	Ready   bool      `json:"ready"`
	// Conditions are the reasons why a condition is not met, by its name; empty for
	// one that is met.
	Conditions map[string]string `json:"conditions"`
	// Backend is the configuration's backend.type.
	Backend       string    `json:"backend,omitempty"`
	OVS           OVSStatus `json:"ovs"`
	Encapsulation string    `json:"encapsulation"`
	TunnelIP      string    `json:"tunnelIP,omitempty"`
	MTU           int       `json:"mtu"`
	// Configuration says which NodeNetworkConfig holds.
	Configuration ConfigurationStatus `json:"configuration"`
	PodCIDRs      []netip.Prefix      `json:"podCIDRs"`
	Peers         []Peer              `json:"peers"`
	Ports         int                 `json:"ports"`
	Sync          SyncStatus          `json:"sync"`
	Host          HostStatus          `json:"host"`
	Policies      PolicyStatus        `json:"policies"`
	// Refused are objects with flows that the switch refuses.
	Refused []Refused `json:"refused,omitempty"`
	// Problems are objects of which not everything could be put into effect.
	Problems []string `json:"problems"`
}

// ConfigurationStatus is the NodeNetworkConfig that a node runs with; without a name it is the
// ConfigMap alone.
type ConfigurationStatus struct {
	Name       string    `json:"name,omitempty"`
	Generation int64     `json:"generation,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	// Trial is what the agent has just started with; the one before returns if that fails.
	Trial string `json:"trial,omitempty"`
	// Refused is what the node does not run with, and why.
	Refused string `json:"refused,omitempty"`
	// Problem is why no controller says what holds.
	Problem string `json:"problem,omitempty"`
}

// HostStatus is how far the host's own network is as it should be.
type HostStatus struct {
	// Synced says that the kernel holds all that is desired.
	Synced bool `json:"synced"`
	// Changes counts the writes since the agent started.
	Changes int `json:"changes"`
	// Error is what failed last; empty when Synced.
	Error string `json:"error,omitempty"`
}

// OVSStatus is the Open vSwitch of the node.
type OVSStatus struct {
	Version   string `json:"version"`
	Bridge    string `json:"bridge"`
	Datapath  string `json:"datapath"`
	Connected bool   `json:"connected"`
}

// Peer is another node and how its pods are reached.
type Peer struct {
	Node      string         `json:"node"`
	Addresses []netip.Addr   `json:"addresses"`
	PodCIDRs  []netip.Prefix `json:"podCIDRs"`
	TunnelIP  string         `json:"tunnelIP,omitempty"`
}

// SyncStatus is the outcome of the newest synchronization of flows.
type SyncStatus struct {
	Time     time.Time     `json:"time"`
	Duration time.Duration `json:"duration"`
	Flows    int           `json:"flows"`
	Groups   int           `json:"groups"`
	Added    int           `json:"added"`
	Changed  int           `json:"changed"`
	Deleted  int           `json:"deleted"`
	Syncs    int           `json:"syncs"`
	Error    string        `json:"error,omitempty"`
}
