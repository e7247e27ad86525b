// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/vrf"
)

// poolState is a pool while addresses are being decided.
type poolState struct {
	*v1alpha1.LoadBalancerPool
	verdict Verdict
	spec    []netipx.IPRange // to hand out of; none if the pool is refused or is being deleted
	had     []netipx.IPRange // in effect up to now
	next    []netip.Addr     // where the search in each of spec goes on

	namespaces map[string]*corev1.Namespace // all that are known, by name
}

// The order of claims of pools.
const (
	poolUnchanged = iota // all of it is in effect
	poolChanged
	poolNew
)

func (p *poolState) rank(spec []netipx.IPRange) int {
	switch {
	case len(p.had) == 0:
		return poolNew
	case p.covered(spec):
		return poolUnchanged
	}
	return poolChanged
}

// covered says whether all of a list is in effect.
func (p *poolState) covered(list []netipx.IPRange) bool {
	had := setOf(p.had)
	return !slices.ContainsFunc(list, func(r netipx.IPRange) bool { return !had.ContainsRange(r) })
}

// admitPools reads all pools and refuses those that are wrong, or that overlap others, the pods of
// a node, or what FloatingIPs may have: of two, the one that has come or grown later.
func admitPools(pools []*v1alpha1.LoadBalancerPool, nodes []*corev1.Node, networks []*v1alpha1.Network,
	namespaces map[string]*corev1.Namespace,
) []*poolState {
	type candidate struct {
		*poolState
		spec []netipx.IPRange
		rank int
	}
	var states []*poolState
	var claims []candidate
	for _, o := range pools {
		p := &poolState{LoadBalancerPool: o, had: translate.PoolRanges(o), namespaces: namespaces}
		states = append(states, p)
		spec, err := checkPool(o)
		switch {
		case o.DeletionTimestamp != nil:
			p.verdict = Verdict{Reason: v1alpha1.ReasonPoolNotReady, Message: "it is being deleted"}
		case err != nil:
			p.verdict = Verdict{Reason: v1alpha1.ReasonInvalid, Message: err.Error()}
		default:
			claims = append(claims, candidate{p, spec, p.rank(spec)})
		}
	}
	slices.SortFunc(claims, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), translate.Older(a.LoadBalancerPool, b.LoadBalancerPool))
	})
	a := &allocator{}
	a.nodes(nodes)
	var admitted []*poolState
	for _, c := range claims {
		message := overlapsPools(c.spec, admitted)
		if message == "" && c.rank != poolUnchanged {
			message = cmp.Or(overlapsPods(c.spec, &a.nodePrefixes), overlapsExternal(c.spec, networks))
		}
		if message != "" {
			c.verdict = Verdict{Reason: v1alpha1.ReasonAddressesOverlap, Message: message}
			continue
		}
		c.verdict = Verdict{Reason: v1alpha1.ReasonReady}
		c.poolState.spec = c.spec
		admitted = append(admitted, c.poolState)
	}
	slices.SortFunc(states, func(a, b *poolState) int { return cmp.Compare(a.Name, b.Name) })
	return states
}

func overlapsPools(spec []netipx.IPRange, others []*poolState) string {
	for _, o := range others {
		for _, theirs := range o.spec {
			for _, i := range spec {
				if i.Overlaps(theirs) {
					return fmt.Sprintf("%s overlaps %s of LoadBalancerPool %s", textOf(i), textOf(theirs), o.Name)
				}
			}
		}
	}
	return ""
}

func overlapsPods(spec []netipx.IPRange, pods *vrf.Space) string {
	for _, h := range pods.Held {
		for _, i := range spec {
			if i.Overlaps(netipx.RangeOfPrefix(h.Prefix)) {
				return fmt.Sprintf("%s overlaps %s", textOf(i), h)
			}
		}
	}
	return ""
}

// overlapsExternal is about addresses that FloatingIPs may have. They get none of a pool that was
// there first.
func overlapsExternal(spec []netipx.IPRange, networks []*v1alpha1.Network) string {
	for _, n := range networks {
		if !n.Spec.External || !translate.Admitted(n.Status.ID, n.Status.Conditions) {
			continue
		}
		theirs, err := translate.Obtainable(n)
		if err != nil {
			continue // it hands out nothing
		}
		for _, i := range spec {
			if theirs.Overlaps(setOf([]netipx.IPRange{i})) {
				return fmt.Sprintf("%s overlaps what external network %s has for FloatingIPs: "+
					"take others, or exclude it there by spec.subnets[].exclusions", textOf(i), n.Name)
			}
		}
	}
	return ""
}

func textOf(i netipx.IPRange) string { return i.From().String() + "-" + i.To().String() }

// find is the pool that an address is of: one that hands it out, else one that has done so.
func findPool(pools []*poolState, a netip.Addr) *poolState {
	if p := handsOut(pools, a); p != nil {
		return p
	}
	for _, p := range pools {
		if contains(p.had, a) {
			return p
		}
	}
	return nil
}

func handsOut(pools []*poolState, a netip.Addr) *poolState {
	for _, p := range pools {
		if contains(p.spec, a) {
			return p
		}
	}
	return nil
}

func contains(list []netipx.IPRange, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(i netipx.IPRange) bool { return i.Contains(a) })
}

func (p *poolState) ready() bool { return p.verdict.Ready() }

// assigns says whether Services get addresses of the pool that do not name it.
func (p *poolState) assigns() bool {
	return p.ready() && (p.Spec.AutoAssign == nil || *p.Spec.AutoAssign)
}

// admits says whether Services of a namespace may get addresses of the pool.
func (p *poolState) admits(namespace string) bool {
	if p.Spec.NamespaceSelector == nil {
		return true
	}
	n := p.namespaces[namespace]
	return n != nil && translate.Selects(p.Spec.NamespaceSelector, n)
}

// excludes says whether Services of a namespace lose the addresses of the pool that they have. A
// selector that cannot be read, or a namespace that is not known yet, excludes nothing: neither
// means that a right has been revoked.
func (p *poolState) excludes(namespace string) bool {
	if p.admits(namespace) || p.namespaces[namespace] == nil {
		return false
	}
	_, err := metav1.LabelSelectorAsSelector(p.Spec.NamespaceSelector)
	return err == nil
}

func (p *poolState) has(is6 bool) bool {
	return slices.ContainsFunc(p.spec, func(i netipx.IPRange) bool { return i.From().Is6() == is6 })
}

// free is the first address of a family that is not taken. What is taken must not become free
// between two searches.
func (p *poolState) free(is6 bool, taken func(netip.Addr) bool) (netip.Addr, bool) {
	if p.next == nil {
		for _, i := range p.spec {
			p.next = append(p.next, i.From())
		}
	}
	for n, i := range p.spec {
		if i.From().Is6() != is6 {
			continue
		}
		at := p.next[n]
		for i.Contains(at) && taken(at) {
			at = at.Next()
		}
		if p.next[n] = at; i.Contains(at) {
			return at, true
		}
	}
	return netip.Addr{}, false
}
