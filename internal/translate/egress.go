// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
)

// EgressSet is all Egresses, and the AddressBlocks that say which one an address belongs to. It
// also knows which nodes may be active for them, and which pods they select. A change translates
// anew what it touches. It is for one goroutine.
type EgressSet struct {
	objects    map[string]*v1alpha1.Egress
	candidates *candidates // users are Egresses, by name
	claims     map[string]egressClaim
	addresses  map[string]intent.EgressAddress // in effect, by the name of the AddressBlock
	paths      map[string]intent.EgressPath    // in effect, by the name of the Egress
	of         map[string]map[string]struct{}  // names of blocks, by the name of the Egress
	// selectors are of all Egresses; nil: they have to be read anew.
	selectors EgressSelectors
	// touched are names of blocks, and changed those of Egresses.
	touched, changed map[string]struct{}
}

// egressClaim is what a block of a single address is for.
type egressClaim struct {
	egress, network string
	address         netip.Addr
	active          string
}

// EgressChanges are how Egresses differ from those at the call before.
type EgressChanges struct {
	Addresses Change[intent.EgressAddress]
	Paths     Change[intent.EgressPath]
}

// NewEgressSet makes a set without objects.
func NewEgressSet() *EgressSet {
	return &EgressSet{
		objects: map[string]*v1alpha1.Egress{}, candidates: newCandidates(), claims: map[string]egressClaim{},
		addresses: map[string]intent.EgressAddress{}, paths: map[string]intent.EgressPath{},
		of: map[string]map[string]struct{}{}, touched: map[string]struct{}{}, changed: map[string]struct{}{},
	}
}

// Set adds or replaces the Egress of a name; nil removes it.
func (s *EgressSet) Set(name string, o *v1alpha1.Egress) {
	before := s.objects[name]
	if before != nil && o != nil && before.UID == o.UID && equality.Semantic.DeepEqual(before.Spec, o.Spec) &&
		slices.Equal(before.Status.Addresses, o.Status.Addresses) {
		s.objects[name] = o
		return
	}
	s.selectors = nil
	s.changed[name] = struct{}{}
	maps.Copy(s.touched, s.of[name])
	if o == nil {
		delete(s.objects, name)
		s.candidates.removeUser(name)
		return
	}
	s.objects[name] = o
	s.candidates.setUser(name, o.Spec.Network, o.Spec.Nodes)
}

// SetNode adds or replaces the node of a name; nil removes it.
func (s *EgressSet) SetNode(name string, o *corev1.Node) { s.candidates.setNode(name, o) }

// SetNetwork adds or replaces the Network of a name; nil removes it.
func (s *EgressSet) SetNetwork(name string, o *v1alpha1.Network) { s.candidates.setNetwork(name, o) }

// SetBlock adds or replaces the AddressBlock of a name; nil removes it.
func (s *EgressSet) SetBlock(name string, o *v1alpha1.AddressBlock) {
	if old, ok := s.claims[name]; ok {
		delete(s.claims, name)
		remove(s.of, old.egress, name)
		s.touched[name] = struct{}{}
	}
	if o == nil || o.Spec.Egress == "" {
		return
	}
	if a, single := claimedAddress(o); single {
		s.claims[name] = egressClaim{o.Spec.Egress, o.Spec.Network, a, o.Status.ActiveNode}
		add(s.of, o.Spec.Egress, name)
		s.touched[name] = struct{}{}
	}
}

// Changes are how the Egresses in effect differ from those at the call before.
func (s *EgressSet) Changes() EgressChanges {
	for egress := range s.candidates.touched {
		maps.Copy(s.touched, s.of[egress])
	}
	clear(s.candidates.touched)
	var c EgressChanges
	for name := range s.touched {
		claim, claimed := s.claims[name]
		e, inEffect := s.address(claim)
		note(&c.Addresses, s.addresses, name, e, claimed && inEffect)
	}
	for name := range s.changed {
		path, inEffect := s.path(name)
		note(&c.Paths, s.paths, name, path, inEffect)
	}
	clear(s.touched)
	clear(s.changed)
	return c
}

// address is the address that a claim gives to an Egress; false if it gives none. The controller
// writes an address into the status when it is the Egress's for sure.
func (s *EgressSet) address(c egressClaim) (intent.EgressAddress, bool) {
	o := s.objects[c.egress]
	if o == nil || o.Spec.Network != c.network || !slices.Contains(o.Status.Addresses, c.address.String()) {
		return intent.EgressAddress{}, false
	}
	nodes, leaving := s.candidates.of(o.Name)
	return intent.EgressAddress{
		Network: c.network, Address: c.address, Router: intent.DefaultRouterName, Egress: o.Name,
		Nodes: nodes, Leaving: leaving, Active: c.active, Failback: o.Spec.Failback,
	}, true
}

// path is what the Egress of a name says of the way; false if it has no effect.
func (s *EgressSet) path(name string) (intent.EgressPath, bool) {
	o := s.objects[name]
	if o == nil {
		return intent.EgressPath{}, false
	}
	destinations, err := EgressDestinations(o)
	if err != nil {
		return intent.EgressPath{}, false // the controller reports it
	}
	hops, err := PolicyNextHops(o)
	if err != nil {
		return intent.EgressPath{}, false
	}
	path := intent.EgressPath{Name: name, Network: o.Spec.Network, Destinations: destinations, NextHops: hops}
	if len(hops) > 0 && o.Spec.PolicyRoute.HealthCheck != nil {
		path.Check = nextHopCheck(*o.Spec.PolicyRoute.HealthCheck)
	}
	return path, true
}

// PolicyNextHops reads the next hops of an Egress, and sorts them; nil: it translates. An error
// names the field.
func PolicyNextHops(o *v1alpha1.Egress) ([]netip.Addr, error) {
	if o.Spec.PolicyRoute == nil {
		return nil, nil
	}
	var list []netip.Addr
	for i, text := range o.Spec.PolicyRoute.NextHops {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Is4In6() || a.Zone() != "" {
			return nil, fmt.Errorf("spec.policyRoute.nextHops[%d]: %q is not an address", i, text)
		}
		list = append(list, a)
	}
	if len(list) == 0 {
		return nil, errors.New("spec.policyRoute.nextHops: there is none: name one, or leave policyRoute out")
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list), nil
}

// nextHopCheck is the check with its defaults.
func nextHopCheck(c v1alpha1.NextHopHealthCheck) intent.NextHopCheck {
	return intent.NextHopCheck{
		Protocol: intent.NextHopProtocol(c.Type),
		Interval: time.Duration(cmp.Or(c.IntervalMilliseconds, 300)) * time.Millisecond,
		Failures: int(cmp.Or(c.FailureThreshold, 3)),
	}
}

// EgressDestinations reads those of an Egress, and sorts them. An error names the field.
func EgressDestinations(o *v1alpha1.Egress) ([]netip.Prefix, error) {
	var list []netip.Prefix
	for i, text := range o.Spec.Destinations {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() || p != p.Masked() {
			return nil, fmt.Errorf("spec.destinations[%d]: %q is not a CIDR without bits set after its length", i, text)
		}
		list = append(list, p)
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return slices.Compact(list), nil
}

// Selectors are those of all Egresses now. They do not change any more.
func (s *EgressSet) Selectors() EgressSelectors {
	if s.selectors == nil {
		s.selectors = NewEgressSelectors(slices.Collect(maps.Values(s.objects)))
	}
	return s.selectors
}

// EgressSelectors say which pods Egresses select, the oldest Egress first.
type EgressSelectors []EgressSelector

// EgressSelector says which pods an Egress selects.
type EgressSelector struct {
	Name             string
	Namespaces, Pods labels.Selector
}

// NewEgressSelectors reads the selectors of Egresses. One with a selector that cannot be read
// selects no pod: the controller reports it.
func NewEgressSelectors(list []*v1alpha1.Egress) EgressSelectors {
	list = slices.Clone(list)
	slices.SortFunc(list, Older)
	selectors := EgressSelectors{}
	for _, o := range list {
		if s, err := SelectorOfEgress(o); err == nil {
			selectors = append(selectors, s)
		}
	}
	return selectors
}

// SelectorOfEgress reads the selectors of an Egress. An error names the field.
func SelectorOfEgress(o *v1alpha1.Egress) (s EgressSelector, err error) {
	s.Name = o.Name
	if o.Spec.NamespaceSelector == nil && o.Spec.PodSelector == nil {
		return s, fmt.Errorf("spec: neither namespaceSelector nor podSelector is set; {} selects all")
	}
	if s.Namespaces, err = Select(o.Spec.NamespaceSelector); err != nil {
		return s, fmt.Errorf("spec.namespaceSelector: %w", err)
	}
	if s.Pods, err = Select(o.Spec.PodSelector); err != nil {
		return s, fmt.Errorf("spec.podSelector: %w", err)
	}
	return s, nil
}

// Selects reports whether the Egress selects a pod of a namespace.
func (s EgressSelector) Selects(namespace *corev1.Namespace, pod *corev1.Pod) bool {
	return namespace != nil && !pod.Spec.HostNetwork && s.Namespaces.Matches(labels.Set(namespace.Labels)) &&
		s.Pods.Matches(labels.Set(pod.Labels))
}

// Of is the name of the Egress that a pod leaves by: the oldest that selects it; empty if none
// does.
func (l EgressSelectors) Of(namespace *corev1.Namespace, pod *corev1.Pod) string {
	for _, s := range l {
		if s.Selects(namespace, pod) {
			return s.Name
		}
	}
	return ""
}
