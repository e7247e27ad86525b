// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/datatree"
)

// The nodes of the module coelan are the fields of coelan.io under other names: remoteIPPrefix is
// remote-ip-prefix, and the list or leaf-list of addresses is called address. So one pair of
// functions translates all of them: showFields makes nodes of a Go value, setFields the reverse.
// TestEveryFieldHasANode compares both sides.

// enums are the values of the API's enumerations, by their Go types. In the module they are written
// as names are: PodCIDR is pod-cidr.
var enums = byType(
	enumOf(v1alpha1.Overlay, v1alpha1.VLAN, v1alpha1.Flat),
	enumOf(v1alpha1.Primary, v1alpha1.Secondary),
	enumOf(v1alpha1.Blocks, v1alpha1.PodCIDR, v1alpha1.DHCPServers),
	enumOf(v1alpha1.AnyAddress, v1alpha1.RangeAddresses, v1alpha1.NoAddress),
	enumOf(v1alpha1.AnyMAC, v1alpha1.LocalMACs, v1alpha1.NoMAC),
	enumOf(v1alpha1.Stateful, v1alpha1.Stateless, v1alpha1.NoIPv6),
	enumOf(v1alpha1.DistributedSNAT, v1alpha1.CentralizedSNAT, v1alpha1.NoSNAT),
	enumOf(v1alpha1.IPv4, v1alpha1.IPv6),
	enumOf(v1alpha1.EtherIPv4, v1alpha1.EtherIPv6),
	enumOf(v1alpha1.RuleIngress, v1alpha1.RuleEgress),
	enumOf(v1alpha1.HealthCheckICMP, v1alpha1.HealthCheckBFD),
	enumOf(v1alpha1.EncapsulationVXLAN, v1alpha1.EncapsulationGeneve, v1alpha1.EncapsulationNone),
	enumOf(v1alpha1.PortPending, v1alpha1.PortReady, v1alpha1.PortBound, v1alpha1.PortFailed),
	enumOf(metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown),
	enumOf(metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn,
		metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist),
)

type enum struct {
	of     reflect.Type
	values []string
}

func enumOf[T ~string](values ...T) enum {
	e := enum{of: reflect.TypeFor[T]()}
	for _, v := range values {
		e.values = append(e.values, string(v))
	}
	return e
}

func byType(list ...enum) map[reflect.Type][]string {
	all := map[reflect.Type][]string{}
	for _, e := range list {
		all[e.of] = e.values
	}
	return all
}

// nodeName is a name of the API as YANG writes it.
func nodeName(name string) string {
	text := []rune(strings.ReplaceAll(name, "IPv", "Ipv"))
	var b strings.Builder
	for i, r := range text {
		starts := unicode.IsUpper(r) && i > 0 &&
			(unicode.IsLower(text[i-1]) || i+1 < len(text) && unicode.IsLower(text[i+1]))
		if starts {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// plural is the name of many.
func plural(name string) string {
	switch {
	case strings.HasSuffix(name, "s"), strings.HasSuffix(name, "ch"):
		return name + "es"
	case strings.HasSuffix(name, "y"):
		return strings.TrimSuffix(name, "y") + "ies"
	}
	return name + "s"
}

// fieldsOf has the fields of a struct type by the names of their nodes.
var fieldsOf sync.Map // of reflect.Type to map[string]int

// field is the field that a node stands for; false if there is none.
func field(v reflect.Value, n *datatree.Node) (reflect.Value, bool) {
	known, ok := fieldsOf.Load(v.Type())
	if !ok {
		byName := map[string]int{}
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			byName[nodeName(name)] = i
		}
		known, _ = fieldsOf.LoadOrStore(v.Type(), byName)
	}
	byName := known.(map[string]int)
	i, ok := byName[n.Name]
	if many := n.Kind == datatree.List || n.Kind == datatree.LeafList; !ok && many {
		i, ok = byName[plural(n.Name)]
	}
	if !ok {
		return reflect.Value{}, false
	}
	return v.Field(i), true
}

// showFields adds the nodes that a struct's fields have.
func showFields(n *datatree.Node, v reflect.Value, to map[string]any) {
	for name, c := range n.Children {
		f, ok := field(v, c)
		if !ok {
			continue
		}
		if shown := showValue(c, f); shown != nil {
			to[name] = shown
		}
	}
}

// showValue is a field as a node's value; nil: the node is not there.
func showValue(n *datatree.Node, v reflect.Value) any {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		if n.Kind == datatree.Leaf {
			return showLeaf(v.Elem())
		}
		v = v.Elem()
	}
	switch n.Kind {
	case datatree.Leaf:
		if v.IsZero() {
			return nil
		}
		return showLeaf(v)
	case datatree.LeafList:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = showLeaf(v.Index(i))
		}
		return orAbsent(list, len(list))
	case datatree.List:
		list := showList(n, v)
		return orAbsent(list, len(list))
	default:
		if v.Kind() == reflect.Map && v.IsNil() {
			return nil
		}
		object := map[string]any{}
		if v.Kind() == reflect.Map {
			list := onlyChild(n)
			if entries := showList(list, v); len(entries) > 0 {
				object[list.Name] = entries
			}
		} else {
			showFields(n, v, object)
		}
		if len(object) == 0 && !n.Presence {
			return nil
		}
		return object
	}
}

// orAbsent is nothing for an empty list.
func orAbsent(list []any, length int) any {
	if length == 0 {
		return nil
	}
	return list
}

// onlyChild is the list in a container that stands for a map.
func onlyChild(n *datatree.Node) *datatree.Node {
	for _, c := range n.Children {
		return c
	}
	return nil
}

// showList is a slice or a map as the entries of a list.
func showList(n *datatree.Node, v reflect.Value) []any {
	var list []any
	if v.Kind() == reflect.Map {
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			entry := map[string]any{n.Keys[0]: key.String()}
			if value := v.MapIndex(key); value.Kind() == reflect.Struct {
				showFields(n, value, entry)
			} else if value.String() != "" {
				entry[otherLeaf(n).Name] = value.String()
			}
			list = append(list, entry)
		}
		return list
	}
	for i := range v.Len() {
		entry := map[string]any{}
		if n.Positioned() {
			entry[n.Keys[0]] = json.Number(strconv.Itoa(i))
		}
		showFields(n, v.Index(i), entry)
		list = append(list, entry)
	}
	return list
}

// otherLeaf is that of a list of two leaves which is not the key.
func otherLeaf(n *datatree.Node) *datatree.Node {
	for name, c := range n.Children {
		if name != n.Keys[0] {
			return c
		}
	}
	return nil
}

// showLeaf is a value as RFC 7951 writes it.
func showLeaf(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Bool:
		return v.Bool()
	case reflect.Int32:
		return json.Number(strconv.FormatInt(v.Int(), 10))
	case reflect.Int64:
		return strconv.FormatInt(v.Int(), 10)
	case reflect.Struct:
		return v.Interface().(metav1.Time).UTC().Format(time.RFC3339)
	}
	if enums[v.Type()] != nil {
		return nodeName(v.String())
	}
	return v.String()
}

// setFields has a struct's fields be as the nodes say. Those of nodes that are not there become
// empty, those of state stay.
func setFields(n *datatree.Node, entry map[string]any, v reflect.Value) error {
	for name, c := range n.Children {
		f, ok := field(v, c)
		if !ok || c.State {
			continue
		}
		value, there := entry[name]
		if !there {
			f.SetZero()
			continue
		}
		if err := setValue(c, value, f); err != nil {
			return below(name, err)
		}
	}
	return nil
}

// below is an error of a node in another one.
func below(name string, err error) error {
	var e *datatree.Error
	if !errors.As(err, &e) {
		return err
	}
	return datatree.Fail(e.Tag, strings.TrimSuffix(name+"/"+e.Path, "/"), e.Message)
}

func setValue(n *datatree.Node, value any, f reflect.Value) error {
	switch n.Kind {
	case datatree.Leaf:
		return setLeaf(value, f)
	case datatree.LeafList:
		values := value.([]any)
		list := reflect.MakeSlice(f.Type(), len(values), len(values))
		for i, one := range values {
			if err := setLeaf(one, list.Index(i)); err != nil {
				return err
			}
		}
		if len(values) == 0 {
			list = reflect.Zero(f.Type())
		}
		f.Set(list)
		return nil
	case datatree.List:
		return setList(n, value.([]any), f)
	default:
		return setContainer(n, value.(map[string]any), f)
	}
}

func setContainer(n *datatree.Node, object map[string]any, f reflect.Value) error {
	switch {
	case f.Kind() == reflect.Map:
		list := onlyChild(n)
		entries, _ := object[list.Name].([]any)
		if err := setList(list, entries, f); err != nil {
			return below(list.Name, err)
		}
		if f.IsNil() {
			f.Set(reflect.MakeMap(f.Type()))
		}
		return nil
	case f.Kind() == reflect.Pointer:
		to := reflect.New(f.Type().Elem())
		if err := setFields(n, object, to.Elem()); err != nil {
			return err
		}
		if to.Elem().IsZero() && !n.Presence {
			to = reflect.Zero(f.Type())
		}
		f.Set(to)
		return nil
	}
	return setFields(n, object, f)
}

func setList(n *datatree.Node, entries []any, f reflect.Value) error {
	if len(entries) == 0 {
		f.SetZero()
		return nil
	}
	if f.Kind() == reflect.Map {
		to := reflect.MakeMap(f.Type())
		for _, e := range entries {
			entry, value := e.(map[string]any), reflect.New(f.Type().Elem()).Elem()
			if value.Kind() == reflect.Struct {
				if err := setFields(n, entry, value); err != nil {
					return err
				}
			} else if text, there := entry[otherLeaf(n).Name].(string); there {
				value.SetString(text)
			}
			to.SetMapIndex(reflect.ValueOf(entry[n.Keys[0]]), value)
		}
		f.Set(to)
		return nil
	}
	// An entry of a list with positions is where its position says.
	if n.Positioned() {
		entries = slices.Clone(entries)
		slices.SortStableFunc(entries, func(a, b any) int {
			return int(position(n, a) - position(n, b))
		})
	}
	list := reflect.MakeSlice(f.Type(), len(entries), len(entries))
	for i, e := range entries {
		if err := setFields(n, e.(map[string]any), list.Index(i)); err != nil {
			return err
		}
	}
	f.Set(list)
	return nil
}

func position(n *datatree.Node, entry any) int64 {
	number, _ := entry.(map[string]any)[n.Keys[0]].(json.Number)
	at, _ := number.Int64() // the model has checked it
	return at
}

// setLeaf sets a value that the model has checked. A text that differs from the one before in the
// case of letters alone, such as that of a MAC, is the same: it stays as its author wrote it.
func setLeaf(value any, f reflect.Value) error {
	if f.Kind() == reflect.Pointer {
		to := reflect.New(f.Type().Elem())
		if err := setLeaf(value, to.Elem()); err != nil {
			return err
		}
		f.Set(to)
		return nil
	}
	switch value := value.(type) {
	case bool:
		f.SetBool(value)
	case json.Number:
		number, err := strconv.ParseInt(value.String(), 10, 32)
		if err != nil {
			return invalid("", fmt.Sprintf("%s is too large", value))
		}
		f.SetInt(number)
	case string:
		if values := enums[f.Type()]; values != nil {
			i := slices.IndexFunc(values, func(v string) bool { return nodeName(v) == value })
			if i < 0 {
				return invalid("", fmt.Sprintf("%q is not a value that the API has", value))
			}
			value = values[i]
		}
		f.SetString(value)
	}
	return nil
}
