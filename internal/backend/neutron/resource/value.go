// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
)

// Resolve is a value with ids in place of Refs. A Ref that has none stays.
func Resolve(value any, id func(Ref) (string, bool)) any {
	switch v := value.(type) {
	case Ref:
		if found, ok := id(v); ok {
			return found
		}
	case Attributes:
		out := make(map[string]any, len(v))
		for name, item := range v {
			out[name] = Resolve(item, id)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = Resolve(item, id)
		}
		return out
	}
	return value
}

// Unresolved is the first Ref in a value; false if there is none.
func Unresolved(value any) (first Ref, found bool) {
	switch v := value.(type) {
	case Ref:
		return v, true
	case Attributes:
		return Unresolved(map[string]any(v))
	case map[string]any:
		for _, item := range v {
			if first, found = Unresolved(item); found {
				return first, true
			}
		}
	case []any:
		for _, item := range v {
			if first, found = Unresolved(item); found {
				return first, true
			}
		}
	}
	return Ref{}, false
}

// has reports whether a value from the API is what is wanted: objects may have more members than
// are asked for, and lists have their elements in any order unless that matters.
func has(have, want any, anyOrder bool) bool {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return false
		}
		for name, value := range w {
			if !has(h[name], value, anyOrder) {
				return false
			}
		}
		return true
	case []any:
		return hasList(list(have), w, anyOrder)
	}
	return canonical(have) == canonical(want)
}

func hasList(have, want []any, anyOrder bool) bool {
	if len(have) != len(want) {
		return false
	}
	left := slices.Clone(have)
	for i, w := range want {
		at := 0
		if anyOrder {
			at = slices.IndexFunc(left, func(h any) bool { return has(h, w, anyOrder) })
		} else if !has(have[i], w, anyOrder) {
			return false
		}
		if at < 0 {
			return false
		}
		left = slices.Delete(left, at, at+1)
	}
	return true
}

func list(value any) []any {
	l, _ := value.([]any)
	return l
}

// canonical is a value as JSON, in which numbers of all types are alike, and so are texts of one
// address.
func canonical(value any) string {
	text, err := json.Marshal(oneText(value))
	if err != nil {
		return err.Error() // Attributes are of JSON's types alone
	}
	return string(text)
}

// oneText is a value with addresses and prefixes as Go writes them. Neutron writes those of ::/96
// with four numbers at their end, such as ::10.0.0.1/128.
func oneText(value any) any {
	switch v := value.(type) {
	case string:
		if !strings.Contains(v, ":") { // those of IPv4 have one text
			return v
		}
		if a, err := netip.ParseAddr(v); err == nil {
			return a.String()
		}
		if b, err := netip.ParsePrefix(v); err == nil {
			return b.String()
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			out[name] = oneText(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = oneText(item)
		}
		return out
	}
	return value
}

// text is a value of the API that has to be a string; empty if it is none: what Neutron answers is
// not trusted to be what it should be.
func text(value any) string {
	s, _ := value.(string)
	return s
}
