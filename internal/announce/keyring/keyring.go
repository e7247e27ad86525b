// SPDX-License-Identifier: Apache-2.0

// Package keyring makes, rotates and reads the keys by which agents encrypt and authenticate the
// membership that decides which node answers for load balancers' addresses. They are in a Secret,
// which the controllers write and agents read.
package keyring

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Secret is the name of the one with the keys, in Coelan's namespace, and Keys the key of its data.
const (
	Secret = "coelan-memberlist"
	Keys   = "keys"
)

// Lifetime is how long a key encrypts. Delay is the time between two steps of a rotation: an
// agent that cannot reach the API server for that long while a key is replaced loses the
// others until it can.
const (
	Lifetime = 30 * 24 * time.Hour
	Delay    = 24 * time.Hour
)

// keySize is that of AES-256.
const keySize = 32

// maxKeys is more than a rotation needs. Each packet that is not authentic is tried
// with all of them.
const maxKeys = 8

// Parse reads base64 keys of 16, 24 or 32 bytes, one on each line. The first encrypts, all decrypt.
func Parse(text []byte) ([][]byte, error) {
	var keys [][]byte
	for i, line := range bytes.Split(text, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(string(line))
		if err != nil {
			return nil, fmt.Errorf("line %d: not base64", i+1)
		}
		switch len(key) {
		case 16, 24, 32:
		default:
			return nil, fmt.Errorf("line %d: %d bytes; a key has 16, 24 or 32", i+1, len(key))
		}
		keys = append(keys, key)
	}
	switch {
	case len(keys) == 0:
		return nil, errors.New("there is no key")
	case len(keys) > maxKeys:
		return nil, fmt.Errorf("%d keys are more than %d", len(keys), maxKeys)
	}
	return keys, nil
}

// Format is what Parse reads.
func Format(keys [][]byte) []byte {
	var text strings.Builder
	for _, key := range keys {
		text.WriteString(base64.StdEncoding.EncodeToString(key))
		text.WriteByte('\n')
	}
	return []byte(text.String())
}

// Phase is how far a rotation is.
type Phase string

// The phases, in order.
const (
	// Steady: the first key encrypts, and there is no other of this package's.
	Steady Phase = "steady"
	// Added: the last key is new, and only decrypts.
	Added Phase = "added"
	// Used: the first key is new, and encrypts. The others only decrypt.
	Used Phase = "used"
)

// Rotation is the state of the keys. It says which step comes next, so that any
// replica can take it.
type Rotation struct {
	// Keys in order: the first encrypts.
	Keys  [][]byte
	Phase Phase
	// Changed is when the phase began.
	Changed time.Time
}

// Rotate takes the step that is due, if any, and returns when to look again. A new key decrypts
// everywhere before any agent encrypts with it, and an old one still decrypts until no agent
// encrypts with it:
//
//	A  →  A, B  →  B, A  →  B
func Rotate(r Rotation, now time.Time) (next Rotation, again time.Time, err error) {
	if len(r.Keys) == 0 {
		key, err := newKey()
		return Rotation{[][]byte{key}, Steady, now}, now.Add(Lifetime), err
	}
	// A clock that was ahead must not put off the next step.
	if r.Changed.After(now) {
		r.Changed = now
	}
	if due := r.Changed.Add(r.Phase.duration()); now.Before(due) {
		return r, due, nil
	}
	next = Rotation{Changed: now}
	last := len(r.Keys) - 1
	switch r.Phase {
	case Added:
		next.Phase, next.Keys = Used, slices.Concat(r.Keys[last:], r.Keys[:last])
	case Used:
		next.Phase, next.Keys = Steady, r.Keys[:1]
	default:
		key, err := newKey()
		if err != nil {
			return r, time.Time{}, err
		}
		next.Phase, next.Keys = Added, append(slices.Clone(r.Keys), key)
	}
	return next, now.Add(next.Phase.duration()), nil
}

func (p Phase) duration() time.Duration {
	if p == Added || p == Used {
		return Delay
	}
	return Lifetime
}

func newKey() ([]byte, error) {
	key := make([]byte, keySize)
	_, err := rand.Read(key)
	return key, err
}
