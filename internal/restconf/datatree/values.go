// SPDX-License-Identifier: Apache-2.0

package datatree

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/openconfig/goyang/pkg/yang"
)

// leafValue checks the form of a leaf's value and returns the canonical one. Numbers as strings are
// accepted, as the samples of Netvirt's documents have them.
func leafValue(n *Node, value any, path string) (any, error) {
	switch n.Type.Kind {
	case yang.Yint8, yang.Yint16, yang.Yint32, yang.Yuint8, yang.Yuint16, yang.Yuint32:
		text := fmt.Sprint(value)
		if !isText(value) || !isInteger(text) {
			return nil, Fail(InvalidValue, path, fmt.Sprintf("%s is no number of type %s", show(value), n.Type.Kind))
		}
		return json.Number(text), nil
	case yang.Ybool:
		switch value {
		case true, "true":
			return true, nil
		case false, "false":
			return false, nil
		}
		return nil, Fail(InvalidValue, path, show(value)+" is neither true nor false")
	default:
		text, ok := value.(string)
		if !ok {
			return nil, Fail(InvalidValue, path, show(value)+" is no string")
		}
		return canonical(typeName(n.Type), text, path)
	}
}

// isText reports whether a value is a number or a string.
func isText(value any) bool {
	switch value.(type) {
	case json.Number, string:
		return true
	}
	return false
}

func isInteger(text string) bool {
	_, err := strconv.ParseInt(text, 10, 64)
	return err == nil && !strings.HasPrefix(text, "+")
}

// typeName is a type's name without its module.
func typeName(t *yang.YangType) string { return t.Name[strings.LastIndexByte(t.Name, ':')+1:] }

// canonical is the form in which values of the types of coelan-types are compared.
func canonical(typ, text, path string) (string, error) {
	switch typ {
	case "uuid", "mac-address":
		return strings.ToLower(text), nil
	case "ip-address":
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.Is4In6() {
			return "", Fail(InvalidValue, path, show(text)+" is no IP address")
		}
		return a.String(), nil
	case "ip-prefix":
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() || p.Addr().Is4In6() {
			return "", Fail(InvalidValue, path, show(text)+" is no prefix without bits set after its length")
		}
		return p.String(), nil
	}
	return text, nil
}

// show is a value in a message, cut if it is long.
func show(value any) string {
	text := fmt.Sprintf("%q", fmt.Sprint(value))
	if value == nil {
		text = "null"
	}
	const most = 80
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// keyText is a key's value as paths have it.
func keyText(value any) string { return fmt.Sprint(value) }

// Key is an entry's key as one text: the values of its key leaves, with slashes between them.
func Key(list *Node, entry map[string]any) string { return JoinKeys(keysOf(list, entry)) }

// JoinKeys is the same of a path's step.
func JoinKeys(keys []string) string { return strings.Join(keys, "/") }

// SplitKey is the reverse. The last one may have slashes, those before it cannot.
func SplitKey(list *Node, key string) []string { return strings.SplitN(key, "/", len(list.Keys)) }

// keysOf are the values of an entry's keys.
func keysOf(list *Node, entry map[string]any) []string {
	keys := make([]string, len(list.Keys))
	for i, k := range list.Keys {
		keys[i] = keyText(entry[k])
	}
	return keys
}
