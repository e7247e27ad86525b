// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"encoding/json"
	"strings"
	"unique"
)

// Topology is where an endpoint is, and which clients it is meant for. It is as small as a pointer
// and can be compared, because a cluster has many endpoints in few places. The zero value is
// unknown, for all clients.
type Topology struct{ handle unique.Handle[topology] }

// topology is what a Topology says.
type topology struct {
	// Node is the name of the endpoint's node.
	Node string `json:"node,omitempty"`
	// Zones and Nodes are the names of those with the clients that should use the endpoint, with
	// commas between them.
	Zones string `json:"zones,omitempty"`
	Nodes string `json:"nodes,omitempty"`
}

// NewTopology is the Topology on a node, with topology hints: the names of the zones and of the
// nodes with the clients that should use the endpoint.
func NewTopology(node string, zones, nodes []string) Topology {
	return topologyOf(topology{Node: node, Zones: joined(zones), Nodes: joined(nodes)})
}

func topologyOf(p topology) Topology {
	if p == (topology{}) {
		return Topology{}
	}
	return Topology{unique.Make(p)}
}

func (p Topology) value() topology {
	if p == (Topology{}) {
		return topology{}
	}
	return p.handle.Value()
}

// Node is the name of the node that the endpoint is on; empty: none is known.
func (p Topology) Node() string { return p.value().Node }

// ForZone and ForNode report whether a hint names the zone or node; an empty name is in no hint.
func (p Topology) ForZone(zone string) bool { return contains(p.value().Zones, zone) }

// ForNode is like ForZone, for a node.
func (p Topology) ForNode(node string) bool { return contains(p.value().Nodes, node) }

// HasZones and HasNodes report whether there are hints of that kind.
func (p Topology) HasZones() bool { return p.value().Zones != "" }

// HasNodes is like HasZones, for nodes.
func (p Topology) HasNodes() bool { return p.value().Nodes != "" }

// Parts are all that the Topology says: the node, and the names in each kind of hints,
// with commas between them.
func (p Topology) Parts() (node, zones, nodes string) {
	v := p.value()
	return v.Node, v.Zones, v.Nodes
}

// Equal reports whether two Places say the same.
func (p Topology) Equal(o Topology) bool { return p == o }

// MarshalJSON writes what the Topology says.
func (p Topology) MarshalJSON() ([]byte, error) { return json.Marshal(p.value()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (p *Topology) UnmarshalJSON(data []byte) error {
	var v topology
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	*p = topologyOf(v)
	return nil
}

// joined is strings.Join that costs nothing for what nearly all places have.
func joined(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0]
	}
	return strings.Join(names, ",")
}

// contains reports whether a list of names with commas between them has one.
func contains(list, name string) bool {
	for len(list) > 0 && name != "" {
		head, rest, _ := strings.Cut(list, ",")
		if head == name {
			return true
		}
		list = rest
	}
	return false
}
