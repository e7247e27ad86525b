// SPDX-License-Identifier: Apache-2.0

package agentapi

import "fmt"

// Check is the answer to GET /v1/check.
type Check struct {
	// Backend is ovs, ovn or neutron.
	Backend string `json:"backend"`
	// OK says that there are no findings.
	OK bool `json:"ok"`
	// Attachments, Ports and Interfaces are how many were looked at.
	Attachments int `json:"attachments"`
	Ports       int `json:"ports"`
	Interfaces  int `json:"interfaces"`
	// MTU is that of the node's pods; 0: it is not known yet.
	MTU int `json:"mtu"`
	// Configuration is the name of the NodeNetworkConfig that the node runs with; empty: the
	// ConfigMap alone.
	Configuration string   `json:"configuration,omitempty"`
	Findings      Findings `json:"findings"`
	// NotCompared says what could not be compared though nothing is wrong, and what to do.
	NotCompared []string `json:"notCompared,omitempty"`
}

// OVNCheck is the leading controller's answer to GET /v1/ovn/check: how OVN's northbound database
// differs from what the cluster's objects want.
type OVNCheck struct {
	// OK says that there are no findings.
	OK bool `json:"ok"`
	// Rows is how many are wanted.
	Rows     int      `json:"rows"`
	Findings Findings `json:"findings"`
	// More is how many findings were left out.
	More int `json:"more,omitempty"`
}

// Finding is one thing that is there and should not be, or the other way round.
type Finding struct {
	// Kind is port, interface, attachment, address, network, flow, refused, conntrack, mtu,
	// configuration or condition; with the backends ovn and neutron also binding, chassis or
	// southbound, and of a controller row or northbound, or neutron, octavia or object.
	Kind string `json:"kind"`
	// Object is its name: a port, an interface, namespace/pod/interface, an address, a flow as
	// ovs-ofctl prints it.
	Object string `json:"object"`
	// Problem says what is wrong.
	Problem string `json:"problem"`
}

// Findings are the findings of one check.
type Findings []Finding

// Add appends a finding.
func (f *Findings) Add(kind, object, format string, args ...any) {
	*f = append(*f, Finding{Kind: kind, Object: object, Problem: fmt.Sprintf(format, args...)})
}
