// SPDX-License-Identifier: Apache-2.0

package clusterintent

import (
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
)

// What becomes of a pod and its Port comes by two ways: from the objects, and from the policies,
// which look at the same objects. The two are kept in step, so that a Port comes with what policies
// say of it, and goes before they forget it. Else each pod would be written twice or three times.
// A Port that comes waits for the policies, and they for what is noted of objects; what goes waits
// for nothing.

// kindsInStep are those kinds, as a Basis names them.
var (
	podKind     = "Pod"
	portKind    = schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "Port"}.String()
	kindsInStep = map[reflect.Type]string{
		reflect.TypeFor[*corev1.Pod](): podKind, reflect.TypeFor[*v1alpha1.Port](): portKind,
	}
)

// judged is a change of what policies say, and what it was computed from.
type judged struct {
	policy.Delta
	of policy.Basis
}

// see notes up to which version objects of a kind are known; s.mu is held.
func (s *Source) see(o client.Object) {
	kind, in := kindsInStep[reflect.TypeOf(o)]
	if !in {
		return
	}
	s.seen = s.seen.Advance(policy.Basis{kind: {Changed: reconcile.VersionOf(o)}})
	if len(s.policies) > 0 {
		s.wake.Fire()
	}
}

// take returns what can be applied, and leaves what waits.
func (s *Source) take() (pending map[watched]noted, view *policy.View, policies []policy.Delta) {
	var known policy.Basis
	if s.PolicyMode == intent.EnforcedPolicies && s.PoliciesProgressed != nil {
		s.held = s.PoliciesProgressed()
		known = s.Policies.Published() // before s.mu, which a Change waits for
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.policies) > 0 && s.knows(s.policies[0].of) {
		policies, s.taken = append(policies, s.policies[0].Delta), s.policies[0].of
		s.policies = s.policies[1:]
	}
	if len(s.policies) > 0 {
		known = s.taken
	}
	pending, view = s.pending, s.view
	s.pending, s.view = map[watched]noted{}, nil
	for key, e := range pending {
		of, in := known[portKind]
		if in && kindsInStep[key.kind] == portKind && !e.gone && reconcile.VersionOf(e.object) > of.Changed {
			s.pending[key] = e
		}
	}
	maps.DeleteFunc(pending, func(key watched, _ noted) bool { _, held := s.pending[key]; return held })
	if len(s.pending) == 0 {
		s.held = nil
	}
	return pending, view, policies
}

// knows reports whether all is noted that policies were computed from; s.mu is held.
func (s *Source) knows(of policy.Basis) bool {
	for _, kind := range kindsInStep {
		if of[kind].Changed > s.seen[kind].Changed {
			return false
		}
	}
	return true
}
