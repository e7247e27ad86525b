// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"fmt"
	"net"
)

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) num() uint128 {
	return uint128{0, uint64(be.Uint16(m[:]))<<32 | uint64(be.Uint32(m[2:]))}
}

// ParseMAC reads an Ethernet address such as "0a:c0:e1:00:00:01".
func ParseMAC(s string) (MAC, error) {
	hw, err := net.ParseMAC(s)
	if err != nil || len(hw) != 6 {
		return MAC{}, fmt.Errorf("%q is not an Ethernet address", s)
	}
	return MAC(hw), nil
}

// String prints m such as "0a:c0:e1:00:00:01".
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }
