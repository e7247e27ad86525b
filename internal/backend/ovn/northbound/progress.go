// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovn/nb"
)

// globalTable has one row, with numbers by which a CMS sees how far OVN has followed (ovn-nb(5)).
const globalTable = "NB_Global"

// ErrNotConnected is the error of a Client that is not connected, as those of all controllers but
// the leader.
var ErrNotConnected = errors.New("this controller is not connected to OVN's northbound database")

// Progress measures how long OVN takes to follow: it counts nb_cfg up, as `ovn-nbctl sync` does,
// and waits until ovn-northd and all chassis have that number, or until ctx ends, which is no
// error.
func (c *Client) Progress(ctx context.Context) (agentapi.OVNProgress, error) {
	var p agentapi.OVNProgress
	s := c.current.Load()
	if s == nil {
		return p, ErrNotConnected
	}
	all := []ovsdb.Condition{ovsdb.NewCondition("nb_cfg", ovsdb.ConditionGreaterThanOrEqual, 0)}
	results, err := s.transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationMutate, Table: globalTable, Where: all,
			Mutations: []ovsdb.Mutation{{Column: "nb_cfg", Mutator: ovsdb.MutateOperationAdd, Value: 1}}},
		{Op: ovsdb.OperationSelect, Table: globalTable, Where: all, Columns: []string{"nb_cfg"}},
	})
	if err != nil {
		return p, err
	}
	if len(results) < 2 || len(results[1].Rows) == 0 {
		return p, fmt.Errorf("the northbound database has no row in %s: does ovn-northd run?", globalTable)
	}
	asked, began := number(results[1].Rows[0]["nb_cfg"]), time.Now()
	for {
		global, news := s.view.follow()
		p.Waited = time.Since(began)
		// Chassis follow what ovn-northd has written. Without any, the numbers may come in any
		// order.
		if p.Northd == nil && max(global.SBCfg, global.HVCfg) >= asked {
			p.Northd = new(p.Waited)
		}
		if global.HVCfg >= asked {
			p.Chassis = new(p.Waited)
			return p, nil
		}
		select {
		case <-ctx.Done():
			return p, nil
		case <-s.done:
			return p, ErrNotConnected
		case <-news:
		}
	}
}

// number is an integer of a row as JSON has it.
func number(v any) int {
	switch v := v.(type) {
	case float64:
		return int(v)
	case int:
		return v
	}
	return 0
}

// follow returns the row of NB_Global, and what is closed when there is a newer one.
func (v *view) follow() (nb.NBGlobal, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.global, v.newer
}

// setGlobal takes a newer row of NB_Global.
func (v *view) setGlobal(g *nb.NBGlobal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.global = *g
	close(v.newer)
	v.newer = make(chan struct{})
}
