// SPDX-License-Identifier: Apache-2.0

// Package ovsfake is an Open vSwitch without a data path in the process of a test: its database,
// with ovs-vswitchd's answers to changes, and ovs-vswitchd's control socket. It needs neither root
// nor a daemon. Its flows are bridge.Fake's.
//
// Transactions, references and indexes are libovsdb's own, in memory. libovsdb's server is not
// used: it announces a transaction before it commits it, so that a client that connects in between
// misses the transaction, and it keeps the monitors of connections that have ended.
package ovsfake

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/cenkalti/rpc2"
	"github.com/cenkalti/rpc2/jsonrpc"
	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/ovn-kubernetes/libovsdb/database"
	"github.com/ovn-kubernetes/libovsdb/database/inmemory"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"coelan.io/coelan/internal/backend/ovs/rows"
)

// OVS is one Open vSwitch.
type OVS struct {
	// RunDir is where its sockets are.
	RunDir string

	schema  ovsdb.DatabaseSchema
	rpc     *rpc2.Server
	control *control
	serving sync.WaitGroup

	// mu makes a transaction, its announcement and ovs-vswitchd's answer one step.
	mu       sync.Mutex
	db       database.Database
	listener net.Listener
	conns    map[net.Conn]bool
	monitors map[*rpc2.Client]monitor
	vswitchd vswitchd
	writes   int
}

// monitor is what a client follows.
type monitor struct {
	id      json.RawMessage
	columns map[string][]string // by table
}

// codec writes one message at a time. rpc2 answers the requests of a connection side by side.
type codec struct {
	rpc2.Codec
	mu sync.Mutex
}

// WriteRequest implements rpc2.Codec.
func (c *codec) WriteRequest(r *rpc2.Request, body any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Codec.WriteRequest(r, body)
}

// WriteResponse implements rpc2.Codec.
func (c *codec) WriteResponse(r *rpc2.Response, body any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Codec.WriteResponse(r, body)
}

// New starts an Open vSwitch with an initialized database that has no bridges. It ends with the
// test.
func New(t testing.TB) *OVS {
	t.Helper()
	dir, err := os.MkdirTemp("", "ovs") //nolint:usetesting // sockets want a short path
	if err != nil {
		t.Fatal(err)
	}
	o := &OVS{
		RunDir: dir, rpc: rpc2.NewServer(), conns: map[net.Conn]bool{}, monitors: map[*rpc2.Client]monitor{},
		vswitchd: newVswitchd(),
	}
	t.Cleanup(func() {
		o.StopDatabase()
		o.control.close()
		o.serving.Wait()
		_ = os.RemoveAll(dir)
	})
	o.handle()
	if o.control, err = newControl(dir); err != nil {
		t.Fatal(err)
	}
	if err := o.Reset(); err != nil {
		t.Fatal(err)
	}
	if err := o.StartDatabase(); err != nil {
		t.Fatal(err)
	}
	return o
}

// Socket is the database's.
func (o *OVS) Socket() string { return filepath.Join(o.RunDir, "db.sock") }

// Reset gives the database the contents that ovs-vsctl init makes. Clients that are connected do
// not notice: stop the database before.
func (o *OVS) Reset() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	schema, m, err := parseSchema()
	if err != nil {
		return err
	}
	log := logr.Discard()
	o.schema, o.db = schema, inmemory.NewDatabase(map[string]model.ClientDBModel{rows.Database: m}, &log)
	if err := o.db.CreateDatabase(rows.Database, schema); err != nil {
		return err
	}
	return o.execute([]ovsdb.Operation{insert("Open_vSwitch", "root", ovsdb.Row{
		"datapath_types": set("netdev", "system"), "iface_types": set("internal", "patch", "vxlan", "geneve"),
	})})
}

// StartDatabase has the database accept connections.
func (o *OVS) StartDatabase() error {
	l, err := net.Listen("unix", o.Socket())
	if err != nil {
		return err
	}
	o.mu.Lock()
	o.listener = l
	o.mu.Unlock()
	o.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			o.mu.Lock()
			ended := o.listener != l
			o.conns[conn] = true
			o.mu.Unlock()
			if ended {
				_ = conn.Close()
			}
			o.serving.Go(func() {
				o.rpc.ServeCodec(&codec{Codec: jsonrpc.NewJSONCodec(conn)})
				o.mu.Lock()
				delete(o.conns, conn)
				o.mu.Unlock()
			})
		}
	})
	return nil
}

// StopDatabase ends all connections to the database, and takes no new ones. The contents stay.
func (o *OVS) StopDatabase() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.listener == nil {
		return
	}
	_ = o.listener.Close()
	o.listener = nil
	for c := range o.conns {
		_ = c.Close()
	}
}

// Writes is how many transactions of clients have changed the database.
func (o *OVS) Writes() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writes
}

func (o *OVS) handle() {
	o.rpc.OnDisconnect(func(c *rpc2.Client) {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.monitors, c)
	})
	o.rpc.Handle("list_dbs", func(_ *rpc2.Client, _ []any, reply *[]string) error {
		*reply = []string{rows.Database}
		return nil
	})
	o.rpc.Handle("get_schema", func(_ *rpc2.Client, _ []any, reply *ovsdb.DatabaseSchema) error {
		*reply = o.schema
		return nil
	})
	o.rpc.Handle("echo", func(_ *rpc2.Client, args []any, reply *[]any) error {
		*reply = args
		return nil
	})
	o.rpc.Handle("monitor_cond_since", o.monitor)
	o.rpc.Handle("transact", o.transact)
}

func (o *OVS) monitor(c *rpc2.Client, args []json.RawMessage, reply *ovsdb.MonitorCondSinceReply) error {
	var requests map[string]json.RawMessage
	if err := json.Unmarshal(args[2], &requests); err != nil {
		return err
	}
	m := monitor{id: args[1], columns: map[string][]string{}}
	for table, raw := range requests {
		columns, err := requested(raw)
		if err != nil {
			return err
		}
		m.columns[table] = columns
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	updates := ovsdb.TableUpdates2{}
	for table, columns := range m.columns {
		every := ovsdb.Operation{Op: ovsdb.OperationSelect, Table: table}
		results, _ := o.db.NewTransaction(rows.Database).Transact(every)
		updates[table] = ovsdb.TableUpdate2{}
		for _, row := range results[0].Rows {
			id := row["_uuid"].(ovsdb.UUID).GoUUID
			updates[table][id] = &ovsdb.RowUpdate2{Initial: only(&row, columns)}
		}
	}
	*reply = ovsdb.MonitorCondSinceReply{LastTransactionID: uuid.NewString(), Updates: updates}
	o.monitors[c] = m
	return nil
}

// requested reads a monitor request, which may be in a list of one.
func requested(raw json.RawMessage) ([]string, error) {
	var one ovsdb.MonitorRequest
	if err := json.Unmarshal(raw, &one); err == nil {
		return one.Columns, nil
	}
	var list []ovsdb.MonitorRequest
	if err := json.Unmarshal(raw, &list); err != nil || len(list) != 1 {
		return nil, fmt.Errorf("monitor request %s is not understood: %w", raw, err)
	}
	return list[0].Columns, nil
}

func only(row *ovsdb.Row, columns []string) *ovsdb.Row {
	if row == nil {
		return nil
	}
	some := ovsdb.Row{}
	for name, value := range *row {
		if slices.Contains(columns, name) {
			some[name] = value
		}
	}
	return &some
}

func (o *OVS) transact(_ *rpc2.Client, args []json.RawMessage, reply *[]*ovsdb.OperationResult) (err error) {
	var ops []ovsdb.Operation
	for _, raw := range args[1:] {
		var op ovsdb.Operation
		if err := json.Unmarshal(raw, &op); err != nil {
			return err
		}
		ops = append(ops, op)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if *reply, err = o.commit(ops); err != nil {
		return err
	}
	o.writes++
	return o.configure()
}

// commit executes operations and announces what they change. It needs mu to be held.
func (o *OVS) commit(ops []ovsdb.Operation) ([]*ovsdb.OperationResult, error) {
	results, update := o.db.NewTransaction(rows.Database).Transact(ops...)
	for _, r := range results {
		if r != nil && r.Error != "" {
			return results, nil
		}
	}
	id := uuid.New()
	announced := map[string]ovsdb.TableUpdate2{}
	for _, table := range update.GetUpdatedTables() {
		announced[table] = ovsdb.TableUpdate2{}
		_ = update.ForEachRowUpdate(table, func(row string, u ovsdb.RowUpdate2) error {
			announced[table][row] = &u
			return nil
		})
	}
	if err := o.db.Commit(rows.Database, id, update); err != nil {
		return nil, err
	}
	for c, m := range o.monitors {
		o.announce(c, m, id, announced)
	}
	return results, nil
}

func (o *OVS) announce(c *rpc2.Client, m monitor, id uuid.UUID, announced map[string]ovsdb.TableUpdate2) {
	updates := ovsdb.TableUpdates2{}
	for table, rows := range announced {
		columns, followed := m.columns[table]
		if !followed {
			continue
		}
		updates[table] = ovsdb.TableUpdate2{}
		for row, u := range rows {
			updates[table][row] = &ovsdb.RowUpdate2{
				Insert: only(u.Insert, columns), Modify: only(u.Modify, columns), Delete: only(u.Delete, columns),
			}
		}
	}
	if len(updates) > 0 {
		// A connection that has ended is noticed by OnDisconnect.
		_ = c.Notify("update3", []any{m.id, id.String(), updates})
	}
}

// set is a set of strings in a row.
func set(values ...string) ovsdb.OvsSet {
	s, err := ovsdb.NewOvsSet(values)
	if err != nil {
		panic(err)
	}
	return s
}
