// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"encoding/json"
	"testing"
)

func TestPlace(t *testing.T) {
	for _, tc := range []struct {
		name         string
		place        Topology
		text         string // as it is written
		zoneA, zoneB bool
		node1        bool
	}{
		{"unknown", Topology{}, `{}`, false, false, false},
		{"unknown, made", NewTopology("", nil, nil), `{}`, false, false, false},
		{"a node", NewTopology("n1", nil, nil), `{"node":"n1"}`, false, false, false},
		{"a zone", NewTopology("n1", []string{"a"}, nil), `{"node":"n1","zones":"a"}`, true, false, false},
		{"zones and nodes", NewTopology("n2", []string{"x", "b", "aa"}, []string{"n1", "n11"}), `{"node":"n2","zones":"x,b,aa","nodes":"n1,n11"}`, false, true, true},
	} {
		p := tc.place
		if p.ForZone("a") != tc.zoneA || p.ForZone("b") != tc.zoneB || p.ForNode("n1") != tc.node1 || p.ForZone("") || p.ForNode("") {
			t.Errorf("%s: for zone a %v, for zone b %v, for node n1 %v", tc.name, p.ForZone("a"), p.ForZone("b"), p.ForNode("n1"))
		}
		data, err := json.Marshal(p)
		if err != nil || string(data) != tc.text {
			t.Errorf("%s: %s, %v", tc.name, data, err)
		}
		var again Topology
		if err := json.Unmarshal(data, &again); err != nil || again != p || !again.Equal(p) {
			t.Errorf("%s: %v, %v", tc.name, again, err)
		}
	}
	var p Topology
	if err := json.Unmarshal([]byte(`{"node":7}`), &p); err == nil {
		t.Error("a number is the name of a node")
	}
}
