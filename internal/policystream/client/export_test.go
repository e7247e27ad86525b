// SPDX-License-Identifier: Apache-2.0

package client

import (
	"time"

	"coelan.io/coelan/internal/policystream/wire"
)

// SetSave puts another writer of the file into a client that does not run yet.
func SetSave(c *Client, save func(path string, items [][]byte) error) {
	c.save = func(path string, x content) error { return save(path, x.items) }
}

// SetPatience changes how long a controller may be silent.
func SetPatience(c *Client, d time.Duration) { c.patience = d }

// Save is the writer.
func Save(path string, items [][]byte) error { return save(path, content{items: items}) }

// AddressesOf is for tests of slices.
var AddressesOf = addressesOf

// Parse reads a file's content, and says how many items it has.
func Parse(data []byte) (int, error) {
	r, err := parse(data)
	if err != nil {
		return 0, err
	}
	return len(r.items), nil
}

// Part reads a message, and applies it to nothing.
func Part(m *wire.Update) (Change, error) {
	r := newReceived()
	if err := r.part(m); err != nil {
		return Change{}, err
	}
	return newState().apply(r)
}

// Known is what a client knows, without a stream.
type Known struct{ state *state }

// NewKnown knows nothing.
func NewKnown() Known { return Known{newState()} }

// Apply takes a whole change.
func (k Known) Apply(m *wire.Update) (Change, error) {
	r := newReceived()
	if err := r.part(m); err != nil {
		return Change{}, err
	}
	return k.state.apply(r)
}

// Items are encoded.
func (k Known) Items() (list [][]byte) {
	for _, e := range k.state.items {
		list = append(list, e.data)
	}
	return list
}
