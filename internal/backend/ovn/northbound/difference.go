// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"coelan.io/coelan/internal/backend/ovn/nb"
)

// difference is one row that is not as wanted.
type difference struct {
	ref  nb.Ref
	name string // of the row; empty: it has none
	// policy is what a row of an ACL is made of; empty: it is none.
	policy string
	// problem is in the words of a sentence that begins with the row.
	problem string
	// reason is why it stays so; nil: not known, and perhaps what differs is being written.
	reason error
}

// policyKey is the entry of external_ids that names the policy of an ACL.
const policyKey = "coelan.io/policy"

// differences are all rows that a view has otherwise than wanted: by the same comparison as what a
// writer does about them. The view is locked; kept are the rows that could not be written.
func differences(v *view, schema ovsdb.DatabaseSchema, rows *nb.Rows, kept map[nb.Ref]error) []difference {
	refs := map[nb.Ref]struct{}{}
	for ref := range rows.Refs() {
		refs[ref] = struct{}{}
	}
	for ref := range v.owned {
		refs[ref] = struct{}{}
	}
	var list []difference
	for _, ref := range slices.SortedFunc(maps.Keys(refs), nb.Ref.Compare) {
		if d, differs := differenceOf(v, schema, rows, ref); differs {
			d.reason = cmp.Or(d.reason, kept[ref])
			list = append(list, d)
		}
	}
	return list
}

// differenceOf compares one row.
func differenceOf(v *view, schema ovsdb.DatabaseSchema, rows *nb.Rows, ref nb.Ref) (difference, bool) {
	data, wanted := rows.Get(ref)
	uuids := v.owned[ref]
	switch {
	case !wanted:
		d := describe(ref, v.rows[uuids[0]])
		d.problem = "is not wanted any more"
		return d, true
	case len(uuids) == 0 && !isAdopted(data):
		d := describe(ref, data)
		d.problem, d.reason = "is missing", orphaned(v, rows, ref)
		return d, true
	case len(uuids) > 1:
		d := describe(ref, data)
		d.problem = fmt.Sprintf("is there %d times", len(uuids))
		return d, true
	}
	p := newPlan(v, schema, rows)
	p.row(ref)
	d := describe(ref, data)
	if err := p.refused[ref]; err != nil {
		d.problem, d.reason = "is missing", err
		return d, true
	}
	columns := p.columns(p.uuid(ref))
	d.problem = "is not as wanted in " + strings.Join(columns, ", ")
	return d, len(columns) > 0
}

// describe names a row, which is nil if only its UUID is known yet.
func describe(ref nb.Ref, row model.Model) difference {
	d := difference{ref: ref}
	if row == nil {
		return d
	}
	d.name = nameOf(nb.TableOf(row), row)
	if acl, is := row.(*nb.ACL); is {
		d.policy = acl.ExternalIDs[policyKey]
	}
	return d
}

// orphaned says that a missing row has nothing to be an element of; nil: it could be written.
func orphaned(v *view, rows *nb.Rows, ref nb.Ref) error {
	if nb.TableNamed(ref.Table).Root {
		return nil
	}
	var missing []string
	p := &plan{view: v, rows: rows}
	for h := range rows.Holders(ref) {
		if p.uuid(h.Of) != "" {
			return nil
		}
		missing = append(missing, h.Of.String())
	}
	slices.Sort(missing)
	return fmt.Errorf("what it belongs to is missing: %s", strings.Join(slices.Compact(missing), ", "))
}

// columns are those that a plan changes of a row that is there.
func (p *plan) columns(uuid string) []string {
	changed := map[string]struct{}{}
	for _, op := range p.changes {
		if !slices.ContainsFunc(op.Where, func(c ovsdb.Condition) bool { return c.Value == ovsdb.UUID{GoUUID: uuid} }) {
			continue
		}
		for column := range op.Row {
			changed[column] = struct{}{}
		}
		for _, m := range op.Mutations {
			changed[m.Column] = struct{}{}
		}
	}
	for set := range p.elements {
		if set.row == uuid {
			changed[set.column] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(changed))
}

// owner is the object that a row is made of, as people call it.
func (d difference) owner() string {
	if d.policy != "" {
		return d.policy
	}
	return strings.Replace(d.ref.Key, "/", " ", 1)
}

// text says what is wrong with the row, and why if that is known.
func (d difference) text() string {
	const reasonless = "and stays so though the controller has written: does another program change it?"
	text := fmt.Sprintf("of %s %s", d.owner(), d.problem)
	if d.reason == nil {
		return text + ", " + reasonless
	}
	return text + ": " + strings.ReplaceAll(d.reason.Error(), "\n", "; ")
}
