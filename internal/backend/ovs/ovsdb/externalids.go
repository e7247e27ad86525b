// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"maps"

	"github.com/ovn-kubernetes/libovsdb/model"
	db "github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// ExternalIDs are those of the whole Open vSwitch, by which other programs on the node, such as
// ovn-controller, are configured.
func (c *Client) ExternalIDs(ctx context.Context) (ids map[string]string, err error) {
	err = c.with(ctx, func(_ context.Context, s *session) error {
		root, err := s.root()
		if err == nil {
			ids = maps.Clone(root.ExternalIDs)
		}
		return err
	})
	return ids, err
}

// SetExternalIDs gives entries of ExternalIDs their values, and leaves all others. Entries that
// have them already cost nothing.
func (c *Client) SetExternalIDs(ctx context.Context, ids map[string]string) error {
	return c.with(ctx, func(ctx context.Context, s *session) error {
		root, err := s.root()
		if err != nil {
			return err
		}
		var outdated []string
		fresh := map[string]string{}
		for key, value := range ids {
			have, ok := root.ExternalIDs[key]
			if ok && have == value {
				continue
			}
			fresh[key] = value
			if ok {
				outdated = append(outdated, key)
			}
		}
		if len(fresh) == 0 {
			return nil
		}
		var mutations []model.Mutation
		if len(outdated) > 0 { // an insertion leaves keys that are there
			mutations = append(mutations, model.Mutation{
				Field: &root.ExternalIDs, Mutator: db.MutateOperationDelete, Value: outdated,
			})
		}
		mutations = append(mutations, model.Mutation{
			Field: &root.ExternalIDs, Mutator: db.MutateOperationInsert, Value: fresh,
		})
		ops, err := s.cli.Where(root).Mutate(root, mutations...)
		if err != nil {
			return err
		}
		_, err = s.transact(ctx, ops)
		return err
	})
}
