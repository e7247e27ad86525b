// SPDX-License-Identifier: Apache-2.0

package client

import (
	"time"

	"coelan.io/coelan/internal/policystream/wire"
)

// SetSave puts another writer of the file into a client that does not run yet.
func SetSave(c *Client, save func(path string, items [][]byte) error) { c.save = save }

// SetPatience changes how long a controller may be silent.
func SetPatience(c *Client, d time.Duration) { c.patience = d }

// Save is the writer.
var Save = save

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
