// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"fmt"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"coelan.io/coelan/internal/backend/ovn/nb"
)

// adoptable are the tables of which rows of other systems are adopted.
func adoptable(table string) bool { return table == "Logical_Switch" || table == "Logical_Router" }

// isAdopted says that a wanted row is another system's. It is never written, deleted, or owned;
// what is ours joins its sets.
func isAdopted(row model.Model) bool {
	switch r := row.(type) {
	case *nb.LogicalSwitch:
		return r.Adopted
	case *nb.LogicalRouter:
		return r.Adopted
	}
	return false
}

func absent(t *nb.Table, row model.Model) error {
	return fmt.Errorf("the northbound database has no %s %s of another system: make it, or take the annotation "+
		"from the Network; with Neutron, is it the database that Neutron writes?", t.Name, nameOf(t, row))
}

// uuid is that of a row of ours, or of one that is adopted; empty: there is none.
func (p *plan) uuid(ref nb.Ref) string {
	if data, ok := p.rows.Get(ref); ok && isAdopted(data) {
		return p.view.adopt(ref, nameOf(nb.TableOf(data), data))
	}
	return p.view.uuid(ref)
}

// adopt is the UUID of a row of another system that is wanted; empty: there is none. From now on
// changes of what it has of ours are noticed.
func (v *view) adopt(ref nb.Ref, name string) string {
	v.adopted[nb.Ref{Table: ref.Table, Key: name}] = ref
	return v.stranger(ref.Table, name)
}

// adoptedChanged notes in what an adopted row is another one than before.
func (v *view) adoptedChanged(t *nb.Table, old, row model.Model) {
	ref, adopted := v.adopted[nb.Ref{Table: t.Name, Key: nameOf(t, row)}]
	if !adopted {
		return
	}
	if old == nil {
		v.touch(ref)
		return
	}
	change := &nb.Change{}
	for i := range t.Columns {
		c := &t.Columns[i]
		was, isSet := field(old, c).Interface().([]string)
		if !isSet || c.Refers == "" {
			continue
		}
		for _, value := range between(was, field(row, c).Interface().([]string)) {
			if other, ours := v.refs[value]; ours {
				change.Add(nb.ColumnValue{Column: c.Name, Value: other.Key})
			}
		}
	}
	if len(change.Elements) > 0 {
		v.mark(ref, change)
	}
}

// join adds what an adopted row's sets lack of ours, and takes away what is ours and too much.
func (p *plan) join(ref nb.Ref, data model.Model) {
	t := nb.TableOf(data)
	uuid := p.uuid(ref)
	actual := p.view.rows[uuid]
	if actual == nil {
		p.refused[ref] = absent(t, data)
		return
	}
	elements := map[nb.ColumnValue]bool{}
	for column, value := range p.rows.Elements(ref) {
		elements[nb.ColumnValue{Column: column, Value: value}] = true
		c := t.Column(column)
		if to := (nb.Ref{Table: c.Refers, Key: value}); c.Refers != "" && p.view.uuid(to) == "" {
			p.later = append(p.later, to)
		}
	}
	for i := range t.Columns {
		c := &t.Columns[i]
		values, isSet := field(actual, c).Interface().([]string)
		for _, value := range values {
			if of, ours := p.view.refs[value]; isSet && ours {
				elements[nb.ColumnValue{Column: c.Name, Value: of.Key}] = true
			}
		}
	}
	p.parts(ref, elements)
}

// leave takes rows that are wanted no more out of switches and routers that are not ours: with
// those that are, or were, the change of the row does. Load_Balancers leave by themselves.
func (p *plan) leave(table string, uuids []string) {
	if table == "Load_Balancer" || len(uuids) == 0 {
		return
	}
	for row, of := range p.view.foreign {
		t := nb.TableNamed(of)
		for i := range t.Columns {
			if c := &t.Columns[i]; c.Refers == table {
				p.leaveColumn(t, c, row, uuids)
			}
		}
	}
}

func (p *plan) leaveColumn(t *nb.Table, c *nb.Column, row string, uuids []string) {
	values, isSet := field(p.view.rows[row], c).Interface().([]string)
	for _, uuid := range uuids {
		if isSet && slices.Contains(values, uuid) {
			p.changes = append(p.changes, p.mutate(t.Name, row, ovsdb.Mutation{
				Column: c.Name, Mutator: ovsdb.MutateOperationDelete, Value: p.value(t.Name, c.Name, []string{uuid}),
			}))
		}
	}
}
