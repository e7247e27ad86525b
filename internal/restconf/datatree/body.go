// SPDX-License-Identifier: Apache-2.0

package datatree

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of bodies. Models nest six levels.
const (
	maxDepth = 32
	// MaxBody is the most bytes that a body has.
	MaxBody = 4 << 20
)

// Decode reads one JSON value (RFC 8259): UTF-8, bounded in depth, without repeated members.
func Decode(body []byte) (any, error) {
	if len(body) > MaxBody {
		return nil, Fail(TooBig, "", fmt.Sprintf("the body has more than %d bytes", MaxBody))
	}
	if !utf8.Valid(body) {
		return nil, Fail(MalformedMessage, "", "the body is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	value, err := decodeValue(d, 0)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			return nil, Fail(MalformedMessage, "", "something follows the JSON value of the body")
		}
		return value, nil
	}
	var known *Error
	if errors.As(err, &known) {
		return nil, err
	}
	return nil, Fail(MalformedMessage, "", fmt.Sprintf("the body is no JSON, at byte %d: %v", d.InputOffset(), err))
}

func decodeValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, Fail(TooBig, "", fmt.Sprintf("the body nests deeper than %d levels", maxDepth))
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		return decodeObject(d, depth)
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	}
	return token, nil
}

func decodeObject(d *json.Decoder, depth int) (any, error) {
	object := map[string]any{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, ok := name.(string)
		if !ok {
			return nil, fmt.Errorf("a member's name is no string")
		}
		if _, twice := object[key]; twice {
			return nil, Fail(MalformedMessage, "", "the member "+show(key)+" is there twice")
		}
		if object[key], err = decodeValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return object, err
}

// Check compares a value with the schema of its node and returns it with member names without
// modules and canonical values. Path is that of the node, for messages.
func Check(n *Node, value any, path string) (any, error) {
	switch n.Kind {
	case Container:
		return checkObject(n, value, path)
	case List:
		return checkList(n, value, path)
	case LeafList:
		return checkLeafList(n, value, path)
	}
	return leafValue(n, value, path)
}

func checkObject(n *Node, value any, path string) (map[string]any, error) {
	object, ok := value.(map[string]any)
	if !ok {
		return nil, Fail(InvalidValue, path, show(value)+" is no object")
	}
	result := make(map[string]any, len(object))
	for name, v := range object {
		c, ok := n.child(name)
		if !ok {
			return nil, Fail(UnknownElement, path+"/"+name, "there is no such node in the models"+hint(n, name))
		}
		if _, twice := result[c.Name]; twice {
			return nil, Fail(BadElement, path+"/"+c.Name, "is there twice, with and without its module")
		}
		below := path + "/" + c.Name
		if n.Parent == nil {
			below = path + "/" + c.qualified()
		}
		checked, err := Check(c, v, below)
		if err != nil {
			return nil, err
		}
		result[c.Name] = checked
	}
	return result, nil
}

func checkList(n *Node, value any, path string) ([]any, error) {
	list, ok := value.([]any)
	if !ok {
		return nil, Fail(InvalidValue, path, show(value)+" is no array: "+n.Name+" is a list")
	}
	result := make([]any, 0, len(list))
	seen := map[string]bool{}
	for i, v := range list {
		entry, err := checkObject(n, v, path)
		if err != nil {
			return nil, err
		}
		for _, k := range n.Keys {
			if _, there := entry[k]; !there && n.Positioned() {
				entry[k] = json.Number(strconv.Itoa(i))
			} else if !there {
				return nil, Fail(MissingElement, path+"/"+k, "the key of an entry is missing")
			}
		}
		step := Step{Node: n, Keys: keysOf(n, entry)}
		id := strings.Join(step.Keys, "\x00")
		if seen[id] {
			return nil, Fail(InvalidValue, path, "two entries have the key "+show(strings.Join(step.Keys, ", ")))
		}
		seen[id] = true
		result = append(result, entry)
	}
	return result, nil
}

func checkLeafList(n *Node, value any, path string) ([]any, error) {
	list, ok := value.([]any)
	if !ok {
		return nil, Fail(InvalidValue, path, show(value)+" is no array: "+n.Name+" is a leaf-list")
	}
	result := make([]any, 0, len(list))
	for _, v := range list {
		c, err := leafValue(n, v, path)
		if err != nil {
			return nil, err
		}
		if slices.Contains(result, c) {
			return nil, Fail(InvalidValue, path, show(c)+" is there twice")
		}
		result = append(result, c)
	}
	return result, nil
}
