// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs"
)

// openVSwitch is the backend that agents have in production.
func openVSwitch() Factory {
	return Factory{
		Conditions: ovs.Conditions(),
		New:        func(o backend.Options) (Backend, error) { return ovs.New(o) },
	}
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func prefixes(s ...string) (ps []netip.Prefix) {
	for _, p := range s {
		ps = append(ps, netip.MustParsePrefix(p))
	}
	return ps
}
