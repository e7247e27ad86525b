// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
)

// loadNodes reads the nodes that were known when the agent ran last.
func loadNodes(store *attachment.Store) ([]*corev1.Node, error) {
	saved, err := store.Nodes()
	if err != nil {
		return nil, err
	}
	nodes := make([]*corev1.Node, 0, len(saved))
	for name, data := range saved {
		n := &corev1.Node{}
		if err := json.Unmarshal(data, n); err != nil {
			return nil, fmt.Errorf("remembered node %s: %w", name, err)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// saveNodes remembers nodes for a start while the API server is away. Only what changed is written.
func saveNodes(store *attachment.Store, nodes []*corev1.Node) error {
	saved := make(map[string][]byte, len(nodes))
	for _, n := range nodes {
		n = kube.Slim(n)
		// It changes with every heartbeat.
		n.ResourceVersion = ""
		data, err := json.Marshal(n)
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		saved[n.Name] = data
	}
	return store.SaveNodes(saved)
}
