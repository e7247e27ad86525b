// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
)

// plan is one transaction in the making: what differs between wanted and actual rows. The view is
// locked while it is made.
type plan struct {
	view   *view
	schema ovsdb.DatabaseSchema
	rows   *nb.Rows

	inserted []nb.Ref          // in the order of the first operations
	named    map[nb.Ref]string // what the operations call the rows that are inserted
	made     map[string]bool   // all of these names
	inserts  []ovsdb.Operation
	changes  []ovsdb.Operation
	// elements are what is added to sets of other rows.
	elements map[setOf][]string
	order    []setOf
	// later are rows that are elements of inserted ones, which are not there yet.
	later   []nb.Ref
	refused map[nb.Ref]error
	// referring says that a row is being made that refers to the next one, and so holds it.
	referring bool
}

// setOf is a column of a row, by UUID or by what the plan calls it.
type setOf struct{ table, row, column string }

func newPlan(v *view, schema ovsdb.DatabaseSchema, rows *nb.Rows) *plan {
	return &plan{
		view: v, schema: schema, rows: rows, named: map[nb.Ref]string{}, made: map[string]bool{},
		elements: map[setOf][]string{}, refused: map[nb.Ref]error{},
	}
}

// operations are those of the transaction.
func (p *plan) operations() []ovsdb.Operation {
	ops := slices.Concat(p.inserts, p.changes)
	there := map[string]bool{}
	for _, set := range p.order {
		if p.isNew(p.elements[set]) && !there[set.row] && !p.isNew([]string{set.row}) {
			there[set.row] = true
			ops = append(ops, p.wait(set.table, set.row))
		}
	}
	for _, set := range p.order {
		ops = append(ops, p.mutate(set.table, set.row, ovsdb.Mutation{
			Column: set.column, Mutator: ovsdb.MutateOperationInsert,
			Value: p.value(set.table, set.column, p.elements[set]),
		}))
	}
	return ops
}

// isNew says whether rows that the plan makes are among values.
func (p *plan) isNew(values []string) bool {
	return slices.ContainsFunc(values, func(v string) bool { return p.made[v] })
}

// wait is an operation that refuses the transaction if a row is not there any more. Without it the
// database would take a row that belongs to that one, and throw it away at once.
func (p *plan) wait(table, row string) ovsdb.Operation {
	now := 0
	return ovsdb.Operation{
		Op: ovsdb.OperationWait, Table: table, Where: is(row), Timeout: &now, Columns: []string{"_uuid"},
		Until: string(ovsdb.WaitConditionEqual), Rows: []ovsdb.Row{{"_uuid": ovsdb.UUID{GoUUID: row}}},
	}
}

// size is about how many operations there are.
func (p *plan) size() int { return len(p.inserts) + len(p.changes) + len(p.order) }

// row adds what one row lacks.
func (p *plan) row(ref nb.Ref) {
	data, wanted := p.rows.Get(ref)
	uuids := p.view.owned[ref]
	switch {
	case wanted && isAdopted(data):
		p.join(ref, data)
	case wanted && len(uuids) == 0:
		p.insert(ref, data)
	case wanted:
		if actual := p.view.rows[uuids[0]]; actual != nil { // else it was inserted just now
			p.update(ref, uuids[0], data, actual)
		}
		uuids = uuids[1:]
	}
	if !wanted {
		p.leave(ref.Table, uuids)
	}
	if !nb.TableNamed(ref.Table).Root {
		return // a row that is not a root goes when its parent lets go of it
	}
	for _, uuid := range uuids {
		p.changes = append(p.changes, ovsdb.Operation{Op: ovsdb.OperationDelete, Table: ref.Table, Where: is(uuid)})
	}
}

// parts adds what a row lacks of some elements, and takes away what it has too much of them.
func (p *plan) parts(ref nb.Ref, elements map[nb.ColumnValue]bool) {
	data, wanted := p.rows.Get(ref)
	uuid := p.uuid(ref)
	actual := p.view.rows[uuid]
	if !wanted || actual == nil {
		return // it goes, or comes, as a whole
	}
	t := nb.TableOf(data)
	minus := map[string][]string{}
	for v := range elements {
		c := t.Column(v.Column)
		own, _ := field(data, c).Interface().([]string)
		has, _ := field(actual, c).Interface().([]string)
		value := v.Value
		if c.Refers != "" {
			value = p.view.uuid(nb.Ref{Table: c.Refers, Key: v.Value})
		}
		want := p.rows.HasElement(ref, v) || slices.Contains(own, v.Value)
		switch there := slices.Contains(has, value); {
		case value == "": // it is put there when it is inserted
		case want && !there:
			p.put(setOf{t.Name, uuid, c.Name}, value)
		case there && !want:
			minus[c.Name] = append(minus[c.Name], value)
		}
	}
	for _, column := range slices.Sorted(maps.Keys(minus)) {
		slices.Sort(minus[column])
		p.changes = append(p.changes, p.mutate(t.Name, uuid, ovsdb.Mutation{
			Column: column, Mutator: ovsdb.MutateOperationDelete, Value: p.value(t.Name, column, minus[column]),
		}))
	}
}

// insert adds a row that is not there, with what it refers to and the rows that it is an element
// of. It returns what to refer to it by; empty: it cannot be inserted.
func (p *plan) insert(ref nb.Ref, data model.Model) string {
	if name := p.named[ref]; name != "" || p.refused[ref] != nil {
		return name
	}
	t := nb.TableOf(data)
	if isAdopted(data) {
		p.refused[ref] = absent(t, data)
		return ""
	}
	if uuid := p.view.stranger(t.Name, nameOf(t, data)); uuid != "" {
		p.refused[ref] = fmt.Errorf("%s %s: the northbound database has a row of this name, %s, without %s=%s in "+
			"its external_ids: rename or remove it",
			t.Name, nameOf(t, data), uuid, names.OwnerKey, p.view.cluster.Owner(ref.Key))
		return ""
	}
	name := p.newName()
	p.named[ref] = name
	referring := p.referring
	p.referring = false
	if held := p.hold(ref); !held && !t.Root && !referring {
		delete(p.named, ref)
		return ""
	}
	row, elements := ovsdb.Row{}, p.elementsOf(ref)
	for i := range t.Columns {
		c := &t.Columns[i]
		if v := p.desired(ref, data, c, elements[c.Name], true); !empty(v) {
			row[c.Name] = p.value(t.Name, c.Name, v)
		}
	}
	p.inserts = append(p.inserts, ovsdb.Operation{Op: ovsdb.OperationInsert, Table: t.Name, Row: row, UUIDName: name})
	p.inserted = append(p.inserted, ref)
	for h := range p.rows.Holders(ref) {
		if of := p.there(h.Of); of != "" {
			p.put(setOf{h.Of.Table, of, h.Column}, name)
		}
	}
	return name
}

// newName is what the operations may call a row.
func (p *plan) newName() string {
	name := fmt.Sprintf("row%d", len(p.made)+1)
	p.made[name] = true
	return name
}

// hold sees to it that what a row is an element of is there, and says whether anything is.
func (p *plan) hold(ref nb.Ref) (held bool) {
	for h := range p.rows.Holders(ref) {
		held = p.lookup(h.Of) != "" || held
	}
	return held
}

// there is what to refer to a row by that is there or being inserted.
func (p *plan) there(ref nb.Ref) string {
	if uuid := p.uuid(ref); uuid != "" {
		return uuid
	}
	return p.named[ref]
}

// lookup is what to refer to a row by, which is inserted if it is not there; empty: it is not
// wanted, or cannot be inserted.
func (p *plan) lookup(ref nb.Ref) string {
	data, wanted := p.rows.Get(ref)
	if !wanted {
		return ""
	}
	if there := p.there(ref); there != "" {
		return there
	}
	return p.insert(ref, data)
}

// refer is lookup for a row that another one refers to in its data.
func (p *plan) refer(ref nb.Ref) string {
	before := p.referring
	p.referring = true
	defer func() { p.referring = before }()
	return p.lookup(ref)
}

func (p *plan) put(set setOf, value string) {
	if p.elements[set] == nil {
		p.order = append(p.order, set)
	}
	p.elements[set] = append(p.elements[set], value)
}

// update adds what differs in a row that is there.
func (p *plan) update(ref nb.Ref, uuid string, data, actual model.Model) {
	t := nb.TableOf(data)
	row, elements := ovsdb.Row{}, p.elementsOf(ref)
	var mutations []ovsdb.Mutation
	for i := range t.Columns {
		c := &t.Columns[i]
		want, is := p.desired(ref, data, c, elements[c.Name], false), field(actual, c).Interface()
		var plus, minus any
		switch want := want.(type) {
		case []string:
			plus, minus = p.setDifference(c, want, is.([]string))
		case map[string]string:
			plus, minus = mapDifference(want, is.(map[string]string), c.Name == externalIDs)
		default:
			if !reflect.DeepEqual(want, is) && !(empty(want) && empty(is)) {
				row[c.Name] = p.value(t.Name, c.Name, want)
			}
			continue
		}
		// Of maps, a key with another value goes first; a set that must not be empty gets first.
		add := ovsdb.Mutation{Column: c.Name, Mutator: ovsdb.MutateOperationInsert}
		remove := ovsdb.Mutation{Column: c.Name, Mutator: ovsdb.MutateOperationDelete}
		if !empty(plus) {
			add.Value = p.value(t.Name, c.Name, plus)
		}
		if !empty(minus) {
			remove.Value = p.value(t.Name, c.Name, minus)
		}
		both := []ovsdb.Mutation{add, remove}
		if _, isMap := want.(map[string]string); isMap {
			slices.Reverse(both)
		}
		for _, m := range both {
			if m.Value != nil {
				mutations = append(mutations, m)
			}
		}
	}
	if len(row) > 0 {
		p.changes = append(p.changes,
			ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: t.Name, Where: is(uuid), Row: row})
	}
	if len(mutations) > 0 {
		p.changes = append(p.changes, p.mutate(t.Name, uuid, mutations...))
	}
}

// setDifference is what a set lacks and what it has too much. Of rows, those that are not ours may
// stay.
func (p *plan) setDifference(c *nb.Column, want, is []string) (plus, minus []string) {
	has := make(map[string]bool, len(is))
	for _, v := range is {
		has[v] = true
	}
	for _, v := range want {
		if !has[v] {
			plus = append(plus, v)
		}
		delete(has, v)
	}
	for v := range has {
		if _, ours := p.view.refs[v]; ours || c.Refers == "" {
			minus = append(minus, v)
		}
	}
	return plus, minus
}

// mapDifference is what a map lacks and what it has too much. Of external_ids only the entries that
// are Coelan's may be too much.
func mapDifference(want, is map[string]string, shared bool) (plus, minus map[string]string) {
	plus, minus = map[string]string{}, map[string]string{}
	for k, v := range want {
		if had, ok := is[k]; !ok || had != v {
			plus[k] = v
			if ok {
				minus[k] = had
			}
		}
	}
	for k, v := range is {
		if _, ok := want[k]; !ok && !(shared && !isOurs(k)) {
			minus[k] = v
		}
	}
	return plus, minus
}

// desired is what a column should have. In sets, rows that are not there are left out: they are
// added when they are inserted.
func (p *plan) desired(ref nb.Ref, data model.Model, c *nb.Column, elements []string, fresh bool) any {
	v := field(data, c).Interface()
	if c.Name == externalIDs {
		ids := maps.Clone(v.(map[string]string))
		if ids == nil {
			ids = map[string]string{}
		}
		ids[names.OwnerKey] = p.view.cluster.Owner(ref.Key)
		return ids
	}
	switch v := v.(type) {
	case *string:
		if c.Refers == "" || v == nil {
			return v
		}
		if to := p.refer(nb.Ref{Table: c.Refers, Key: *v}); to != "" {
			return &to
		}
		return (*string)(nil)
	case []string:
		return p.set(v, elements, c, fresh)
	}
	return v
}

// set is what a set should have: the row's own values and the elements.
func (p *plan) set(own, elements []string, c *nb.Column, fresh bool) []string {
	var list []string
	if c.Refers == "" {
		list = slices.Clone(own)
	} else {
		for _, key := range own {
			if to := p.refer(nb.Ref{Table: c.Refers, Key: key}); to != "" {
				list = append(list, to)
			}
		}
	}
	for _, value := range elements {
		if c.Refers == "" {
			list = append(list, value)
			continue
		}
		to := nb.Ref{Table: c.Refers, Key: value}
		if uuid := p.view.uuid(to); uuid != "" {
			if _, wanted := p.rows.Get(to); wanted {
				list = append(list, uuid)
			}
		} else if fresh && p.named[to] == "" {
			p.later = append(p.later, to)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// elementsOf are a row's elements by column.
func (p *plan) elementsOf(ref nb.Ref) map[string][]string {
	all := map[string][]string{}
	for column, value := range p.rows.Elements(ref) {
		all[column] = append(all[column], value)
	}
	return all
}

// mutate is an operation on one row, by UUID or by what the plan calls it.
func (p *plan) mutate(table, row string, mutations ...ovsdb.Mutation) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationMutate, Table: table, Where: is(row), Mutations: mutations}
}

// value is a column's value as the protocol has it.
func (p *plan) value(table, column string, v any) any {
	value, err := ovsdb.NativeToOvs(p.schema.Table(table).Column(column), v)
	if err != nil {
		// libovsdb compares the types of rows with the database's on connection.
		panic(fmt.Sprintf("column %s of %s: %v", column, table, err))
	}
	return value
}

// is selects one row.
func is(row string) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: row})}
}

// empty says whether a value is what a column has that is not written.
func empty(v any) bool {
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Slice, reflect.Map:
		return r.Len() == 0
	case reflect.Invalid:
		return true
	}
	return r.IsZero()
}
