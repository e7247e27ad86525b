// SPDX-License-Identifier: Apache-2.0

package datatree

import (
	"net/http"
	"slices"
	"strings"
)

// Edit is what a request does to the node that its path leads to.
type Edit int

// The edits, each a method of RFC 8040, section 4.
const (
	Create  Edit = iota // POST: a new child
	Replace             // PUT
	Merge               // PATCH, a plain patch
	Delete
)

// Message reads the top of a body for an edit of the path: the target's name and value, or with
// Create a child's. It returns the checked value and the child. With former, as clients of
// Netvirt send them, the target's children may stand in place of the target: then only is true.
func Message(root *Node, path Path, edit Edit, body any, former bool) (child *Node, value any, only bool, err error) {
	target := path.Target(root)
	object, ok := body.(map[string]any)
	if !ok || len(object) == 0 {
		return nil, nil, false, Fail(MalformedMessage, path.String(), "the body is no JSON object with a member")
	}
	if target.Parent == nil && edit != Create {
		value, err = rootMessage(root, object)
		return root, value, false, err
	}
	if len(object) > 1 {
		return nil, nil, false, Fail(MalformedMessage, path.String(), "the body has more than one member")
	}
	for name, v := range object {
		from := target.Parent
		if edit == Create {
			from = target
		}
		c, ok := from.child(name)
		if !ok && from.Parent == nil && former {
			c, ok = from.Children[name], from.Children[name] != nil
		}
		switch {
		case edit == Create && !ok, edit != Create && c != target && !former:
			return nil, nil, false, Fail(UnknownElement, path.String(),
				show(name)+" is not what the body is to hold"+hint(from, name))
		case edit != Create && c != target:
			if c, ok = target.child(name); !ok {
				return nil, nil, false, Fail(UnknownElement, path.String(),
					show(name)+" is not what the body is to hold")
			}
			only = true
		}
		at := path.String()
		if edit == Create || only {
			at = strings.TrimSuffix(at, "/") + "/" + c.Name
		}
		value, err = Check(c, v, at)
		return c, value, only, err
	}
	return nil, nil, false, nil
}

// rootMessage reads {"ietf-restconf:data": {…}}, or its members without that.
func rootMessage(root *Node, object map[string]any) (any, error) {
	if inner, ok := object["ietf-restconf:data"]; ok && len(object) == 1 {
		return Check(root, inner, "")
	}
	return Check(root, object, "")
}

// Apply does an edit on a tree, which it changes. It reports whether the target was not there.
// The child is that of a Create.
func Apply(root *Node, tree map[string]any, path Path, edit Edit, child *Node, value any) (created bool, err error) {
	target := path.Target(root)
	if target.State || child != nil && child.State {
		return false, Fail(InvalidValue, path.String(), "is state, which cannot be written")
	}
	if n := stateIn(value, childOr(child, target)); n != nil {
		return false, Fail(InvalidValue, n.Path(), "is state, which cannot be written")
	}
	switch edit {
	case Create:
		return true, create(tree, path, child, value)
	case Delete:
		return false, remove(tree, path)
	}
	if target.isKey() {
		return false, Fail(InvalidValue, path.String(), "is a key, which cannot be changed")
	}
	if len(path) == 0 {
		if edit == Replace {
			return false, Fail(OperationNotSupported, "", "the whole datastore cannot be replaced: PUT each container")
		}
		merge(root, tree, value.(map[string]any))
		return false, nil
	}
	if target.Kind == List {
		return applyEntry(tree, path, edit, value)
	}
	parent, err := containerOf(tree, path[:len(path)-1], true)
	if err != nil {
		return false, err
	}
	old, there := parent[target.Name]
	if edit == Merge {
		if !there && target.Kind != Container {
			return false, NotFound(path.String())
		}
		parent[target.Name] = mergeValue(target, old, value)
		return false, nil
	}
	parent[target.Name] = value
	return !there, nil
}

func childOr(child, target *Node) *Node {
	if child != nil {
		return child
	}
	return target
}

// applyEntry replaces or merges one entry of a list.
func applyEntry(tree map[string]any, path Path, edit Edit, value any) (bool, error) {
	last := path[len(path)-1]
	entries := value.([]any)
	if last.Keys == nil {
		return false, Fail(MissingElement, path.String(),
			"the list's keys are missing: "+strings.Join(last.Node.Keys, ", "))
	}
	if len(entries) != 1 {
		return false, Fail(MalformedMessage, path.String(), "the body has not exactly one entry")
	}
	entry := entries[0].(map[string]any)
	if !slices.Equal(keysOf(last.Node, entry), last.Keys) {
		return false, Fail(InvalidValue, path.String(), "the key in the body is another one than in the path")
	}
	parent, err := containerOf(tree, path[:len(path)-1], true)
	if err != nil {
		return false, err
	}
	list, _ := parent[last.Node.Name].([]any)
	at := find(list, last)
	if edit == Merge {
		if at < 0 {
			return false, NotFound(path.String())
		}
		merge(last.Node, list[at].(map[string]any), entry)
		return false, nil
	}
	if at < 0 {
		parent[last.Node.Name] = append(list, entry)
		return true, nil
	}
	list[at] = entry
	return false, nil
}

// create adds a child that must not be there.
func create(tree map[string]any, path Path, child *Node, value any) error {
	parent, err := containerOf(tree, path, false)
	if err != nil {
		return err
	}
	if child.Kind == Container && child.always() {
		// It is there without data as well: its entries are what is new.
		for _, c := range child.Children {
			entries, there := value.(map[string]any)[c.Name]
			if !there {
				continue
			}
			if err := create(tree, append(slices.Clip(path), Step{Node: child}), c, entries); err != nil {
				return err
			}
		}
		return nil
	}
	old, there := parent[child.Name]
	if child.Kind == List || child.Kind == LeafList {
		list, _ := old.([]any)
		for _, v := range value.([]any) {
			if entry, ok := v.(map[string]any); ok {
				step := Step{Node: child, Keys: keysOf(child, entry)}
				if find(list, step) >= 0 {
					return Fail(DataExists, append(slices.Clip(path), step).String(), "is there already")
				}
			} else if slices.Contains(list, v) {
				return Fail(DataExists, path.String()+"/"+child.Name, "is there already")
			}
			list = append(list, v)
		}
		parent[child.Name] = list
		return nil
	}
	if there {
		return Fail(DataExists, path.String()+"/"+child.Name, "is there already")
	}
	parent[child.Name] = value
	return nil
}

// remove deletes the target, which must be there.
func remove(tree map[string]any, path Path) error {
	if len(path) == 0 {
		return Fail(OperationNotSupported, "", "the whole datastore cannot be deleted")
	}
	last := path[len(path)-1]
	if last.Node.isKey() {
		return Fail(InvalidValue, path.String(), "is a key, which cannot be deleted")
	}
	parent, err := containerOf(tree, path[:len(path)-1], false)
	if err != nil {
		return err
	}
	value, there := parent[last.Node.Name]
	if last.Keys != nil {
		list, _ := value.([]any)
		at := find(list, last)
		if at < 0 {
			return NotFound(path.String())
		}
		parent[last.Node.Name] = slices.Delete(list, at, at+1)
		return nil
	}
	if !there {
		return NotFound(path.String())
	}
	delete(parent, last.Node.Name)
	return nil
}

// containerOf finds the object that a path leads to; containers that are missing are made outside
// of lists, and in their entries if make is true. Entries are never made.
func containerOf(tree map[string]any, path Path, make bool) (map[string]any, error) {
	at := tree
	for i, s := range path {
		value, there := at[s.Node.Name]
		if s.Node.Kind == List {
			list, _ := value.([]any)
			if s.Keys == nil {
				return nil, Fail(MissingElement, path[:i+1].String(),
					"the list's keys are missing: "+strings.Join(s.Node.Keys, ", "))
			}
			found := find(list, s)
			if found < 0 {
				return nil, NotFound(path[:i+1].String())
			}
			at = list[found].(map[string]any)
			continue
		}
		if s.Node.Kind != Container {
			return nil, &Error{
				Tag: OperationNotSupported, Status: http.StatusMethodNotAllowed, Path: path[:i+1].String(),
				Message: "a leaf has no children",
			}
		}
		if !there {
			if !make && !s.Node.always() {
				return nil, NotFound(path[:i+1].String())
			}
			value = map[string]any{}
			at[s.Node.Name] = value
		}
		at = value.(map[string]any)
	}
	return at, nil
}

// find is the index of an entry in a list, or -1.
func find(list []any, s Step) int {
	return slices.IndexFunc(list, func(v any) bool {
		return slices.Equal(keysOf(s.Node, v.(map[string]any)), s.Keys)
	})
}

// merge adds what src has to dst.
func merge(n *Node, dst, src map[string]any) {
	for name, v := range src {
		dst[name] = mergeValue(n.Children[name], dst[name], v)
	}
}

func mergeValue(n *Node, old, value any) any {
	if old == nil || n.Kind == Leaf || n.Positioned() {
		return value
	}
	switch n.Kind {
	case Container:
		merge(n, old.(map[string]any), value.(map[string]any))
		return old
	case LeafList:
		list := old.([]any)
		for _, v := range value.([]any) {
			if !slices.Contains(list, v) {
				list = append(list, v)
			}
		}
		return list
	}
	list := old.([]any)
	for _, v := range value.([]any) {
		entry := v.(map[string]any)
		if at := find(list, Step{Node: n, Keys: keysOf(n, entry)}); at >= 0 {
			merge(n, list[at].(map[string]any), entry)
		} else {
			list = append(list, entry)
		}
	}
	return list
}

// stateIn finds a node in a value that is state.
func stateIn(value any, n *Node) *Node {
	if n.State {
		return n
	}
	switch v := value.(type) {
	case map[string]any:
		for name, below := range v {
			if s := stateIn(below, n.Children[name]); s != nil {
				return s
			}
		}
	case []any:
		for _, entry := range v {
			if s := stateIn(entry, n); s != nil {
				return s
			}
		}
	}
	return nil
}

// Complete returns an error if a mandatory leaf of an entry is missing.
func Complete(n *Node, entry map[string]any, path string) error {
	for _, c := range n.Children {
		value, there := entry[c.Name]
		if c.Mandatory && !there {
			return Fail(MissingElement, path+"/"+c.Name, "is missing")
		}
		switch v := value.(type) {
		case map[string]any:
			if err := Complete(c, v, path+"/"+c.Name); err != nil {
				return err
			}
		case []any:
			for _, e := range v {
				below, ok := e.(map[string]any)
				if !ok {
					continue
				}
				if err := Complete(c, below, path+"/"+c.Name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
