// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"bytes"
	"errors"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// The nodes of the cluster as the agent saw them last, so that it can start while
// the API server is away. What is in them is the agent's business.

// SaveNodes makes the saved nodes equal to those given, by name; others are
// forgotten. It writes only if something differs.
func (s *Store) SaveNodes(nodes map[string][]byte) error {
	saved, err := s.Nodes()
	if err != nil {
		return err
	}
	var changes []func(*bolt.Bucket) error
	for name, data := range nodes {
		if old, ok := saved[name]; !ok || !bytes.Equal(old, data) {
			data = slices.Clone(data)
			changes = append(changes, func(b *bolt.Bucket) error { return b.Put([]byte(name), seal(data)) })
		}
	}
	for name := range saved {
		if _, keep := nodes[name]; !keep {
			changes = append(changes, func(b *bolt.Bucket) error { return b.Delete([]byte(name)) })
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return s.commit(func(tx *bolt.Tx) error {
		var errs []error
		for _, change := range changes {
			errs = append(errs, change(tx.Bucket(nodesBucket)))
		}
		return errors.Join(errs...)
	})
}

// Nodes returns the saved nodes by name. The error is a *CorruptError.
func (s *Store) Nodes() (map[string][]byte, error) {
	nodes := map[string][]byte{}
	err := s.view(func(tx *bolt.Tx) error {
		return tx.Bucket(nodesBucket).ForEach(func(name, value []byte) error {
			data, err := unseal(value)
			if err == nil {
				nodes[string(name)] = slices.Clone(data)
			}
			return err
		})
	})
	if err != nil {
		return nil, &CorruptError{Path: s.path, Err: err}
	}
	return nodes, nil
}
