// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"fmt"
	"strings"
)

// reader takes a message apart. After the first error it returns zeros; the error is
// looked at once, at the end. It never allocates more than a small multiple of its input.
type reader struct {
	b     []byte
	err   error
	depth int // of actions within actions
}

// left is the number of bytes that have not been read.
func (r *reader) left() int {
	if r.err != nil {
		return 0
	}
	return len(r.b)
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// next takes n bytes, which belong to the message. It returns nil after an error.
func (r *reader) next(n int) []byte {
	if r.err == nil && (n < 0 || n > len(r.b)) {
		r.err = errShort
	}
	if r.err != nil {
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) skip(n int) { r.next(n) }

func (r *reader) uint8() uint8 {
	if b := r.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.next(2); b != nil {
		return be.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.next(4); b != nil {
		return be.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.next(8); b != nil {
		return be.Uint64(b)
	}
	return 0
}

// bytes copies n bytes; nil if there are none.
func (r *reader) bytes(n int) []byte {
	return append([]byte(nil), r.next(n)...)
}

// rest copies all that is left.
func (r *reader) rest() []byte { return r.bytes(r.left()) }

// text reads a field of n bytes that holds text up to the first zero byte.
func (r *reader) text(n int) string {
	s, _, _ := strings.Cut(string(r.next(n)), "\x00")
	return s
}

// sub returns a reader of the next n bytes. The caller must check its error.
func (r *reader) sub(n int) reader {
	b := r.next(n)
	return reader{b: b, err: r.err, depth: r.depth}
}

func (r *reader) match() Match {
	if r.err != nil {
		return Match{}
	}
	m, rest, err := pullMatch(r.b)
	if err != nil {
		r.err = err
		return Match{}
	}
	r.b = rest
	return m
}

func (r *reader) prop() prop {
	if r.err != nil {
		return prop{}
	}
	p, rest, err := pullProp(r.b)
	if err != nil {
		r.err = err
		return prop{}
	}
	r.b = rest
	return p
}

// done returns the error, if any.
func (r *reader) done() error { return r.err }
