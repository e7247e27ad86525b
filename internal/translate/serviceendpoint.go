// SPDX-License-Identifier: Apache-2.0

package translate

import (
	discoveryv1 "k8s.io/api/discovery/v1"
)

// IsSound says whether an address may be an endpoint's in an EndpointSlice of a type, and so makes no Problem.
func IsSound(address string, of discoveryv1.AddressType) bool {
	switch of {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
		ip, err := serviceAddress(address)
		return err == nil && familyOf(ip).String() == string(of)
	}
	return true // names are left out whatever they are
}
