// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"google.golang.org/protobuf/proto"

	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/wire"
	"coelan.io/coelan/internal/statefile"
)

// magic begins the file, and changes with its form. After it come the items, each with its
// length before it as a varint; a 0; an encoded Basis with its length before it; and the
// SHA-256 of all that. Releases before there was a Basis read no further than to the 0, and
// wrote nothing behind it.
const magic = "coelan policies 1\n"

// load reads a file that save has written. None is as if nothing were known; one that is not whole
// or has anything wrong in it is an error.
func load(path string) (*received, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newReceived(), nil
	}
	if err != nil {
		return nil, err
	}
	r, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func parse(data []byte) (_ *received, err error) {
	if !bytes.HasPrefix(data, []byte(magic)) {
		return nil, errors.New("it is not a file of policies of this release")
	}
	end := len(data) - sha256.Size
	if end < len(magic) || sha256.Sum256(data[:end]) != [sha256.Size]byte(data[end:]) {
		return nil, errors.New("it is damaged: the sum does not fit")
	}
	r := newReceived()
	for rest := data[len(magic):end]; ; {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size > uint64(len(rest)-n) {
			return nil, errors.New("it is damaged: an item has no end")
		}
		rest = rest[n:]
		if size == 0 {
			r.basis, err = parseBasis(rest)
			return r, err
		}
		if err := r.add(rest[:size:size]); err != nil {
			return nil, err
		}
		rest = rest[size:]
	}
}

// parseBasis reads what follows the items.
func parseBasis(data []byte) (policy.Basis, error) {
	if len(data) == 0 {
		return nil, nil
	}
	size, n := binary.Uvarint(data)
	if n <= 0 || size > uint64(len(data)-n) {
		return nil, errors.New("it is damaged: what it was computed from has no end")
	}
	m := &wire.Basis{}
	if err := proto.Unmarshal(data[n:n+int(size)], m); err != nil {
		return nil, fmt.Errorf("it is damaged: what it was computed from: %w", err)
	}
	return wire.BasisOf(m)
}

// content is what a file holds.
type content struct {
	items [][]byte
	basis policy.Basis
}

// save writes a file. Either the old file remains, or the new one is whole.
func save(path string, c content) error {
	basis, err := proto.Marshal(wire.BasisMessage(c.basis))
	if err != nil {
		return err
	}
	return statefile.Write(path, func(f *os.File) error { return write(f, c.items, basis) })
}

func write(to io.Writer, items [][]byte, basis []byte) error {
	sum := sha256.New()
	b := bufio.NewWriterSize(io.MultiWriter(to, sum), 1<<16)
	put := func(data []byte) { _, _ = b.Write(data) } // Flush has the error
	put([]byte(magic))
	for _, item := range items {
		put(binary.AppendUvarint(nil, uint64(len(item))))
		put(item)
	}
	put([]byte{0})
	put(binary.AppendUvarint(nil, uint64(len(basis))))
	put(basis)
	if err := b.Flush(); err != nil {
		return err
	}
	_, err := to.Write(sum.Sum(nil))
	return err
}
