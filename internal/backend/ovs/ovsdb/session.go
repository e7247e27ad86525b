// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	db "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"coelan.io/coelan/internal/backend/ovs/rows"
)

// session is one connection and the view of the database that it keeps.
type session struct {
	socket  string
	cli     client.Client
	ended   chan struct{}
	endOnce sync.Once
	closed  chan struct{} // libovsdb has stopped
}

// connect opens a session with a complete view; changed is called after each
// later change of it.
func connect(ctx context.Context, socket string, changed func()) (*session, error) {
	m, err := rows.Model()
	if err != nil {
		return nil, err
	}
	cli, err := client.NewOVSDBClient(m, client.WithEndpoint("unix:"+socket))
	if err != nil {
		return nil, err
	}
	s := &session{socket: socket, cli: cli, ended: make(chan struct{}), closed: make(chan struct{})}
	abort := make(chan struct{})
	// The notification is not queued: a receiver must wait from the start.
	go func() {
		select {
		case <-cli.DisconnectNotify():
			s.end()
		case <-abort:
		}
		close(s.closed)
	}()
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := cli.Connect(ctx); err != nil {
		close(abort)
		return nil, fmt.Errorf("%w: is ovsdb-server running? %w", ErrNotConnected, err)
	}
	cli.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(string, model.Model) { changed() },
		UpdateFunc: func(string, model.Model, model.Model) { changed() },
		DeleteFunc: func(string, model.Model) { changed() },
	})
	if _, err := cli.Monitor(ctx, cli.NewMonitor(monitored()...)); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("%w: cannot be watched: %w", ErrNotConnected, err)
	}
	return s, nil
}

func (s *session) end() { s.endOnce.Do(func() { close(s.ended) }) }

// Close implements reconnect.Conn. It waits until libovsdb has stopped, which should take no time.
func (s *session) Close() error {
	s.end()
	s.cli.Close()
	select {
	case <-s.closed:
	case <-time.After(connectTimeout):
	}
	return nil
}

// Done implements reconnect.Conn.
func (s *session) Done() <-chan struct{} { return s.ended }

// Err implements reconnect.Conn.
func (s *session) Err() error {
	select {
	case <-s.ended:
		return s.errLost()
	default:
		return nil
	}
}

func (s *session) errLost() error {
	return fmt.Errorf("%w: connection to %s lost", ErrNotConnected, s.socket)
}

// lost reports whether the connection was lost, so that err, or what was found
// in the view, means nothing. libovsdb has no view any more then.
func (s *session) lost(err error) bool {
	if err == nil {
		return s.cli.Cache() == nil
	}
	select {
	case <-s.ended:
		return true
	default:
	}
	return s.cli.Cache() == nil || errors.Is(err, ErrNotConnected)
}

// transact commits all operations or none.
func (s *session) transact(ctx context.Context, ops []db.Operation) ([]db.OperationResult, error) {
	results, err := s.cli.Transact(ctx, ops...)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("the Open vSwitch database did not answer: %w", ctx.Err())
	}
	var broken *net.OpError
	if errors.Is(err, client.ErrNotConnected) || errors.As(err, &broken) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("%w: %w", ErrNotConnected, err)
	}
	if err != nil {
		return nil, err
	}
	refused, err := db.CheckOperationResults(results, ops)
	for _, r := range refused {
		err = r // the first one says most: later ones say "not executed"
		break
	}
	if err != nil {
		return nil, fmt.Errorf("the Open vSwitch database refused a change: %w", err)
	}
	return results, nil
}

// root is the one row of the Open_vSwitch table.
func (s *session) root() (*rows.OpenVSwitch, error) {
	for _, row := range s.rows(rows.TableOpenVSwitch) {
		return row.(*rows.OpenVSwitch), nil
	}
	return nil, errors.New("the Open vSwitch database is empty: was it initialized by ovs-vsctl init?")
}

// bridge, port and iface find a row by its name; nil if there is none.
func (s *session) bridge(name string) *rows.Bridge {
	row, _ := s.named(rows.TableBridge, &rows.Bridge{Name: name}).(*rows.Bridge)
	return row
}

func (s *session) port(name string) *rows.Port {
	row, _ := s.named(rows.TablePort, &rows.Port{Name: name}).(*rows.Port)
	return row
}

func (s *session) iface(name string) *rows.Interface {
	row, _ := s.named(rows.TableInterface, &rows.Interface{Name: name}).(*rows.Interface)
	return row
}

func (s *session) named(table string, like model.Model) model.Model {
	c := s.cli.Cache()
	if c == nil {
		return nil // disconnected
	}
	_, row, err := c.Table(table).RowByModel(like)
	if err != nil {
		return nil
	}
	return row
}

// rows are the rows of a table by UUID; they must not be changed.
func (s *session) rows(table string) map[string]model.Model {
	c := s.cli.Cache()
	if c == nil {
		return nil // disconnected
	}
	return c.Table(table).RowsShallow()
}

// create returns the operations that insert rows, of any tables.
func (s *session) create(rows ...model.Model) (ops []db.Operation, err error) {
	for _, row := range rows {
		op, err := s.cli.Create(row)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op...)
	}
	return ops, nil
}

// configure commits ops and asks ovs-vswitchd to say when it has applied them.
// It returns the number that cur_cfg reaches then.
func (s *session) configure(ctx context.Context, ops []db.Operation) (int, error) {
	cfg, _, err := s.configureRows(ctx, ops)
	return cfg, err
}

// configureRows is configure, and returns the results of ops too: they name the rows that were
// inserted.
func (s *session) configureRows(ctx context.Context, ops []db.Operation) (int, []db.OperationResult, error) {
	root, err := s.root()
	if err != nil {
		return 0, nil, err
	}
	where := []db.Condition{db.NewCondition("_uuid", db.ConditionEqual, db.UUID{GoUUID: root.UUID})}
	ops = append(ops,
		db.Operation{Op: db.OperationMutate, Table: rows.TableOpenVSwitch, Where: where,
			Mutations: []db.Mutation{*db.NewMutation("next_cfg", db.MutateOperationAdd, 1)}},
		db.Operation{Op: db.OperationSelect, Table: rows.TableOpenVSwitch, Where: where, Columns: []string{"next_cfg"}})
	results, err := s.transact(ctx, ops)
	if err != nil {
		return 0, nil, err
	}
	last := results[len(results)-1]
	if len(last.Rows) != 1 {
		return 0, nil, fmt.Errorf("%w: its row has vanished", ErrNotConnected)
	}
	next, ok := last.Rows[0]["next_cfg"].(float64)
	if !ok {
		return 0, nil, fmt.Errorf("next_cfg is not a number: %v", last.Rows[0]["next_cfg"])
	}
	return int(next), results, nil
}

// until waits until done says so, looking at the view after each change of it.
func (c *Client) until(ctx context.Context, s *session, done func() (bool, error)) error {
	for {
		changed := c.changed.Changed()
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-s.ended:
			return ErrNotConnected
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// applied waits until ovs-vswitchd has applied configuration number cfg.
func (c *Client) applied(ctx context.Context, s *session, cfg int) error {
	err := c.until(ctx, s, func() (bool, error) { return s.hasApplied(cfg) })
	if ctx.Err() != nil {
		return fmt.Errorf("ovs-vswitchd did not apply its configuration: is it running? %w", err)
	}
	return err
}

func (s *session) hasApplied(cfg int) (bool, error) {
	root, err := s.root()
	if err != nil {
		return false, err
	}
	return root.CurCfg >= cfg, nil
}
