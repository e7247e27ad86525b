// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/trigger"
)

// schema has the columns of the tables that tests use, as OVN has them.
func schema(t testing.TB) ovsdb.DatabaseSchema {
	t.Helper()
	const text = `{"key":"string","value":"string","min":0,"max":"unlimited"}`
	const rows = `{"key":"uuid","min":0,"max":"unlimited"}`
	const some = `{"key":"string","min":0,"max":"unlimited"}`
	var s ovsdb.DatabaseSchema
	column := func(typ string) *ovsdb.ColumnSchema {
		var c ovsdb.ColumnSchema
		if err := c.UnmarshalJSON([]byte(`{"type":` + typ + `}`)); err != nil {
			t.Fatal(err)
		}
		return &c
	}
	s.Tables = map[string]ovsdb.TableSchema{
		"Logical_Switch": {Columns: map[string]*ovsdb.ColumnSchema{
			"name": column(`"string"`), "ports": column(rows), "external_ids": column(text), "other_config": column(text),
		}},
		"Logical_Switch_Port": {Columns: map[string]*ovsdb.ColumnSchema{
			"name": column(`"string"`), "addresses": column(some), "external_ids": column(text), "options": column(text),
		}},
	}
	return s
}

const (
	switchUUID = "00000000-0000-0000-0000-000000000001"
	portUUID   = "00000000-0000-0000-0000-000000000002"
	guestUUID  = "00000000-0000-0000-0000-000000000003"
)

// database is a view of one with a switch, a port of ours and one of another system.
func database() *view {
	v := newView("", trigger.New())
	v.set("Logical_Switch", &nb.LogicalSwitch{UUID: switchUUID, Name: "net-red", Ports: []string{portUUID, guestUUID},
		ExternalIDs: map[string]string{"coelan.io/owner": "coelan/Network/red", "note": "x"}})
	v.set("Logical_Switch_Port", &nb.LogicalSwitchPort{UUID: portUUID, Name: "a/b", Addresses: []string{"10.0.0.1"},
		ExternalIDs: map[string]string{"coelan.io/owner": "coelan/Port/a/b"}, Options: map[string]string{"hostname": "b"}})
	v.set("Logical_Switch_Port", &nb.LogicalSwitchPort{UUID: guestUUID, Name: "vm"})
	return v
}

// operations is what is to be done about some rows of the database.
func operations(t *testing.T, want func(*nb.Unit), refs ...nb.Ref) []string {
	t.Helper()
	v := database()
	var u nb.Unit
	want(&u)
	rows := nb.NewRows()
	rows.Set("x", u)
	p := newPlan(v, schema(t), rows)
	for _, ref := range refs {
		p.row(ref)
	}
	var list []string
	for _, op := range p.operations() {
		data, err := op.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, string(data))
	}
	for ref := range p.refused {
		list = append(list, "refused "+ref.String())
	}
	slices.Sort(list)
	return list
}

func TestOperations(t *testing.T) {
	sw, port := nb.Ref{Table: "Logical_Switch", Key: "Network/red"}, nb.Ref{Table: "Logical_Switch_Port", Key: "Port/a/b"}
	red := func(u *nb.Unit) { u.Add(sw.Key, &nb.LogicalSwitch{Name: "net-red"}) }
	ab := func(u *nb.Unit) {
		u.AddTo(sw, "ports", port.Key, &nb.LogicalSwitchPort{
			Name: "a/b", Addresses: []string{"10.0.0.1"}, Options: map[string]string{"hostname": "b"},
		})
	}
	where := func(uuid string) string { return `"where":[["_uuid","==",["uuid","` + uuid + `"]]]` }
	for _, tc := range []struct {
		name string
		want func(*nb.Unit)
		refs []nb.Ref
		ops  []string
	}{
		{"all is right", func(u *nb.Unit) { red(u); ab(u) }, []nb.Ref{sw, port}, nil},
		{"a port less: the other's stays", red, []nb.Ref{port, sw}, []string{
			`{"op":"mutate","table":"Logical_Switch","mutations":[["ports","delete",["uuid","` + portUUID + `"]]],` + where(switchUUID) + `}`,
		}},
		{"a port more", func(u *nb.Unit) {
			red(u)
			ab(u)
			u.AddTo(sw, "ports", "Port/a/c", &nb.LogicalSwitchPort{Name: "a/c"})
		}, []nb.Ref{{Table: "Logical_Switch_Port", Key: "Port/a/c"}, sw}, []string{
			`{"op":"insert","table":"Logical_Switch_Port","row":{"external_ids":["map",[["coelan.io/owner","coelan/Port/a/c"]]],"name":"a/c"},"uuid-name":"row1"}`,
			`{"op":"mutate","table":"Logical_Switch","mutations":[["ports","insert",["named-uuid","row1"]]],` + where(switchUUID) + `}`,
			`{"op":"wait","table":"Logical_Switch","rows":[{"_uuid":["uuid","` + switchUUID + `"]}],"columns":["_uuid"],` +
				`"timeout":0,` + where(switchUUID) + `,"until":"=="}`,
		}},
		{"another address", func(u *nb.Unit) {
			red(u)
			u.AddTo(sw, "ports", port.Key, &nb.LogicalSwitchPort{Name: "a/b", Addresses: []string{"10.0.0.2"}})
		}, []nb.Ref{port}, []string{
			`{"op":"mutate","table":"Logical_Switch_Port","mutations":[["options","delete",["map",[["hostname","b"]]]],` +
				`["addresses","insert","10.0.0.2"],["addresses","delete","10.0.0.1"]],` + where(portUUID) + `}`,
		}},
		{"another name", func(u *nb.Unit) { u.Add(sw.Key, &nb.LogicalSwitch{Name: "net-blue"}) }, []nb.Ref{sw}, []string{
			`{"op":"mutate","table":"Logical_Switch","mutations":[["ports","delete",["uuid","` + portUUID + `"]]],` + where(switchUUID) + `}`,
			`{"op":"update","table":"Logical_Switch","row":{"name":"net-blue"},` + where(switchUUID) + `}`,
		}},
		{"nothing is wanted", func(*nb.Unit) {}, []nb.Ref{sw, port}, []string{
			`{"op":"delete","table":"Logical_Switch",` + where(switchUUID) + `}`,
		}},
		{"a name that another system has", func(u *nb.Unit) {
			red(u)
			ab(u)
			u.AddTo(sw, "ports", "Port/x", &nb.LogicalSwitchPort{Name: "vm"})
		}, []nb.Ref{{Table: "Logical_Switch_Port", Key: "Port/x"}, sw}, []string{"refused Logical_Switch_Port Port/x"}},
		{"a port of a switch that is not wanted", ab, []nb.Ref{{Table: "Logical_Switch_Port", Key: "Port/none"}}, nil},
	} {
		got := operations(t, tc.want, tc.refs...)
		if diff := cmp.Diff(tc.ops, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// A row that went before the answer to the transaction that made it is not taken for one of ours.
func TestInsertedAndGone(t *testing.T) {
	v, ref := database(), nb.Ref{Table: "Logical_Switch", Key: "Network/blue"}
	const uuid = "00000000-0000-0000-0000-000000000004"
	row := &nb.LogicalSwitch{UUID: uuid, Name: "net-blue", ExternalIDs: map[string]string{"coelan.io/owner": "coelan/Network/blue"}}
	v.expect()
	v.OnAdd("Logical_Switch", row)
	v.OnDelete("Logical_Switch", row)
	v.takeDirty()
	v.inserted(uuid, ref)
	if got := v.uuid(ref); got != "" || v.takeDirty()[ref] == nil {
		t.Errorf("it counts as row %q, or is not compared again", got)
	}
	v.expect()
	v.inserted(uuid, ref)
	v.OnAdd("Logical_Switch", row)
	if got := v.uuid(ref); got != uuid || len(v.owned[ref]) != 1 {
		t.Errorf("a row that is there counts as %q", got)
	}
}

// What comes and goes in a set is compared by itself, and what others have there stays.
func TestElements(t *testing.T) {
	v, rows := database(), nb.NewRows()
	sw, port := nb.Ref{Table: "Logical_Switch", Key: "Network/red"}, nb.Ref{Table: "Logical_Switch_Port", Key: "Port/a/b"}
	var red, ab nb.Unit
	red.Add(sw.Key, &nb.LogicalSwitch{Name: "net-red"})
	ab.AddTo(sw, "ports", port.Key, &nb.LogicalSwitchPort{Name: "a/b"})
	rows.Set("red", red)
	parts := func() int {
		p := newPlan(v, schema(t), rows)
		p.parts(sw, map[nb.ColumnValue]bool{{Column: "ports", Value: port.Key}: true})
		return len(p.operations())
	}
	rows.Set("ab", ab)
	if n := parts(); n != 0 {
		t.Errorf("%d operations for an element that is there", n)
	}
	rows.Set("ab", nb.Unit{})
	if n := parts(); n != 1 {
		t.Errorf("%d operations for an element too much", n)
	}
	rows.Set("ab", ab)
	v.takeDirty()
	v.set("Logical_Switch", &nb.LogicalSwitch{UUID: switchUUID, Name: "net-red", Ports: []string{guestUUID},
		ExternalIDs: map[string]string{"coelan.io/owner": "coelan/Network/red"}})
	dirty := v.takeDirty()[sw]
	if dirty == nil || !dirty.Elements[nb.ColumnValue{Column: "ports", Value: port.Key}] {
		t.Errorf("another system took a port away, and what differs is %v", dirty)
	}
	if n := parts(); n != 1 {
		t.Errorf("%d operations for an element that lacks", n)
	}
}
