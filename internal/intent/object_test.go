// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"net/netip"
	"reflect"
	"testing"
)

// A field that equal forgets is an update that is silently lost; one that clone forgets lets a
// caller write into a State.
func TestObjectsCompareAndCopyEveryField(t *testing.T) {
	for _, k := range kinds {
		k.(interface{ check(*testing.T) }).check(t)
	}
}

func (k kindOf[T]) check(t *testing.T) {
	t.Run(reflect.TypeFor[T]().Name(), checkObject[T])
}

// Each table, list and list of differences of a State is a kind's.
func TestKindsAreComplete(t *testing.T) {
	for _, of := range []reflect.Type{reflect.TypeFor[tables](), reflect.TypeFor[Objects](), reflect.TypeFor[Delta]()} {
		if parts := of.NumField() - 1; parts != len(kinds) { // Local is in each of them
			t.Errorf("%s has %d parts, and there are %d kinds", of.Name(), parts, len(kinds))
		}
	}
	places, all := map[any]bool{}, parts{noTables, noObjects, noDelta}
	for _, k := range kinds {
		for _, place := range k.(interface{ places(parts) []any }).places(all) {
			if places[place] {
				t.Errorf("%T: another kind has the same part", k)
			}
			places[place] = true
		}
	}
}

func (k kindOf[T]) places(all parts) []any {
	p := k.in(all)
	return []any{p.table, p.list, p.delta}
}

func checkObject[T object[T]](t *testing.T) {
	full := func() *T {
		v := new(T)
		fill(t, reflect.ValueOf(v).Elem())
		return v
	}
	if !(*full()).equal(*full()) {
		t.Error("an object does not equal itself")
	}
	eachChange(t, full, func(path string, change func(*T)) {
		v := full()
		stored := (*v).clone()
		change(v)
		if (*v).equal(*full()) || (*full()).equal(*v) {
			t.Errorf("equal ignores %s", path)
		}
		if !stored.equal(*full()) {
			t.Errorf("clone shares %s with the original", path)
		}
	})
}

// fill sets all that v consists of to something that is not zero; lists get one element.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch {
	case v.Type() == reflect.TypeFor[netip.Addr]():
		v.Set(reflect.ValueOf(netip.MustParseAddr("192.0.2.1")))
	case v.Type() == reflect.TypeFor[netip.Prefix]():
		v.Set(reflect.ValueOf(netip.MustParsePrefix("10.0.0.0/8")))
	case v.Type() == reflect.TypeFor[Topology]():
		v.Set(reflect.ValueOf(NewTopology("n1", []string{"a"}, []string{"n1"})))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case v.Kind() == reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	default:
		alter(t, v)
	}
}

// alter changes a value that has no parts.
func alter(t *testing.T, v reflect.Value) {
	t.Helper()
	switch {
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	case v.CanUint():
		v.SetUint(v.Uint() + 1)
	case v.CanInt():
		v.SetInt(v.Int() + 1)
	default:
		t.Fatalf("a field is a %s, of which this test knows nothing", v.Type())
	}
}

// eachChange calls visit with each way to change one field of what full returns, elements
// of lists among them.
func eachChange[T any](t *testing.T, full func() *T, visit func(path string, change func(*T))) {
	t.Helper()
	var walk func(path string, at func(*T) reflect.Value)
	walk = func(path string, at func(*T) reflect.Value) {
		set := func(what string, change func(reflect.Value)) {
			visit(path+what, func(v *T) { change(at(v)) })
		}
		switch v := at(full()); {
		case v.Type() == reflect.TypeFor[netip.Addr]():
			set("", func(v reflect.Value) { v.Set(reflect.ValueOf(netip.MustParseAddr("2001:db8::1"))) })
		case v.Type() == reflect.TypeFor[netip.Prefix]():
			set("", func(v reflect.Value) { v.Set(reflect.ValueOf(netip.MustParsePrefix("10.0.0.0/9"))) })
		case v.Type() == reflect.TypeFor[Topology]():
			set(" node", func(v reflect.Value) { v.Set(reflect.ValueOf(NewTopology("n2", []string{"a"}, []string{"n1"}))) })
			set(" zones", func(v reflect.Value) { v.Set(reflect.ValueOf(NewTopology("n1", nil, []string{"n1"}))) })
			set(" nodes", func(v reflect.Value) { v.Set(reflect.ValueOf(NewTopology("n1", []string{"a"}, nil))) })
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				walk(path+"."+v.Type().Field(i).Name, func(s *T) reflect.Value { return at(s).Field(i) })
			}
		case v.Kind() == reflect.Slice:
			set(" cut", func(v reflect.Value) { v.SetLen(0) })
			walk(path+"[0]", func(s *T) reflect.Value { return at(s).Index(0) })
		case v.Kind() == reflect.Array:
			walk(path+"[0]", func(s *T) reflect.Value { return at(s).Index(0) })
		default:
			set("", func(v reflect.Value) { alter(t, v) })
		}
	}
	walk("", func(v *T) reflect.Value { return reflect.ValueOf(v).Elem() })
}
