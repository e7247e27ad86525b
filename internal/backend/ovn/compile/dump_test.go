// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"coelan.io/coelan/internal/backend/ovn/nb"
)

// dump is all rows and problems as text.
func dump(rows *nb.Rows) string {
	var b strings.Builder
	b.WriteString(rowsOf(rows))
	for _, p := range rows.Problems() {
		fmt.Fprintf(&b, "problem of %s: %s: %s\n", p.Object, p.Reason, p.Message)
	}
	return b.String()
}

// rowsOf is all rows as text: one paragraph each, with the columns that have a value.
func rowsOf(rows *nb.Rows) string {
	var b strings.Builder
	for _, ref := range slices.SortedFunc(rows.Refs(), nb.Ref.Compare) {
		data, _ := rows.Get(ref)
		columns := map[string][]string{}
		for _, c := range nb.TableOf(data).Columns {
			columns[c.Name] = values(reflect.ValueOf(data).Elem().Field(c.Field))
		}
		for column, value := range rows.Elements(ref) {
			columns[column] = append(columns[column], "+ "+value)
		}
		fmt.Fprintln(&b, ref)
		for _, column := range slices.Sorted(maps.Keys(columns)) {
			slices.Sort(columns[column])
			for _, v := range columns[column] {
				fmt.Fprintf(&b, "    %s: %s\n", column, v)
			}
		}
	}
	return b.String()
}

func values(v reflect.Value) (list []string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			list = append(list, fmt.Sprint(v.Elem().Interface()))
		}
	case reflect.Slice:
		for i := range v.Len() {
			list = append(list, fmt.Sprint(v.Index(i).Interface()))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			list = append(list, fmt.Sprintf("%v=%v", key, v.MapIndex(key)))
		}
	default:
		if !v.IsZero() {
			list = append(list, fmt.Sprint(v.Interface()))
		}
	}
	return list
}

// dangling are the references of rows to rows that are not there, and rows that nothing holds.
func dangling(rows *nb.Rows) (problems []string) {
	held := map[nb.Ref]bool{}
	refer := func(from nb.Ref, column, key string) {
		table := nb.TableNamed(from.Table).Column(column).Refers
		to := nb.Ref{Table: table, Key: key}
		held[to] = true
		if _, ok := rows.Get(to); !ok && table != "" {
			problems = append(problems, fmt.Sprintf("%s: %s refers to %s, which is not there", from, column, to))
		}
	}
	for ref := range rows.Refs() {
		data, _ := rows.Get(ref)
		for _, c := range nb.TableOf(data).Columns {
			if c.Refers != "" {
				for _, key := range values(reflect.ValueOf(data).Elem().Field(c.Field)) {
					refer(ref, c.Name, key)
				}
			}
		}
		for column, value := range rows.Elements(ref) {
			refer(ref, column, value)
		}
	}
	for ref := range rows.Refs() {
		if !nb.TableNamed(ref.Table).Root && !held[ref] {
			problems = append(problems, fmt.Sprintf("nothing refers to %s, so OVN would not keep it", ref))
		}
	}
	slices.Sort(problems)
	return problems
}
