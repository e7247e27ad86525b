// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"

	"github.com/ovn-kubernetes/libovsdb/model"
	db "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"coelan.io/coelan/internal/backend/ovs/rows"
)

// HideCapability has programs that read the database, such as ovn-controller, do without something
// that a type of datapath can do (ovs-vswitchd.conf.db(5), Datapath, capabilities), until
// ovs-vswitchd starts anew. Where it is hidden, or there is no such datapath, nothing is written.
func (c *Client) HideCapability(ctx context.Context, datapath, capability string) error {
	return c.with(ctx, func(ctx context.Context, s *session) error {
		root, err := s.root()
		if err != nil {
			return err
		}
		row, ok := s.rows(rows.TableDatapath)[root.Datapaths[datapath]].(*rows.Datapath)
		if !ok || row.Capabilities[capability] != "true" {
			return nil
		}
		hidden := map[string]string{capability: "false"}
		ops, err := s.cli.Where(row).Mutate(row, // an insertion leaves keys that are there
			model.Mutation{Field: &row.Capabilities, Mutator: db.MutateOperationDelete, Value: []string{capability}},
			model.Mutation{Field: &row.Capabilities, Mutator: db.MutateOperationInsert, Value: hidden})
		if err != nil {
			return err
		}
		_, err = s.transact(ctx, ops)
		return err
	})
}
