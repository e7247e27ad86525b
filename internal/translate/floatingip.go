// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/names"
)

// FloatingIPSet is all FloatingIPs, and the AddressBlocks that say which one an address belongs to:
// a status may be written by others than the controller. A change translates anew what it touches.
// It is for one goroutine.
type FloatingIPSet struct {
	objects map[string]*v1alpha1.FloatingIP   // by namespace/name
	claims  map[string]*v1alpha1.AddressBlock // of FloatingIPs, by the block's name
	results map[string]intent.FloatingIP      // those in effect
	touched map[string]struct{}
}

// NewFloatingIPSet makes a set without objects.
func NewFloatingIPSet() *FloatingIPSet {
	return &FloatingIPSet{
		objects: map[string]*v1alpha1.FloatingIP{}, claims: map[string]*v1alpha1.AddressBlock{},
		results: map[string]intent.FloatingIP{}, touched: map[string]struct{}{},
	}
}

// Set adds or replaces the FloatingIP of a namespace/name; nil removes it.
func (s *FloatingIPSet) Set(key string, o *v1alpha1.FloatingIP) {
	s.touched[key] = struct{}{}
	if o == nil {
		delete(s.objects, key)
		return
	}
	s.objects[key] = o
}

// SetBlock adds or replaces the AddressBlock of a name; nil removes it.
func (s *FloatingIPSet) SetBlock(name string, o *v1alpha1.AddressBlock) {
	if old := s.claims[name]; old != nil {
		s.touched[old.Spec.FloatingIP] = struct{}{}
		delete(s.claims, name)
	}
	if o != nil && o.Spec.FloatingIP != "" {
		s.touched[o.Spec.FloatingIP] = struct{}{}
		s.claims[name] = o
	}
}

// Changes are how the FloatingIPs in effect differ from those at the call before.
func (s *FloatingIPSet) Changes() Change[intent.FloatingIP] {
	var c Change[intent.FloatingIP]
	for key := range s.touched {
		old, had := s.results[key]
		now, has := s.translate(key)
		switch {
		case has:
			s.results[key] = now
			c.Set = append(c.Set, now)
		case had:
			delete(s.results, key)
			c.Gone = append(c.Gone, old)
		}
	}
	clear(s.touched)
	return c
}

// translate is the FloatingIP of that namespace/name; false if it has no effect. What keeps it from
// having one, the controller writes into its status.
func (s *FloatingIPSet) translate(key string) (intent.FloatingIP, bool) {
	o := s.objects[key]
	if o == nil || meta.IsStatusConditionFalse(o.Status.Conditions, v1alpha1.ConditionReady) {
		return intent.FloatingIP{}, false
	}
	a, err := netip.ParseAddr(o.Status.Address)
	if err != nil || a.Is4In6() {
		return intent.FloatingIP{}, false
	}
	whole := netip.PrefixFrom(a, a.BitLen())
	claim := s.claims[names.BlockName(o.Spec.Network, whole)]
	if claim == nil || claim.Spec.FloatingIP != key || claim.Spec.Network != o.Spec.Network ||
		claim.Spec.CIDR != whole.String() {
		return intent.FloatingIP{}, false
	}
	f := intent.FloatingIP{Name: key, Network: o.Spec.Network, Address: a}
	if o.Spec.Port != "" {
		f.Port = o.Namespace + "/" + o.Spec.Port
	}
	if o.Spec.Service != "" {
		f.Service = o.Namespace + "/" + o.Spec.Service
	}
	return f, true
}
