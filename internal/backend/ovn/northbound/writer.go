// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
)

// largeTransaction is from how many operations on a comparison goes on in the next transaction: a
// server does nothing else meanwhile, and members of a RAFT cluster would elect another leader.
const largeTransaction = 1000

func isOurs(externalID string) bool {
	prefix, _, _ := strings.Cut(names.OwnerKey, "/")
	return strings.HasPrefix(externalID, prefix+"/")
}

// writer compares on one connection. It is used by one goroutine.
type writer struct {
	session *session
	client  *Client
	rows    *nb.Rows              // of the last pass
	all     bool                  // compare everything
	pending map[nb.Ref]*nb.Change // rows to be compared
	// kept are rows that could not be written, and why.
	kept map[nb.Ref]error
}

// pass compares what may differ and writes what does. Its error says what could not be written.
func (w *writer) pass(ctx context.Context) error {
	rows := w.client.o.Rows()
	w.rows = rows
	for _, changes := range []map[nb.Ref]*nb.Change{rows.Changes(), w.session.view.takeDirty()} {
		for ref, change := range changes {
			w.compare(ref, change)
		}
	}
	for ref := range w.kept {
		w.compare(ref, whole)
	}
	if w.all {
		for ref := range rows.Refs() {
			w.compare(ref, whole)
		}
		for _, ref := range w.session.view.all() {
			w.compare(ref, whole)
		}
	}
	w.kept = map[nb.Ref]error{}
	tried := map[nb.Ref]bool{} // of the later ones: one that is refused again would never end
	for refs := w.ordered(rows); len(refs) > 0; {
		later, err := w.write(ctx, rows, refs)
		if err != nil {
			w.all = true // what is pending is known no more
			return err
		}
		refs = refs[:0]
		for _, ref := range later {
			if !tried[ref] {
				tried[ref] = true
				refs = append(refs, ref)
			}
		}
	}
	w.all = false
	clear(w.pending)
	return w.problem()
}

// behind reports whether the last pass was of a view that the database has left behind: what could
// not be written is no refusal, and is tried again at once.
func (w *writer) behind() bool {
	for _, err := range w.kept {
		if errors.Is(err, errGone) {
			return true
		}
	}
	return false
}

var whole = &nb.Change{Whole: true}

// compare has a row be compared.
func (w *writer) compare(ref nb.Ref, change *nb.Change) {
	if w.pending[ref] == nil {
		w.pending[ref] = &nb.Change{}
	}
	w.pending[ref].Merge(change)
}

// problem names what could not be written.
func (w *writer) problem() error {
	var errs []error
	for _, ref := range slices.SortedFunc(maps.Keys(w.kept), nb.Ref.Compare) {
		errs = append(errs, w.kept[ref])
	}
	const most = 5
	if more := len(errs) - most; more > 0 {
		errs = append(errs[:most], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// ordered are the pending rows: first those that go, so that others may get their names, then those
// that are there, then those that are not.
func (w *writer) ordered(rows *nb.Rows) []nb.Ref {
	w.session.view.mu.Lock()
	defer w.session.view.mu.Unlock()
	var stages [3][]nb.Ref
	for ref := range w.pending {
		stage := 0
		if _, wanted := rows.Get(ref); wanted {
			stage = 2
			if w.session.view.uuid(ref) != "" {
				stage = 1
			}
		}
		stages[stage] = append(stages[stage], ref)
	}
	for _, list := range stages {
		slices.SortFunc(list, nb.Ref.Compare)
	}
	return slices.Concat(stages[:]...)
}

// write writes what rows lack, in as many transactions as it takes, and returns what is to be
// written after them. Its error says that the database takes none; rows that it refuses are kept.
func (w *writer) write(ctx context.Context, rows *nb.Rows, refs []nb.Ref) (later []nb.Ref, err error) {
	for len(refs) > 0 {
		p, done := w.plan(rows, refs)
		maps.Copy(w.kept, p.refused)
		err := w.commit(ctx, p)
		var refused *refusedError
		switch {
		case errors.As(err, &refused) && done > 1:
			for _, half := range [][]nb.Ref{refs[:done/2], refs[done/2 : done]} {
				more, err := w.write(ctx, rows, half)
				if err != nil {
					return nil, err
				}
				later = append(later, more...)
			}
		case errors.As(err, &refused) && refused.gone():
			w.kept[refs[0]] = fmt.Errorf("%s: %w", refs[0], errGone)
		case errors.As(err, &refused):
			w.kept[refs[0]] = fmt.Errorf("%s: OVN's northbound database refuses it: %w", refs[0], err)
		case err != nil:
			return nil, err
		default:
			later = append(later, p.later...)
		}
		refs = refs[done:]
	}
	return later, nil
}

// plan makes a transaction of the first rows, and returns of how many.
func (w *writer) plan(rows *nb.Rows, refs []nb.Ref) (*plan, int) {
	w.session.view.mu.Lock()
	defer w.session.view.mu.Unlock()
	p := newPlan(w.session.view, w.session.schema, rows)
	for i, ref := range refs {
		if p.size() >= largeTransaction {
			return p, i
		}
		if change := w.pending[ref]; change == nil || change.Whole {
			p.row(ref)
		} else {
			p.parts(ref, change.Elements)
		}
	}
	return p, len(refs)
}

func (w *writer) commit(ctx context.Context, p *plan) error {
	ops := p.operations()
	if len(ops) == 0 {
		return nil
	}
	v := w.session.view
	v.expect()
	results, err := w.session.transact(ctx, ops)
	if err != nil {
		return err
	}
	w.client.transactions.Add(1)
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, ref := range p.inserted {
		v.inserted(results[i].UUID.GoUUID, ref)
	}
	v.gone = nil
	return nil
}
