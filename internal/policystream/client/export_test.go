// SPDX-License-Identifier: Apache-2.0

package client

import "time"

// SetSave puts another writer of the file into a client that does not run yet.
func SetSave(c *Client, save func(path string, items [][]byte) error) { c.save = save }

// SetPatience changes how long a controller may be silent.
func SetPatience(c *Client, d time.Duration) { c.patience = d }

// Save is the writer.
var Save = save

// AddressesOf is for tests of slices.
var AddressesOf = addressesOf
