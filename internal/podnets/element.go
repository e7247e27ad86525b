// SPDX-License-Identifier: Apache-2.0

package podnets

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/containernetworking/cni/pkg/utils"

	"coelan.io/coelan/internal/intent"
)

// element is one of the JSON objects of an annotation. Its fields are read one by one, so that an
// error can name the one that is wrong. The first error stays.
type element struct {
	annotation string
	position   int
	fields     map[string]json.RawMessage
	read       map[string]bool
	err        error
}

// elements splits a JSON list of objects.
func elements(annotation string, data []byte) ([]*element, error) {
	fail := func(position int, value []byte, err error) error {
		return &Error{Annotation: annotation, Position: position, Value: quote(string(value)),
			Problem: jsonProblem(err)}
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fail(0, data, err)
	}
	list := make([]*element, len(raw))
	for i, r := range raw {
		list[i] = &element{annotation: annotation, position: i + 1, read: map[string]bool{}}
		if err := json.Unmarshal(r, &list[i].fields); err != nil || list[i].fields == nil {
			return nil, fail(i+1, r, err)
		}
	}
	return list, nil
}

func jsonProblem(err error) string {
	var syntax *json.SyntaxError
	var other *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf("malformed JSON at byte %d: %v", syntax.Offset, err)
	case errors.As(err, &other):
		return fmt.Sprintf("a JSON %s where %s should be", other.Value, kindOf(other.Type.Kind().String()))
	case err != nil:
		return err.Error()
	default:
		return "null where an object should be"
	}
}

// kindOf names a kind of Go's types as JSON does.
func kindOf(kind string) string {
	switch kind {
	case "map", "struct":
		return "an object"
	case "slice":
		return "a list"
	default:
		return "a " + kind
	}
}

func (e *element) fail(field, value, problem string) {
	if e.err == nil {
		e.err = &Error{e.annotation, e.position, field, value, problem}
	}
}

// raw is the value of a field; nil if it is not there or null.
func (e *element) raw(field string) json.RawMessage {
	e.read[field] = true
	v := e.fields[field]
	if bytes.Equal(bytes.TrimSpace(v), []byte("null")) {
		return nil
	}
	return v
}

// text reads a string; "" if it is not there.
func (e *element) text(field string) string {
	v := e.raw(field)
	if v == nil {
		return ""
	}
	var s string
	if err := json.Unmarshal(v, &s); err != nil {
		e.fail(field, quote(string(v)), jsonProblem(err))
	}
	return strings.TrimSpace(s)
}

// texts reads a list of strings, or one string that is such a list with commas.
func (e *element) texts(field string, orOne bool) (list []string, given bool) {
	v := e.raw(field)
	if v == nil {
		return nil, false
	}
	if orOne && v[0] == '"' {
		for s := range strings.SplitSeq(e.text(field), ",") {
			if s = strings.TrimSpace(s); s != "" {
				list = append(list, s)
			}
		}
		return list, true
	}
	if err := json.Unmarshal(v, &list); err != nil {
		e.fail(field, quote(string(v)), jsonProblem(err))
	}
	return list, true
}

// addresses reads addresses, with a prefix length or without: that of the Network's subnet counts.
func (e *element) addresses(field string, orOne bool) (list []netip.Addr, given bool) {
	texts, given := e.texts(field, orOne)
	for i, s := range texts {
		a, err := address(s)
		if err != nil {
			e.fail(fmt.Sprintf("%s[%d]", field, i), quote(s), "is not an IP address")
			return nil, given
		}
		list = append(list, a)
	}
	return list, given
}

func address(s string) (netip.Addr, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Addr().Unmap(), nil
	}
	a, err := netip.ParseAddr(s)
	if err == nil && a.Zone() != "" {
		err = errors.New("has a zone")
	}
	return a.Unmap(), err
}

func (e *element) mac(field string) *intent.MAC {
	s := e.text(field)
	if s == "" {
		return nil
	}
	mac, err := intent.ParseMAC(s)
	if err != nil {
		e.fail(field, quote(s), "is not a MAC address of six bytes")
	}
	return &mac
}

// truth reads a boolean, which may be written as a string.
func (e *element) truth(field string) bool {
	v := e.raw(field)
	switch strings.ToLower(strings.Trim(string(v), `" `)) {
	case "true":
		return true
	case "false", "":
		return false
	}
	e.fail(field, quote(string(v)), `is neither "true" nor "false"`)
	return false
}

func (e *element) interfaceName(field string) string {
	name := e.text(field)
	e.checkInterface(field, name)
	return name
}

func (e *element) checkInterface(field, name string) {
	if name == "" {
		return
	}
	if err := utils.ValidateInterfaceName(name); err != nil {
		e.fail(field, quote(name), "is not an interface's name: at most 15 bytes, no slash, colon or space")
	}
}

// objectName is what the names of API objects are made of.
var objectName = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`)

func (e *element) checkName(field, name string) {
	if len(name) > 253 || !objectName.MatchString(name) {
		e.fail(field, quote(name), "is not an object's name: lower case letters, digits, hyphens and dots")
	}
}
