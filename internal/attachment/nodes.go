// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"bytes"
	"maps"
	"slices"
)

// The nodes of the cluster as the agent saw them last, so that it can start while
// the API server is away. What is in them is the agent's business.

// SaveNodes makes the saved nodes equal to those given, by name; others are
// forgotten. It writes only what differs. The error is a *WriteError.
func (s *Store) SaveNodes(nodes map[string][]byte) error {
	saved, err := s.Nodes()
	if err != nil {
		return err
	}
	var changes []change
	for name, data := range nodes {
		if old, ok := saved[name]; !ok || !bytes.Equal(old, data) {
			changes = append(changes, change{Save: &node{Name: name, Data: slices.Clone(data)}})
		}
	}
	for name := range saved {
		if _, keep := nodes[name]; !keep {
			changes = append(changes, change{Forget: name})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return s.commit(changes...)
}

// Nodes returns the saved nodes by name. Their bytes must not be changed.
func (s *Store) Nodes() (map[string][]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.nodes), nil
}
