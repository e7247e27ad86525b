// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/backend/ovn/remote"
	"coelan.io/coelan/internal/trigger"
)

// connectTimeout bounds the way to a complete view, which is large in large clusters.
const connectTimeout = time.Minute

// transactTimeout bounds a transaction.
const transactTimeout = 30 * time.Second

// session is one connection and its view.
type session struct {
	cli    *remote.Connection
	view   *view
	schema ovsdb.DatabaseSchema // libovsdb forgets it when the connection is lost
	done   <-chan struct{}      // closed when the connection has ended
}

// connect opens a session with a complete view.
func connect(ctx context.Context, o Options, changed trigger.Trigger) (*session, error) {
	m, err := nb.Model()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	cli, err := remote.Connect(ctx, remote.Options{Model: m, Remotes: o.Remotes, Leader: true, TLS: o.TLS})
	if err != nil {
		return nil, err
	}
	s := &session{cli: cli, view: newView(o.Cluster, changed), done: cli.Ended()}
	if _, err := cli.Monitor(ctx, cli.NewMonitor(monitored()...)); err != nil {
		cli.Close()
		return nil, fmt.Errorf("it cannot be watched: %w", err)
	}
	cache := cli.Cache()
	s.schema = cli.Schema()
	if cache == nil || len(s.schema.Tables) == 0 {
		cli.Close()
		return nil, errors.New("the connection was lost")
	}
	// From here on events are queued; those of before that are still in the queue change nothing.
	cache.AddEventHandler(s.view)
	s.view.fill(func(table string) map[string]model.Model { return cache.Table(table).RowsShallow() })
	return s, nil
}

// monitored are the columns of our tables.
func monitored() (options []client.MonitorOption) {
	for _, t := range nb.Tables() {
		row := t.New()
		var columns []any
		for i := range t.Columns {
			columns = append(columns, field(row, &t.Columns[i]).Addr().Interface())
		}
		options = append(options, client.WithTable(row, columns...))
	}
	global := &nb.NBGlobal{}
	return append(options, client.WithTable(global, &global.NBCfg, &global.SBCfg, &global.HVCfg))
}

// probe ends the session when the server does not answer any more.
func (s *session) probe(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.done:
			return
		case <-ticker.C:
		}
		answer, cancel := context.WithTimeout(ctx, interval)
		err := s.cli.Echo(answer)
		cancel()
		if err != nil && ctx.Err() == nil {
			s.cli.Client.Close() // Run notices that it has ended
			return
		}
	}
}

func (s *session) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return s.cli.Cache() == nil
	}
}

// refusedError says that the database does not take a transaction as it is.
type refusedError struct{ err error }

// errGone says that a row which another one belongs to, or has, was deleted behind the view, which
// will know that soon.
var errGone = errors.New("a row that it belongs to, or has, was deleted meanwhile")

// gone reports whether a row of the transaction was not there: a wait for it was in vain (see
// plan.wait), or another row was to have it. A row that others still have is refused for the same
// kind of reason, and is there.
func (e *refusedError) gone() bool {
	var late *ovsdb.TimedOut
	var dangling *ovsdb.ReferentialIntegrityViolation
	return errors.As(e.err, &late) ||
		errors.As(e.err, &dangling) && strings.Contains(dangling.Error(), "references nonexistent row")
}

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// transact commits all operations or none.
func (s *session) transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	ctx, cancel := context.WithTimeout(ctx, transactTimeout)
	defer cancel()
	results, err := s.cli.Transact(ctx, ops...)
	if err != nil {
		var broken *net.OpError
		if errors.Is(err, client.ErrNotConnected) || errors.As(err, &broken) || errors.Is(err, io.EOF) ||
			errors.Is(err, io.ErrUnexpectedEOF) || ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		return nil, readOnly(err)
	}
	refused, err := ovsdb.CheckOperationResults(results, ops)
	for _, r := range refused {
		err = r // the first says most: later ones were not tried
		break
	}
	if err != nil {
		return nil, readOnly(err)
	}
	return results, nil
}

// readOnly tells a database that takes no changes from one that does not take this one.
func readOnly(err error) error {
	if text := err.Error(); strings.Contains(text, "read only") || strings.Contains(text, "read-only") {
		return fmt.Errorf("%w: is the remote of another CMS, or a backup server? %w", ErrReadOnly, err)
	}
	return &refusedError{err}
}
