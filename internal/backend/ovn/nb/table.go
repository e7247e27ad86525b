// SPDX-License-Identifier: Apache-2.0

package nb

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/model"
)

// Database is the name of the database.
const Database = "OVN_Northbound"

// Table describes a table with rows of ours.
type Table struct {
	Name string
	// Root says that rows stay without anything that refers to them.
	Root    bool
	Columns []Column
	typ     reflect.Type // of a row, without the pointer
}

// Column of a table that desired rows decide.
type Column struct {
	Name string
	// Refers is the table of the rows that the column refers to; empty: it refers to none.
	Refers string
	Field  int // of the row's type
}

// New returns an empty row.
func (t *Table) New() model.Model { return reflect.New(t.typ).Interface() }

// Column returns the column of that name; nil if desired rows do not decide it.
func (t *Table) Column(name string) *Column {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return &t.Columns[i]
		}
	}
	return nil
}

// TableOf is the table of a row. It panics if there is none, which is a mistake in the program.
func TableOf(row model.Model) *Table {
	t := tables().byType[reflect.TypeOf(row).Elem()]
	if t == nil {
		panic(fmt.Sprintf("no table has rows of type %T", row))
	}
	return t
}

// TableNamed is the table of that name; nil if rows of it are never ours.
func TableNamed(name string) *Table { return tables().byName[name] }

// Tables are all tables with rows of ours.
func Tables() []*Table { return tables().all }

// Model are the tables with their rows, and NB_Global. An error is a mistake in a row's tags.
func Model() (model.ClientDBModel, error) {
	m := map[string]model.Model{"NB_Global": &NBGlobal{}}
	for _, t := range Tables() {
		m[t.Name] = t.New()
	}
	return model.NewClientDBModel(Database, m)
}

type registry struct {
	all    []*Table
	byName map[string]*Table
	byType map[reflect.Type]*Table
}

var tables = sync.OnceValue(func() registry {
	const root, child = true, false
	r := registry{byName: map[string]*Table{}, byType: map[reflect.Type]*Table{}}
	for _, t := range []*Table{
		table("Logical_Switch", root, LogicalSwitch{}),
		table("Logical_Switch_Port", child, LogicalSwitchPort{}),
		table("DHCP_Options", root, DHCPOptions{}),
		table("QoS", child, QoS{}),
		table("Logical_Router", root, LogicalRouter{}),
		table("Logical_Router_Port", child, LogicalRouterPort{}),
		table("Logical_Router_Static_Route", child, StaticRoute{}),
		table("Logical_Router_Policy", child, RouterPolicy{}),
		table("NAT", child, NAT{}),
		table("Gateway_Chassis", child, GatewayChassis{}),
		table("HA_Chassis_Group", root, HAChassisGroup{}),
		table("HA_Chassis", child, HAChassis{}),
		table("BFD", root, BFD{}),
		table("ACL", child, ACL{}),
		table("Port_Group", root, PortGroup{}),
		table("Address_Set", root, AddressSet{}),
		table("Meter", root, Meter{}),
		table("Meter_Band", child, MeterBand{}),
		table("Copp", root, Copp{}),
		table("Load_Balancer", root, LoadBalancer{}),
		table("Load_Balancer_Group", root, LoadBalancerGroup{}),
		table("Chassis_Template_Var", root, ChassisTemplateVar{}),
	} {
		r.all = append(r.all, t)
		r.byName[t.Name], r.byType[t.typ] = t, t
	}
	return r
})

// table reads the columns of a table off the type of its rows.
func table(name string, root bool, row any) *Table {
	t := &Table{Name: name, Root: root, typ: reflect.TypeOf(row)}
	for i := range t.typ.NumField() {
		column, refers := t.typ.Field(i).Tag.Get("ovsdb"), t.typ.Field(i).Tag.Get("nb")
		if column == "_uuid" || refers == "-" {
			continue
		}
		t.Columns = append(t.Columns, Column{Name: column, Refers: refers, Field: i})
	}
	return t
}
