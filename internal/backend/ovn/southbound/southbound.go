// SPDX-License-Identifier: Apache-2.0

// Package southbound reads from OVN's southbound database which logical ports are bound, and where.
// It writes nothing, and keeps no connection.
package southbound

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/remote"
)

// Binding is a row of the table Port_Binding (ovn-sb(5)).
type Binding struct {
	LogicalPort string
	Type        string // empty: of an interface
	// Chassis is the name of the one that has the port; empty: none. Others have it as well while a
	// virtual machine moves.
	Chassis string
	Others  []string
	Up      bool
	// Owner is what names.OwnerKey says; empty: the row is another system's.
	Owner string
}

// On says whether the port is bound to a chassis.
func (b Binding) On(chassis string) bool {
	return b.Chassis == chassis || slices.Contains(b.Others, chassis)
}

// View is what Read returns.
type View struct {
	// HasChassis says that there is a chassis of the name asked for.
	HasChassis bool
	// Bindings are by logical port: those that were asked for, and all on the chassis.
	Bindings map[string]Binding
}

// The rows that are read.
type (
	chassisRow struct {
		UUID string `ovsdb:"_uuid"`
		Name string `ovsdb:"name"`
	}
	bindingRow struct {
		UUID        string            `ovsdb:"_uuid"`
		LogicalPort string            `ovsdb:"logical_port"`
		Type        string            `ovsdb:"type"`
		Chassis     *string           `ovsdb:"chassis"`
		Others      []string          `ovsdb:"additional_chassis"`
		Up          *bool             `ovsdb:"up"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
		Datapath    string            `ovsdb:"datapath"`
		MAC         []string          `ovsdb:"mac"`
		Options     map[string]string `ovsdb:"options"`
	}
)

// readTimeout bounds the reading, of which each server has the same share.
const readTimeout = 6 * time.Second

const (
	database     = "OVN_Southbound"
	chassisTable = "Chassis"
	bindingTable = "Port_Binding"
)

// Options are where the database is: servers as remote.Options has them.
type Options struct {
	Remotes []string
	TLS     *tls.Config
}

// Read reads the bindings of ports, and those on a chassis, from the first server that answers.
// If none does, the error has the same text each time, without the client's ports.
func Read(ctx context.Context, o Options, chassis string, ports []string) (View, error) {
	return ask(ctx, o, func(ctx context.Context, r reader) (View, error) { return r.view(ctx, chassis, ports) })
}

// ask has one of the servers answer: the first that does.
func ask[T any](ctx context.Context, o Options, read func(context.Context, reader) (T, error)) (answer T, err error) {
	var errs []error
	for _, server := range o.Remotes {
		one, cancel := context.WithTimeout(ctx, readTimeout/time.Duration(len(o.Remotes)))
		answer, err = askOne(one, remote.Options{Remotes: []string{server}, TLS: o.TLS}, read)
		cancel()
		if err == nil {
			return answer, nil
		}
		if broken := (*net.OpError)(nil); errors.As(err, &broken) {
			err = broken.Err
		}
		errs = append(errs, fmt.Errorf("%s: %w", server, err))
	}
	return answer, errors.Join(errs...)
}

func askOne[T any](
	ctx context.Context, o remote.Options, read func(context.Context, reader) (T, error),
) (answer T, err error) {
	o.Model, err = model.NewClientDBModel(database, map[string]model.Model{
		chassisTable: &chassisRow{}, bindingTable: &bindingRow{},
	})
	if err != nil {
		return answer, err
	}
	c, err := remote.Connect(ctx, o)
	if err != nil {
		return answer, err
	}
	defer c.Close()
	return read(ctx, reader{c, c.Schema()})
}

func (r reader) view(ctx context.Context, chassis string, ports []string) (View, error) {
	known, err := r.chassis(ctx)
	if err != nil {
		return View{}, err
	}
	v := View{Bindings: map[string]Binding{}}
	wheres := make([]ovsdb.Condition, 0, len(ports)+2)
	for uuid, name := range known {
		if name == chassis {
			v.HasChassis = true
			for _, column := range []string{"chassis", "additional_chassis"} {
				wheres = append(wheres, ovsdb.NewCondition(column, ovsdb.ConditionIncludes, ovsdb.UUID{GoUUID: uuid}))
			}
		}
	}
	for _, p := range ports {
		wheres = append(wheres, portNamed(p))
	}
	rows, err := r.selectRows(ctx, bindingTable, wheres,
		"logical_port", "type", "chassis", "additional_chassis", "up", "external_ids")
	if err != nil {
		return View{}, err
	}
	for _, row := range rows {
		b := bindingOf(row, known)
		v.Bindings[b.LogicalPort] = b
	}
	return v, nil
}

func portNamed(name string) ovsdb.Condition {
	return ovsdb.NewCondition("logical_port", ovsdb.ConditionEqual, name)
}

func bindingOf(row map[string]any, known map[string]string) Binding {
	b := Binding{}
	b.LogicalPort, _ = row["logical_port"].(string)
	b.Type, _ = row["type"].(string)
	if uuid, _ := row["chassis"].(*string); uuid != nil {
		b.Chassis = known[*uuid]
	}
	others, _ := row["additional_chassis"].([]string)
	for _, uuid := range others {
		b.Others = append(b.Others, known[uuid])
	}
	if up, _ := row["up"].(*bool); up != nil {
		b.Up = *up
	}
	ids, _ := row["external_ids"].(map[string]string)
	b.Owner = ids[names.OwnerKey]
	return b
}

type reader struct {
	*remote.Connection
	schema ovsdb.DatabaseSchema
}

// chassis are the names of all chassis by UUID.
func (r reader) chassis(ctx context.Context) (map[string]string, error) {
	rows, err := r.selectRows(ctx, chassisTable, []ovsdb.Condition{
		ovsdb.NewCondition("name", ovsdb.ConditionNotEqual, ""),
	}, "_uuid", "name")
	if err != nil {
		return nil, err
	}
	known := map[string]string{}
	for _, row := range rows {
		uuid, _ := row["_uuid"].(string)
		known[uuid], _ = row["name"].(string)
	}
	return known, nil
}

// selectRows are the rows for which one of the conditions holds, as one consistent reading.
func (r reader) selectRows(
	ctx context.Context, table string, wheres []ovsdb.Condition, columns ...string,
) ([]map[string]any, error) {
	schema := r.schema.Table(table)
	if schema == nil {
		return nil, errors.New("the connection was lost")
	}
	if len(wheres) == 0 {
		return nil, nil
	}
	ops := make([]ovsdb.Operation, 0, len(wheres))
	for _, where := range wheres {
		ops = append(ops, ovsdb.Operation{
			Op: ovsdb.OperationSelect, Table: table, Where: []ovsdb.Condition{where}, Columns: columns,
		})
	}
	results, err := r.Transact(ctx, ops...)
	if err != nil {
		return nil, err
	}
	if _, err := ovsdb.CheckOperationResults(results, ops); err != nil {
		return nil, err
	}
	var rows []map[string]any
	for _, result := range results {
		for _, raw := range result.Rows {
			row := map[string]any{}
			for column, value := range raw {
				native, err := ovsdb.OvsToNative(schema.Column(column), value)
				if err != nil {
					return nil, fmt.Errorf("%s.%s: %w", table, column, err)
				}
				row[column] = native
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}
