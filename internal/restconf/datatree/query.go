// SPDX-License-Identifier: Apache-2.0

package datatree

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Content says which nodes an answer has (RFC 8040, section 4.8.1).
type Content string

// The contents.
const (
	All       Content = "all"
	Config    Content = "config"
	Nonconfig Content = "nonconfig"
)

// Query is what the parameters of a request select.
type Query struct {
	Content Content
	// Depth is how many levels the answer has, 0: all (RFC 8040, section 4.8.2).
	Depth int
	// Fields are the nodes below the target that are wanted; nil: all.
	Fields *Fields
}

// Fields is a tree of wanted nodes.
type Fields struct{ children map[string]*Fields }

// maxFieldsDepth bounds the nesting of the fields parameter.
const maxFieldsDepth = 16

// ParseQuery reads the parameters of a GET of a node, as they were sent: a semicolon is a part of
// the value of fields, and separates no parameters.
func ParseQuery(target *Node, raw string) (Query, error) {
	q := Query{Content: All}
	values, err := url.ParseQuery(strings.ReplaceAll(raw, ";", "%3B"))
	if err != nil {
		return q, Fail(InvalidValue, "", "the query is not percent-encoded")
	}
	for name, list := range values {
		if len(list) != 1 {
			return q, Fail(InvalidValue, "", "the query parameter "+show(name)+" is there twice")
		}
		value := list[0]
		switch name {
		case "content":
			q.Content = Content(value)
			if q.Content != All && q.Content != Config && q.Content != Nonconfig {
				return q, Fail(InvalidValue, "", "content is "+show(value)+", not all, config or nonconfig")
			}
		case "depth":
			if value == "unbounded" {
				continue
			}
			n, err := strconv.ParseUint(value, 10, 16)
			if err != nil || n < 1 {
				return q, Fail(InvalidValue, "", "depth is "+show(value)+", not 1 to 65535 or unbounded")
			}
			q.Depth = int(n)
		case "fields":
			p := fieldsParser{text: value}
			f, err := p.list(target, 0)
			if err == nil && p.at != len(p.text) {
				err = p.fail()
			}
			if err != nil {
				return q, err
			}
			q.Fields = f
		default:
			return q, Fail(InvalidValue, "", "there is no query parameter "+show(name)+" for this request")
		}
	}
	return q, nil
}

// fieldsParser reads the grammar of RFC 8040, section 4.8.3.
type fieldsParser struct {
	text string
	at   int
}

func (p *fieldsParser) fail() error {
	return Fail(InvalidValue, "", fmt.Sprintf("fields is not well-formed at its byte %d", p.at))
}

func (p *fieldsParser) next() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

// list reads expressions with semicolons between them.
func (p *fieldsParser) list(n *Node, depth int) (*Fields, error) {
	f := &Fields{children: map[string]*Fields{}}
	for {
		if err := p.path(n, f, depth); err != nil {
			return nil, err
		}
		if p.next() != ';' {
			return f, nil
		}
		p.at++
	}
}

// path reads a/b(c;d) into f.
func (p *fieldsParser) path(n *Node, f *Fields, depth int) error {
	if depth > maxFieldsDepth {
		return Fail(TooBig, "", "fields nests too deep")
	}
	end := strings.IndexAny(p.text[p.at:], "/();")
	if end < 0 {
		end = len(p.text) - p.at
	}
	name := p.text[p.at : p.at+end]
	c, ok := n.child(name)
	if !ok {
		return Fail(UnknownElement, n.Path()+"/"+name, "fields names a node that is not in the models")
	}
	p.at += end
	below := f.children[c.Name]
	if below == nil {
		below = &Fields{}
	}
	switch p.next() {
	case '/':
		p.at++
		inner := &Fields{children: map[string]*Fields{}}
		if err := p.path(c, inner, depth+1); err != nil {
			return err
		}
		below.join(inner)
	case '(':
		p.at++
		inner, err := p.list(c, depth+1)
		if err != nil {
			return err
		}
		if p.next() != ')' {
			return p.fail()
		}
		p.at++
		below.join(inner)
	}
	f.children[c.Name] = below
	return nil
}

// join adds the nodes of another one.
func (f *Fields) join(other *Fields) {
	if f.children == nil {
		f.children = map[string]*Fields{}
	}
	for name, o := range other.children {
		if mine := f.children[name]; mine != nil {
			mine.join(o)
		} else {
			f.children[name] = o
		}
	}
}

// Get is the part of the tree that the path leads to.
func Get(tree map[string]any, path Path) (any, error) {
	var at any = tree
	for i, s := range path {
		object := at.(map[string]any)
		value, there := object[s.Node.Name]
		if !there && s.Node.always() {
			value, there = map[string]any{}, true
		}
		if s.Keys != nil {
			list, _ := value.([]any)
			found := find(list, s)
			if found < 0 {
				return nil, NotFound(path[:i+1].String())
			}
			if i == len(path)-1 {
				return []any{list[found]}, nil
			}
			value, there = list[found], true
		}
		if !there {
			return nil, NotFound(path[:i+1].String())
		}
		if _, object := value.(map[string]any); !object && i < len(path)-1 {
			return nil, NotFound(path[:i+2].String())
		}
		at = value
	}
	return at, nil
}

// Select is the part of a node's value that the query selects.
func (q Query) Select(n *Node, value any) any {
	value = q.content(n, value)
	if value == nil {
		return nil
	}
	if q.Fields != nil {
		value = q.Fields.take(n, value)
	}
	if q.Depth > 0 {
		value = cutDepth(value, q.Depth)
	}
	return value
}

// content keeps configuration, or state with what leads to it; nil: nothing is left.
func (q Query) content(n *Node, value any) any {
	if q.Content == All {
		return value
	}
	switch v := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		found := n.always() || q.Content == Config
		for name, below := range v {
			c := n.Children[name]
			if part := q.content(c, below); part != nil {
				kept[name], found = part, true
			} else if c.isKey() {
				kept[name] = below
			}
		}
		if !found || q.Content == Config && n.State {
			return nil
		}
		return kept
	case []any:
		if n.Kind == LeafList {
			break
		}
		kept := []any{}
		for _, entry := range v {
			if part := q.content(n, entry); part != nil {
				kept = append(kept, part)
			}
		}
		if len(kept) == 0 && len(v) > 0 {
			return nil
		}
		return kept
	}
	if n.State == (q.Content == Nonconfig) {
		return value
	}
	return nil
}

// take keeps the fields, and the keys of entries.
func (f *Fields) take(n *Node, value any) any {
	if f.children == nil {
		return value
	}
	switch v := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, below := range v {
			if wanted, ok := f.children[name]; ok {
				kept[name] = wanted.take(n.Children[name], below)
			} else if slices.Contains(n.Keys, name) {
				kept[name] = below
			}
		}
		return kept
	case []any:
		kept := make([]any, len(v))
		for i, entry := range v {
			kept[i] = f.take(n, entry)
		}
		return kept
	}
	return value
}

// cutDepth keeps so many levels of nodes: the target is the first. Containers and entries of the
// last level are empty.
func cutDepth(value any, depth int) any {
	switch v := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		if depth == 1 {
			return kept
		}
		for name, below := range v {
			kept[name] = cutDepth(below, depth-1)
		}
		return kept
	case []any:
		kept := make([]any, len(v))
		for i, entry := range v {
			kept[i] = cutDepth(entry, depth)
		}
		return kept
	}
	return value
}

// Qualify is the message that an answer has for a node's value (RFC 7951, section 4).
func Qualify(n *Node, value any) map[string]any {
	return map[string]any{n.qualified(): qualifyBelow(n, value)}
}

func qualifyBelow(n *Node, value any) any {
	switch v := value.(type) {
	case map[string]any:
		object := make(map[string]any, len(v))
		for name, below := range v {
			c := n.Children[name]
			if c.Module != n.Module {
				name = c.qualified()
			}
			object[name] = qualifyBelow(c, below)
		}
		return object
	case []any:
		list := make([]any, len(v))
		for i, entry := range v {
			list[i] = qualifyBelow(n, entry)
		}
		return list
	}
	return value
}
