// SPDX-License-Identifier: Apache-2.0

package services

import (
	"strings"

	"coelan.io/coelan/internal/translate"
)

// tell writes an Event for each new problem that only this node has. The controller tells of all others.
func (s *Services) tell() {
	s.mu.Lock()
	problems := s.set.Problems()
	now := make(map[translate.ServiceProblem]bool, len(problems))
	var news []translate.ServiceProblem
	for _, p := range problems {
		if !p.Local {
			continue
		}
		now[p] = true
		if !s.told[p] {
			news = append(news, p)
		}
	}
	s.told = now
	s.mu.Unlock()
	for _, p := range news {
		s.Log.Warn("a value of a Service is left out on this node", "err", p.Problem)
		s.Events.ServiceWarning(p.Service.Namespace, p.Service.Name, string(p.UID), string(p.Reason),
			strings.TrimPrefix(p.Problem.Error(), p.Object+": "))
	}
}

// Problems are what is not in effect on this node, or cannot be.
func (s *Services) Problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	texts := []string{}
	for _, p := range s.set.Problems() {
		texts = append(texts, p.Error())
	}
	if s.healthzErr != nil {
		texts = append(texts, "services.healthzBindAddress: "+s.healthzErr.Error())
	}
	return texts
}
