// SPDX-License-Identifier: Apache-2.0

package nb

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func port(key, name string) Unit {
	var u Unit
	u.AddTo(Ref{"Logical_Switch", "Network/red"}, "ports", key, &LogicalSwitchPort{Name: name})
	return u
}

func elements(r *Rows, ref Ref) map[string]string { return maps.Collect(swap(r, ref)) }

func swap(r *Rows, ref Ref) func(func(string, string) bool) {
	return func(yield func(string, string) bool) {
		for column, value := range r.Elements(ref) {
			if !yield(value, column) {
				return
			}
		}
	}
}

func TestRowsChanges(t *testing.T) {
	r := NewRows()
	var red Unit
	sw := red.Add("Network/red", &LogicalSwitch{Name: "net-red"})
	a, b := Ref{"Logical_Switch_Port", "Port/a"}, Ref{"Logical_Switch_Port", "Port/b"}
	for _, step := range []struct {
		name string
		do   func()
		want []Ref
	}{
		{"a switch and two ports", func() {
			r.Set("Port/a", port("Port/a", "a"))
			r.Set("Network/red", red)
			r.Set("Port/b", port("Port/b", "b"))
		}, []Ref{sw, a, b}},
		{"nothing", func() { r.Set("Port/a", port("Port/a", "a")) }, nil},
		{"another name", func() { r.Set("Port/a", port("Port/a", "c")) }, []Ref{a}},
		{"a port is gone", func() { r.Set("Port/b", Unit{}) }, []Ref{sw, b}},
	} {
		step.do()
		got := slices.SortedFunc(maps.Keys(r.Changes()), Ref.Compare)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	if diff := cmp.Diff(map[string]string{"Port/a": "ports"}, elements(r, sw)); diff != "" {
		t.Errorf("elements of the switch (-want +got):\n%s", diff)
	}
}

// Two policies may have one address in one set: it stays until neither has.
func TestElementOfTwoUnits(t *testing.T) {
	r, set := NewRows(), Ref{"Address_Set", "Group/x"}
	var u Unit
	u.Put(set, "addresses", "10.0.0.1")
	r.Set("Peer/a", u)
	r.Set("Peer/b", u)
	r.Changes()
	r.Set("Peer/a", Unit{})
	if changes := r.Changes(); len(changes) != 0 || len(elements(r, set)) != 1 {
		t.Errorf("with one unit gone: changes %v, elements %v", changes, elements(r, set))
	}
	r.Set("Peer/b", Unit{})
	if changes := r.Changes(); len(changes) != 1 || len(elements(r, set)) != 0 {
		t.Errorf("with both gone: changes %v, elements %v", changes, elements(r, set))
	}
}

func TestProblems(t *testing.T) {
	r := NewRows()
	for name, object := range map[string]string{"Port/a": "Port b", "Port/b": "Port a", "Port/c": "Port a"} {
		var u Unit
		u.Problem(object, "Unsupported", "cannot")
		r.Set(name, u)
	}
	want := []Problem{{"Port a", "Unsupported", "cannot"}, {"Port b", "Unsupported", "cannot"}}
	if diff := cmp.Diff(want, r.Problems()); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// Every column that refers to rows names a table of ours, and libovsdb can read all tags.
func TestTables(t *testing.T) {
	if _, err := Model(); err != nil {
		t.Fatal(err)
	}
	for _, table := range Tables() {
		owned := table.Column("external_ids") != nil || table.Column("name") != nil
		if !owned || TableOf(table.New()) != table || TableNamed(table.Name) != table {
			t.Errorf("table %s: no owner, or not found by its rows", table.Name)
		}
		for _, c := range table.Columns {
			if c.Refers != "" && TableNamed(c.Refers) == nil {
				t.Errorf("%s.%s refers to %s, which is not known", table.Name, c.Name, c.Refers)
			}
		}
	}
}
