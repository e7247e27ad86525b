// SPDX-License-Identifier: Apache-2.0

package datatree

import (
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"
)

// maxPath bounds what is parsed of a path, in bytes.
const maxPath = 4096

// Step is one part of a path: a node, and of a list's entry the values of its keys.
type Step struct {
	Node *Node
	// Keys are in the order of Node.Keys; nil: of a list, all of its entries.
	Keys []string
}

// Path leads from the root to a node.
type Path []Step

// EntryPath leads to an entry of a list that is in no other list.
func EntryPath(list *Node, keys ...string) Path {
	path := Path{{Node: list, Keys: keys}}
	for n := list.Parent; n.Parent != nil; n = n.Parent {
		path = append(Path{{Node: n}}, path...)
	}
	return path
}

// Target is the schema node that the path leads to.
func (p Path) Target(root *Node) *Node {
	if len(p) == 0 {
		return root
	}
	return p[len(p)-1].Node
}

// String is the path as an instance-identifier of RFC 7951, section 6.11.
func (p Path) String() string {
	return p.text(func(s Step, i int) string { return "[" + s.Node.Keys[i] + "=" + quoteKey(s.Keys[i]) + "]" })
}

// text is the names of the path, each with its module where that is another one, and the keys as
// key writes them.
func (p Path) text(key func(s Step, i int) string) string {
	var b strings.Builder
	module := ""
	for _, s := range p {
		b.WriteString("/")
		if s.Node.Module != module {
			b.WriteString(s.Node.Module + ":")
			module = s.Node.Module
		}
		b.WriteString(s.Node.Name)
		for i := range s.Keys {
			b.WriteString(key(s, i))
		}
	}
	return b.String()
}

func quoteKey(k string) string {
	if strings.Contains(k, "'") {
		return `"` + k + `"`
	}
	return "'" + k + "'"
}

// URI is the path as in RFC 8040, section 3.5.3, below {+restconf}/data.
func (p Path) URI() string {
	escape := strings.NewReplacer(":", "%3A", ",", "%2C")
	return p.text(func(s Step, i int) string {
		return map[bool]string{true: "=", false: ","}[i == 0] + escape.Replace(url.PathEscape(s.Keys[i]))
	})
}

// ParsePath reads what follows {+restconf}/data in a request's target, still percent-encoded:
// list=key,key (RFC 8040, section 3.5.3). With former, keys are segments of their own:
// list/key/key.
func ParsePath(root *Node, escaped string, former bool) (Path, error) {
	if len(escaped) > maxPath {
		return nil, &Error{Tag: TooBig, Status: http.StatusRequestURITooLong, Message: "the path is too long"}
	}
	var path Path
	segments := strings.Split(strings.Trim(escaped, "/"), "/")
	if len(segments) == 1 && segments[0] == "" {
		return nil, nil
	}
	at := root
	for i := 0; i < len(segments); i++ {
		segment, keys, hasKeys := strings.Cut(segments[i], "=")
		name, err := unescape(segment)
		if err != nil {
			return nil, err
		}
		n, ok := at.child(name)
		if !ok {
			return nil, &Error{Tag: UnknownElement, Status: http.StatusNotFound, Path: at.Path() + "/" + name,
				Message: "there is no such node in the models" + hint(at, name)}
		}
		step := Step{Node: n}
		switch {
		case hasKeys:
			step.Keys, err = parseKeys(n, strings.Split(keys, ","))
		case former && n.Kind == List && i+len(n.Keys) < len(segments):
			step.Keys, err = parseKeys(n, segments[i+1:i+1+len(n.Keys)])
			i += len(n.Keys)
		}
		if err != nil {
			return nil, err
		}
		if n.Kind == List && step.Keys == nil && i < len(segments)-1 {
			return nil, Fail(MissingElement, n.Path(), "the list's keys are missing: "+strings.Join(n.Keys, ", "))
		}
		path = append(path, step)
		at = n
	}
	return path, nil
}

// hint says what a name lacks, if that is all that is wrong with it.
func hint(at *Node, name string) string {
	if c, there := at.Children[name]; there && at.Parent == nil {
		return ": its module's name is missing: " + c.qualified()
	}
	return ""
}

// parseKeys reads the values of a list's keys.
func parseKeys(n *Node, escaped []string) ([]string, error) {
	if n.Kind != List {
		return nil, Fail(InvalidValue, n.Path(), "is no list and has no keys")
	}
	if len(escaped) != len(n.Keys) {
		return nil, Fail(InvalidValue, n.Path(), "has the keys "+strings.Join(n.Keys, ", "))
	}
	keys := make([]string, len(escaped))
	for i, e := range escaped {
		text, err := unescape(e)
		if err != nil {
			return nil, err
		}
		leaf := n.Children[n.Keys[i]]
		value, err := leafValue(leaf, text, leaf.Path())
		if err != nil {
			return nil, err
		}
		keys[i] = keyText(value)
	}
	return keys, nil
}

func unescape(s string) (string, error) {
	text, err := url.PathUnescape(s)
	if err != nil || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return "", Fail(MalformedMessage, "", "the path is not percent-encoded UTF-8")
	}
	return text, nil
}
