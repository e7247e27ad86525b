// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/model"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/trigger"
)

// view is what a database has in our tables. Rows in it are shared with libovsdb and never change.
type view struct {
	cluster names.Cluster
	trigger trigger.Trigger // fired when a row of ours has changed

	mu   sync.Mutex
	rows map[string]model.Model // by UUID
	refs map[string]nb.Ref      // of our rows, by UUID
	// owned are our rows by key: usually one. That one counts which came first.
	owned map[nb.Ref][]string
	named map[nb.Ref]map[string]bool // UUIDs of all rows by table and name
	// foreign are the tables of switches and routers that are not ours, by UUID.
	foreign map[string]string
	// adopted are the wanted rows that others make, by table and name.
	adopted map[nb.Ref]nb.Ref
	// dirty are our rows that are no longer as they were when they were compared.
	dirty map[nb.Ref]*nb.Change
	// global is the row of NB_Global; newer is closed when there is another one.
	global nb.NBGlobal
	newer  chan struct{}
	// gone are the rows that went since the last call of expect.
	gone map[string]bool
}

func newView(cluster names.Cluster, changed trigger.Trigger) *view {
	return &view{
		cluster: cluster, trigger: changed, rows: map[string]model.Model{}, refs: map[string]nb.Ref{},
		owned: map[nb.Ref][]string{}, named: map[nb.Ref]map[string]bool{},
		foreign: map[string]string{}, adopted: map[nb.Ref]nb.Ref{}, newer: make(chan struct{}),
		dirty: map[nb.Ref]*nb.Change{},
	}
}

// OnAdd implements cache.EventHandler.
func (v *view) OnAdd(table string, row model.Model) { v.set(table, row) }

// OnUpdate implements cache.EventHandler.
func (v *view) OnUpdate(table string, _, row model.Model) { v.set(table, row) }

// OnDelete implements cache.EventHandler.
func (v *view) OnDelete(table string, row model.Model) {
	t := nb.TableNamed(table)
	if t == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.remove(t, uuidOf(row))
}

func (v *view) set(table string, row model.Model) {
	if g, ok := row.(*nb.NBGlobal); ok {
		v.setGlobal(g)
		return
	}
	t := nb.TableNamed(table)
	if t == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	uuid := uuidOf(row)
	old := v.rows[uuid]
	if old != nil {
		v.unname(t, uuid, old)
		if ref, ours := v.refs[uuid]; ours && ref.Key != v.key(t, row) {
			v.disown(uuid, ref)
		}
	}
	v.rows[uuid] = row
	if name := nameOf(t, row); name != "" {
		at := nb.Ref{Table: t.Name, Key: name}
		if v.named[at] == nil {
			v.named[at] = map[string]bool{}
		}
		v.named[at][uuid] = true
	}
	key := v.key(t, row)
	if adoptable(t.Name) && key == "" {
		v.foreign[uuid] = t.Name
		v.adoptedChanged(t, old, row)
	} else {
		delete(v.foreign, uuid)
	}
	if key != "" {
		ref := nb.Ref{Table: t.Name, Key: key}
		v.own(uuid, ref)
		v.differs(t, ref, old, row)
	}
}

// differs notes in what a row of ours is another one than before. Sets may be large, and most
// changes are of an element.
func (v *view) differs(t *nb.Table, ref nb.Ref, old, row model.Model) {
	change := &nb.Change{Whole: old == nil}
	for i := range t.Columns {
		c := &t.Columns[i]
		if old == nil {
			break
		}
		was, isSet := field(old, c).Interface().([]string)
		if !isSet {
			change.Whole = change.Whole || !reflect.DeepEqual(field(old, c).Interface(), field(row, c).Interface())
			continue
		}
		is := field(row, c).Interface().([]string)
		for _, value := range between(was, is) {
			switch other, ours := v.refs[value]; {
			case c.Refers == "":
				change.Add(nb.ColumnValue{Column: c.Name, Value: value})
			case ours:
				change.Add(nb.ColumnValue{Column: c.Name, Value: other.Key})
			case v.rows[value] == nil:
				change.Whole = true // it is not known yet what it is
			}
		}
	}
	v.mark(ref, change)
}

// between is what two lists have between a common beginning and a common end.
func between(a, b []string) []string {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return slices.Concat(a, b)
}

// expect is to be called before a transaction that inserts rows.
func (v *view) expect() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.gone = map[string]bool{}
}

// inserted notes that a transaction has inserted a row, which may have been heard of before, or
// even that it has gone since.
func (v *view) inserted(uuid string, ref nb.Ref) {
	if v.gone[uuid] {
		v.touch(ref)
		return
	}
	v.own(uuid, ref)
}

// own notes that a row is ours.
func (v *view) own(uuid string, ref nb.Ref) {
	if v.refs[uuid] == ref {
		return
	}
	v.refs[uuid] = ref
	v.owned[ref] = append(v.owned[ref], uuid)
}

func (v *view) disown(uuid string, ref nb.Ref) {
	delete(v.refs, uuid)
	var rest []string
	for _, other := range v.owned[ref] {
		if other != uuid {
			rest = append(rest, other)
		}
	}
	v.owned[ref] = rest
	if len(rest) == 0 {
		delete(v.owned, ref)
	}
	v.touch(ref)
}

func (v *view) touch(ref nb.Ref) { v.mark(ref, &nb.Change{Whole: true}) }

func (v *view) mark(ref nb.Ref, change *nb.Change) {
	if v.dirty[ref] == nil {
		v.dirty[ref] = &nb.Change{}
	}
	v.dirty[ref].Merge(change)
	v.trigger.Fire()
}

func (v *view) remove(t *nb.Table, uuid string) {
	if row := v.rows[uuid]; row != nil {
		v.unname(t, uuid, row)
		delete(v.rows, uuid)
		delete(v.foreign, uuid)
		if ref, adopted := v.adopted[nb.Ref{Table: t.Name, Key: nameOf(t, row)}]; adopted {
			v.touch(ref)
		}
	}
	if v.gone != nil {
		v.gone[uuid] = true
	}
	if ref, ours := v.refs[uuid]; ours {
		v.disown(uuid, ref)
	}
}

func (v *view) unname(t *nb.Table, uuid string, row model.Model) {
	at := nb.Ref{Table: t.Name, Key: nameOf(t, row)}
	delete(v.named[at], uuid)
	if len(v.named[at]) == 0 {
		delete(v.named, at)
	}
}

// fill takes the rows of tables as they are.
func (v *view) fill(rows func(table string) map[string]model.Model) {
	for _, t := range nb.Tables() {
		for _, row := range rows(t.Name) {
			v.set(t.Name, row)
		}
	}
	for _, row := range rows(globalTable) {
		v.set(globalTable, row)
	}
}

// takeDirty returns the rows that have changed since the last call.
func (v *view) takeDirty() map[nb.Ref]*nb.Change {
	v.mu.Lock()
	defer v.mu.Unlock()
	dirty := v.dirty
	v.dirty = map[nb.Ref]*nb.Change{}
	return dirty
}

// all are all rows of ours.
func (v *view) all() []nb.Ref {
	v.mu.Lock()
	defer v.mu.Unlock()
	var refs []nb.Ref
	for ref := range maps.Keys(v.owned) {
		refs = append(refs, ref)
	}
	return refs
}

// uuid is that of our row; empty: there is none.
func (v *view) uuid(ref nb.Ref) string {
	if list := v.owned[ref]; len(list) > 0 {
		return list[0]
	}
	return ""
}

// stranger is the UUID of a row that has the name and is not ours; empty: there is none.
func (v *view) stranger(table, name string) string {
	for uuid := range v.named[nb.Ref{Table: table, Key: name}] {
		if _, ours := v.refs[uuid]; !ours {
			return uuid
		}
	}
	return ""
}

// key is that of a row of ours; empty: it is not ours.
func (v *view) key(t *nb.Table, row model.Model) string {
	owner := nameOf(t, row)
	if c := t.Column(externalIDs); c != nil {
		ids, _ := field(row, c).Interface().(map[string]string)
		owner = ids[names.OwnerKey]
	}
	key, _ := v.cluster.Owned(owner)
	return key
}

const externalIDs = "external_ids"

func uuidOf(row model.Model) string { return reflect.ValueOf(row).Elem().FieldByName("UUID").String() }

// nameOf is the name of a row that has one which should be unique.
func nameOf(t *nb.Table, row model.Model) string {
	if c := t.Column("name"); c != nil {
		name, _ := field(row, c).Interface().(string)
		return name
	}
	return ""
}

// field is the value of a column.
func field(row model.Model, c *nb.Column) reflect.Value {
	return reflect.ValueOf(row).Elem().Field(c.Field)
}
