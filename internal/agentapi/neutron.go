// SPDX-License-Identifier: Apache-2.0

package agentapi

import "time"

// NeutronStatus is the leading controller's answer to GET /v1/neutron: what it knows of Neutron
// since it has compared it last.
type NeutronStatus struct {
	// Where is its URL, or the cloud that names it.
	Where string `json:"where"`
	// Compared is when that was; zero: not yet.
	Compared time.Time `json:"compared,omitzero"`
	// Failure is why Neutron cannot be used; empty: it can. Since says since when it is so.
	Failure string    `json:"failure,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	// Resources is how many of each kind Neutron has of this cluster.
	Resources []NeutronResources `json:"resources"`
	// Problems is how many findings of objects a check has.
	Problems int `json:"problems"`
}

// NeutronResources is how many resources of one kind there are.
type NeutronResources struct {
	Kind  string `json:"kind"` // such as port
	Count int    `json:"count"`
}

// NeutronCheck is the leading controller's answer to GET /v1/neutron/check: what Neutron does not
// do of the cluster's objects.
type NeutronCheck struct {
	// OK says that there are no findings, also in Northbound.
	OK bool `json:"ok"`
	// Resources is how many Neutron has of this cluster.
	Resources int      `json:"resources"`
	Findings  Findings `json:"findings"`
	// More is how many findings were left out.
	More int `json:"more,omitempty"`
	// Limits are what cannot be made of objects with Neutron, whatever it is asked: no findings.
	Limits Findings `json:"limits,omitempty"`
	// Northbound compares the rows that the controller keeps beside those of Neutron; nil: it keeps
	// none.
	Northbound *OVNCheck `json:"northbound,omitempty"`
}
