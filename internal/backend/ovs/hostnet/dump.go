// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// maxDumps bounds how often a list is read again that changed while it was read.
const maxDumps = 20

// dump reads one of the kernel's lists as a whole. The kernel says when a list changed while it was
// being read, which happens all the time on a node where pods come and go.
func dump[T any](read func() ([]T, error)) (list []T, err error) {
	for range maxDumps {
		if list, err = read(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return list, err
}
