// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
)

// translateEgresses brings the Egresses to what is known.
func (s *Source) translateEgresses(before, known apicache.State) translate.EgressChanges {
	follow(before.Egresses, known.Egresses, s.egresses.Set)
	follow(before.Blocks, known.Blocks, s.egresses.SetBlock)
	follow(before.Networks, known.Networks, s.egresses.SetNetwork)
	follow(before.Nodes, known.Nodes, s.egresses.SetNode)
	selectors := s.egresses.Selectors()
	s.mu.Lock()
	s.selectors = selectors
	s.mu.Unlock()
	return s.egresses.Changes()
}

// egress is the Egress that a Port of this node leaves by, empty if none selects its pod; false if
// the pod is not known, or the Port is no pod's.
func (s *Source) egress(p intent.Port) (string, bool) {
	s.mu.Lock()
	selectors := s.selectors
	s.mu.Unlock()
	known := s.View.State()
	pod := known.Pod(p.Namespace, p.Pod, p.UID)
	if pod == nil {
		return "", false
	}
	return selectors.Of(known.Namespaces.Get(p.Namespace), pod), true
}
