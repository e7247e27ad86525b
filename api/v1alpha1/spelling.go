// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"strings"
)

// At first these values began with small letters. Objects and manifests with such values are still
// accepted, and read as the constants.

// UnmarshalJSON implements json.Unmarshaler.
func (t *NetworkType) UnmarshalJSON(data []byte) error {
	return unmarshalValue(t, data, Overlay, VLAN, Flat)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *NetworkRole) UnmarshalJSON(data []byte) error {
	return unmarshalValue(r, data, Primary, Secondary)
}

// UnmarshalJSON implements json.Unmarshaler.
func (i *IPAM) UnmarshalJSON(data []byte) error {
	return unmarshalValue(i, data, Blocks, PodCIDR, DHCPServers)
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *FixedAddresses) UnmarshalJSON(data []byte) error {
	return unmarshalValue(f, data, AnyAddress, RangeAddresses, NoAddress)
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *FixedMACs) UnmarshalJSON(data []byte) error {
	return unmarshalValue(f, data, AnyMAC, LocalMACs, NoMAC)
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *RuleDirection) UnmarshalJSON(data []byte) error {
	return unmarshalValue(d, data, RuleIngress, RuleEgress)
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *IPFamily) UnmarshalJSON(data []byte) error {
	return unmarshalValue(f, data, IPv4, IPv6)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *SNAT) UnmarshalJSON(data []byte) error {
	return unmarshalValue(s, data, DistributedSNAT, CentralizedSNAT, NoSNAT)
}

// unmarshalValue reads one of the values in whatever case, and any other text as it is.
func unmarshalValue[T ~string](to *T, data []byte, values ...T) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	*to = T(text)
	for _, v := range values {
		if strings.EqualFold(text, string(v)) {
			*to = v
		}
	}
	return nil
}
