// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrNoCIDR says that a node has no podCIDR at all.
var ErrNoCIDR = errors.New("the node has no podCIDR: is --allocate-node-cidrs set on the controller manager?")

// CIDRError says why a podCIDR cannot be used.
type CIDRError struct {
	CIDR    string
	Problem string // continues "podCIDR 10.0.0.0/31: "
}

func (e *CIDRError) Error() string { return fmt.Sprintf("podCIDR %s: %s", e.CIDR, e.Problem) }

// ExhaustedError says that every address of a podCIDR is taken.
type ExhaustedError struct {
	CIDR netip.Prefix
}

func (e *ExhaustedError) Error() string {
	return fmt.Sprintf("podCIDR %s: all addresses are in use by pods of this node", e.CIDR)
}
