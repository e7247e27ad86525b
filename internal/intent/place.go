// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"encoding/json"
	"strings"
	"unique"
)

// Place is where an endpoint is, and which clients it is meant for. It is as small as a pointer and
// can be compared, because a cluster has many endpoints in few places. The zero value is unknown,
// for all clients.
type Place struct{ handle unique.Handle[placement] }

// placement is what a Place says.
type placement struct {
	// Node is the name of the endpoint's node.
	Node string `json:"node,omitempty"`
	// Zones and Nodes are the names of those with the clients that should use the endpoint, with
	// commas between them.
	Zones string `json:"zones,omitempty"`
	Nodes string `json:"nodes,omitempty"`
}

// NewPlace is the Place on a node, with topology hints: the names of the zones and of the nodes
// with the clients that should use the endpoint.
func NewPlace(node string, zones, nodes []string) Place {
	return placeOf(placement{Node: node, Zones: joined(zones), Nodes: joined(nodes)})
}

func placeOf(p placement) Place {
	if p == (placement{}) {
		return Place{}
	}
	return Place{unique.Make(p)}
}

func (p Place) value() placement {
	if p == (Place{}) {
		return placement{}
	}
	return p.handle.Value()
}

// Node is the name of the node that the endpoint is on; empty: none is known.
func (p Place) Node() string { return p.value().Node }

// ForZone and ForNode report whether a hint names the zone or node; an empty name is in no hint.
func (p Place) ForZone(zone string) bool { return contains(p.value().Zones, zone) }

// ForNode is like ForZone, for a node.
func (p Place) ForNode(node string) bool { return contains(p.value().Nodes, node) }

// HasZones and HasNodes report whether there are hints of that kind.
func (p Place) HasZones() bool { return p.value().Zones != "" }

// HasNodes is like HasZones, for nodes.
func (p Place) HasNodes() bool { return p.value().Nodes != "" }

// Parts are all that the Place says: the node, and the names in each kind of hints,
// with commas between them.
func (p Place) Parts() (node, zones, nodes string) {
	v := p.value()
	return v.Node, v.Zones, v.Nodes
}

// Equal reports whether two Places say the same.
func (p Place) Equal(o Place) bool { return p == o }

// MarshalJSON writes what the Place says.
func (p Place) MarshalJSON() ([]byte, error) { return json.Marshal(p.value()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (p *Place) UnmarshalJSON(data []byte) error {
	var v placement
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	*p = placeOf(v)
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
