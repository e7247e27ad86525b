// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/intent"
)

// serviceClaims says which Service has what only one can have: an address with protocol and port,
// or a node port.
type serviceClaims map[claimed][]claimant

// claimed is what can be had. Node ports have no address.
type claimed struct {
	ip       netip.Addr
	protocol intent.Protocol
	port     uint16
}

// claimant is one place in one Service that claims something. The first in a list has it.
type claimant struct {
	of    *serviceEntry
	field claimField
	port  int32 // its place in the record's ports
}

// claimField is where it is claimed, in the order of precedence within a Service.
type claimField uint8

const (
	clusterIPClaim claimField = iota
	balancerClaim
	externalClaim
	nodePortClaim
)

// compare puts claimants of the same into order. The cluster itself hands out ClusterIPs, and a
// controller load balancers' addresses, so that no external IP, which any user may write, takes
// them away; among equals, the oldest Service is first.
func (c claimant) compare(o claimant) int {
	if d := cmp.Compare(c.field, o.field); d != 0 {
		return d
	}
	a, b := c.of.record, o.of.record
	return cmp.Or(
		cmp.Compare(a.created, b.created), cmp.Compare(a.uid, b.uid), cmp.Compare(a.namespace, b.namespace),
		cmp.Compare(a.name, b.name),
		cmp.Compare(c.port, o.port),
	)
}

// claims yields all that the Service of an entry claims.
func (e *serviceEntry) claims() iter.Seq2[claimed, claimant] {
	return func(yield func(claimed, claimant) bool) {
		r := e.record
		if r == nil || !r.balanced() {
			return
		}
		for i, p := range r.ports {
			at := claimed{protocol: p.protocol, port: p.port}
			by := claimant{of: e, port: int32(i)}
			for _, list := range []struct {
				field claimField
				of    iter.Seq[netip.Addr]
			}{
				{clusterIPClaim, valid(r.clusterIPs[:])},
				{balancerClaim, ipsOf(r.balancerIPs)},
				{externalClaim, ipsOf(r.externalIPs)},
			} {
				by.field = list.field
				for at.ip = range list.of {
					if !yield(at, by) {
						return
					}
				}
			}
			by.field = nodePortClaim
			if p.nodePort != 0 && !yield(claimed{protocol: p.protocol, port: p.nodePort}, by) {
				return
			}
		}
	}
}

func valid(list []netip.Addr) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, ip := range list {
			if ip.IsValid() && !yield(ip) {
				return
			}
		}
	}
}

func ipsOf(list []recordAddress) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, a := range list {
			if !yield(a.ip) {
				return
			}
		}
	}
}

// add enters all claims of an entry, and calls touched with each other entry that may lose
// something, or get it from another.
func (c serviceClaims) add(e *serviceEntry, touched func(*serviceEntry)) {
	for what, by := range e.claims() {
		list := c[what]
		at, found := slices.BinarySearchFunc(list, by, claimant.compare)
		if found {
			continue
		}
		touch(list, e, touched)
		c[what] = slices.Insert(list, at, by)
	}
}

// remove takes all claims of an entry out again. The entry still has the record that it had when
// they were added.
func (c serviceClaims) remove(e *serviceEntry, touched func(*serviceEntry)) {
	for what, by := range e.claims() {
		list := c[what]
		at, found := slices.BinarySearchFunc(list, by, claimant.compare)
		if !found {
			continue
		}
		if list = slices.Delete(list, at, at+1); len(list) == 0 {
			delete(c, what)
			continue
		}
		c[what] = list
		touch(list, e, touched)
	}
}

func touch(list []claimant, but *serviceEntry, touched func(*serviceEntry)) {
	for _, o := range list {
		if o.of != but {
			touched(o.of)
		}
	}
}

// has says whether a claimant has what it claims, and if not, which one does: the first with a
// claim that is not refused.
func (c serviceClaims) has(what claimed, by claimant,
	refused func(claimant, netip.Addr) string,
) (holder claimant, ok bool) {
	for _, o := range c[what] {
		if o == by || refused(o, what.ip) == "" {
			return o, o == by
		}
	}
	return by, true
}

// lost says why a claim came to nothing, and what to do.
func (c claimant) lost(what claimed, holder claimant) string {
	of := "service " + holder.of.key
	if holder.of == c.of {
		of = "this very Service"
	}
	if !what.ip.IsValid() {
		return fmt.Sprintf("is the %s node port of %s already; choose another", what.protocol, of)
	}
	kind := map[claimField]string{clusterIPClaim: "the ClusterIP", balancerClaim: "a load balancer's address",
		externalClaim: "an external IP"}[holder.field]
	if c.field == clusterIPClaim {
		return fmt.Sprintf("is %s of %s on %s port %d already; create the Service anew", kind, of, what.protocol,
			what.port)
	}
	return fmt.Sprintf("is %s of %s on %s port %d already; choose another address or port", kind, of, what.protocol,
		what.port)
}
