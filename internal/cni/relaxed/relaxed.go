// SPDX-License-Identifier: Apache-2.0

// Package relaxed corrects JSON that was written for people: comments, commas too many and commas
// that are missing. It depends on nothing, so that the CNI plugin starts as fast with it.
package relaxed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// maxDepth of nested objects and lists; encoding/json refuses deeper ones, too.
const maxDepth = 10000

// JSON returns JSON (RFC 8259) with the values of data, and what was corrected, each once in the
// order of first occurrence: comments (from // or # to the end of the line, and from /* to */)
// become blanks, a comma before a closing bracket is removed, and one is put between two members or
// elements that have none. Lines stay where they are. Data that is JSON is returned as it is; what
// cannot be corrected is returned with what json.Unmarshal will find wrong.
func JSON(data []byte) (text []byte, corrected []string) {
	if json.Valid(data) {
		return data, nil
	}
	c := corrector{in: data, last: -1, before: -1}
	c.run()
	return c.out, c.corrected
}

type corrector struct {
	in        []byte
	pos       int
	out       []byte
	corrected []string
	last      int // index in out of the last byte that is neither blank nor comment; -1: none
	before    int // the same of the token before
	depth     int
	endless   bool // no comment ends from here on
}

func (c *corrector) note(what string) {
	if !slices.Contains(c.corrected, what) {
		c.corrected = append(c.corrected, what)
	}
}

func (c *corrector) run() {
	for c.pos < len(c.in) {
		rest := c.in[c.pos:]
		b := rest[0]
		if b == ' ' || b == '\t' || b == '\n' || b == '\r' {
			c.out, c.pos = append(c.out, b), c.pos+1
		} else if n := c.commentLength(rest); n > 0 {
			c.comment(rest[:n])
		} else {
			c.token(rest)
		}
	}
}

// commentLength is that of the comment at the beginning of text; 0 if there is none, or if it does
// not end.
func (c *corrector) commentLength(text []byte) int {
	switch {
	case text[0] == '#' || bytes.HasPrefix(text, []byte("//")):
		if n := bytes.IndexByte(text, '\n'); n >= 0 {
			return n
		}
		return len(text)
	case bytes.HasPrefix(text, []byte("/*")) && !c.endless:
		if n := bytes.Index(text[2:], []byte("*/")); n >= 0 {
			return n + 4
		}
		c.endless = true
	}
	return 0
}

// comment puts blanks in the place of a comment.
func (c *corrector) comment(text []byte) {
	for _, b := range text {
		if b != '\n' && b != '\r' {
			b = ' '
		}
		c.out = append(c.out, b)
	}
	c.pos += len(text)
	c.note("comments")
}

// token copies a string, a bracket, a comma, a colon or anything else up to one of them.
func (c *corrector) token(rest []byte) {
	n := 1
	switch b := rest[0]; b {
	case '"':
		n = stringLength(rest)
		c.separate()
	case '{', '[':
		c.separate()
		c.depth++
	case '}', ']':
		c.depth--
		if c.last >= 0 && c.out[c.last] == ',' && c.before >= 0 && !opens(c.out[c.before]) {
			c.out[c.last] = ' '
			c.note(fmt.Sprintf("a comma before %c", b))
		}
	case ',', ':':
	default:
		n = literalLength(rest)
		c.separate()
	}
	c.out = append(c.out, rest[:n]...)
	c.before, c.last = c.last, len(c.out)-1
	c.pos += n
}

// separate puts a comma after the last value if another value begins where none may.
func (c *corrector) separate() {
	if c.last < 0 || c.depth <= 0 || c.depth > maxDepth {
		return
	}
	if opens(c.out[c.last]) {
		return
	}
	c.out = slices.Insert(c.out, c.last+1, ',')
	c.note("a missing comma")
}

// opens says whether a value or a member is what follows a byte.
func opens(b byte) bool { return b == '{' || b == '[' || b == ',' || b == ':' }

// stringLength is that of the string at the beginning of text, with its quotes; all of text if it
// does not end.
func stringLength(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// literalLength is that of a number, a word or what is neither, up to what ends it.
func literalLength(text []byte) int {
	n := bytes.IndexAny(text, " \t\r\n,:{}[]\"#/")
	switch {
	case n < 0:
		return len(text)
	case n == 0:
		return 1
	}
	return n
}
