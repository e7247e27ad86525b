// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
)

// Request is what an attachment needs to come into being.
type Request struct {
	Key
	Network                       string // name in the CNI configuration
	MadeWith                      string // see Attachment
	PodUID, PodNamespace, PodName string
	Netns                         string
	HostInterface                 string // empty: made from the key
	MTU                           int

	NetworkName string // Coelan Network; empty: the default one
	NetworkID   intent.NetworkID
	BlockSpace  bool // see Attachment
	Primary     bool

	// Ranges to take one address of each family from: of the first one of a family that has a free one. The address of
	// the first family decides the MAC.
	Ranges []ipam.Range
	// Fixed addresses take the place of those from the ranges.
	Fixed []Fixed
	MAC   *intent.MAC // nil: made from the first address, or from the key if there is none
	// NodeRanges are the node's podCIDRs, to take one more address from for each family of the others.
	NodeRanges []ipam.Range

	// Default4 and Default6 ask for default routes: through a gateway of Via, or else that of the family's first address.
	Default4, Default6 bool
	Via                []netip.Addr
	Routes             []Route
	PortName           string
	NAD                string
	DNS                *types.DNS
}

// Fixed is an address that was asked for, with its subnet's length and gateway. The gateway may be invalid: none.
type Fixed struct {
	Address netip.Prefix
	Gateway netip.Addr
}

// RequestError says which request could not be fulfilled.
type RequestError struct {
	Index int // of the request
	Key   Key
	Err   error // ErrExists, *ipam.ExhaustedError, *TakenError or ErrNoPort
}

func (e *RequestError) Error() string { return fmt.Sprintf("attachment %s: %v", e.Key, e.Err) }

func (e *RequestError) Unwrap() error { return e.Err }

// TakenError says that a fixed address or MAC belongs to another attachment.
type TakenError struct {
	Network string // Coelan Network
	What    string // such as "address 10.0.0.5" or "MAC 0a:ce:00:00:00:01"
	MAC     bool   // it is a MAC
	By      string // namespace/name/interface of the pod, or namespace/name of the Port, that has it
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("%s on Network %s belongs to %s", e.What, e.Network, e.By)
}
