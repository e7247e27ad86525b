// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ErrNoCIDR says that a node has no podCIDR at all.
var ErrNoCIDR = errors.New("the node has no podCIDR: is --allocate-node-cidrs set on the controller manager?")

// CIDRError says why a podCIDR or a block cannot be used.
type CIDRError struct {
	CIDR    string
	Problem string // continues "podCIDR 10.0.0.0/31: "
	Block   bool   // of a Network, or its subnet
}

func (e *CIDRError) Error() string {
	what := "podCIDR"
	if e.Block {
		what = "block"
	}
	return fmt.Sprintf("%s %s: %s", what, e.CIDR, e.Problem)
}

// ExhaustedError says that every address of a podCIDR, or of several blocks, is taken.
type ExhaustedError struct {
	CIDRs  []netip.Prefix
	Blocks bool // they are blocks and not podCIDRs
}

func (e *ExhaustedError) Error() string {
	var list []string
	for _, p := range e.CIDRs {
		list = append(list, p.String())
	}
	what := "podCIDR"
	if e.Blocks {
		what = "blocks"
	}
	return fmt.Sprintf("%s %s: all addresses are in use by pods of this node", what, strings.Join(list, ", "))
}
