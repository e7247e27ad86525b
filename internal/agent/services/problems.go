// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/internal/translate"
)

// tell writes an Event for each new problem that only this node has. The controller
// tells of all others.
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
		s.Log.Warn("a Service has an invalid value, which is ignored on this node", "err", p.Problem)
		s.Events.ServiceWarning(p.Service.Namespace, p.Service.Name, p.UID, string(p.Reason),
			strings.TrimPrefix(p.Problem.Error(), p.Object+": "))
	}
}

// ServiceProblems are what of each Service is not in effect on this node, if that is anything.
func (s *Services) ServiceProblems() map[types.NamespacedName][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[types.NamespacedName][]string{}
	for _, p := range s.set.Problems() {
		all[p.Service] = append(all[p.Service], p.Problem.Error())
	}
	for name, err := range s.health.problems() {
		all[name] = append(all[name],
			"service "+name.String()+": spec.healthCheckNodePort: load balancers cannot ask here: "+err.Error())
	}
	return all
}

// Problems are what is not in effect on this node, or cannot be.
func (s *Services) Problems() []string {
	all := s.ServiceProblems()
	texts := []string{}
	for _, name := range slices.SortedFunc(maps.Keys(all), compareNames) {
		texts = append(texts, all[name]...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.healthzErr != nil {
		texts = append(texts, "services.healthzBindAddress: "+s.healthzErr.Error())
	}
	return texts
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
