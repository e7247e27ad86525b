// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// portKind are Ports, by namespace/name of the object: a Logical_Switch_Port each.
type portKind struct{ cluster names.Cluster }

// Name implements Kind.
func (portKind) Name() string { return "Port" }

// Affected implements Kind.
func (portKind) Affected(from, to *intent.State, d intent.Delta, yield func(string)) {
	for _, id := range d.Ports {
		for _, s := range []*intent.State{from, to} {
			if s == nil {
				continue
			}
			if p, ok := s.Ports().Get(id); ok {
				yield(p.ObjectKey())
			}
		}
	}
}

// Compile implements Kind.
func (k portKind) Compile(s *intent.State, object string, u *nb.Unit) {
	for p := range s.PortsNamed(object) {
		n, ok := s.Networks().Get(p.Network)
		if !ok {
			return
		}
		u.AddTo(switchOf(n, p.Node), "ports", portRef(object).Key, &nb.LogicalSwitchPort{Name: k.cluster.Port(object)})
		return
	}
}
