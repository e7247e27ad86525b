// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"fmt"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"coelan.io/coelan/internal/backend/ovn/nb"
)

// switches is the only table of which rows of other systems are adopted.
const switches = "Logical_Switch"

// isAdopted says that a wanted row is another system's. It is never written, deleted, or owned;
// what is ours joins its sets.
func isAdopted(row model.Model) bool {
	s, ok := row.(*nb.LogicalSwitch)
	return ok && s.Adopted
}

func absent(row model.Model) error {
	return fmt.Errorf("the northbound database has no %s %s of another system: make it, or take the annotation "+
		"from the Network", switches, row.(*nb.LogicalSwitch).Name)
}

// uuid is that of a row of ours, or of one that is adopted; empty: there is none.
func (p *plan) uuid(ref nb.Ref) string {
	if data, ok := p.rows.Get(ref); ok && isAdopted(data) {
		return p.view.stranger(switches, data.(*nb.LogicalSwitch).Name)
	}
	return p.view.uuid(ref)
}

// join adds what an adopted row's sets lack of ours, and takes away what is ours and too much.
func (p *plan) join(ref nb.Ref, data model.Model) {
	uuid := p.uuid(ref)
	actual := p.view.rows[uuid]
	if actual == nil {
		p.refused[ref] = absent(data)
		return
	}
	elements := map[nb.ColumnValue]bool{}
	for column, value := range p.rows.Elements(ref) {
		elements[nb.ColumnValue{Column: column, Value: value}] = true
		c := nb.TableNamed(switches).Column(column)
		if to := (nb.Ref{Table: c.Refers, Key: value}); c.Refers != "" && p.view.uuid(to) == "" {
			p.later = append(p.later, to)
		}
	}
	t := nb.TableNamed(switches)
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

// leave takes rows that are wanted no more out of switches that are not ours: with those that are,
// or were, the change of the switch does.
func (p *plan) leave(uuids []string) {
	for sw := range p.view.foreign {
		ports := p.view.rows[sw].(*nb.LogicalSwitch).Ports
		for _, uuid := range uuids {
			if slices.Contains(ports, uuid) {
				p.changes = append(p.changes, p.mutate(switches, sw, ovsdb.Mutation{
					Column: "ports", Mutator: ovsdb.MutateOperationDelete,
					Value: p.value(switches, "ports", []string{uuid}),
				}))
			}
		}
	}
}
