// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// egressKind are Egresses, which have no rows yet: each is a problem.
type egressKind struct{}

// Name implements Kind.
func (egressKind) Name() string { return "Egress" }

// Affected implements Kind.
func (egressKind) Affected(_, _ *intent.State, d intent.Delta, yield func(string)) {
	for _, name := range d.EgressPaths {
		yield(name)
	}
}

// Compile implements Kind.
func (egressKind) Compile(s *intent.State, name string, u *nb.Unit) {
	if _, ok := s.EgressPaths().Get(name); ok {
		u.Problem("Egress "+name, "EgressUnsupported", "with OVN the pods that it selects leave as their nodes, or by "+
			"the gateway of their Router")
	}
}
