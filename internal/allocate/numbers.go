// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
)

// Range is of numbers, both ends included.
type Range struct{ First, Last int32 }

// String is first-last.
func (r Range) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// DefaultVNIs leave the numbers below to users' networks.
var DefaultVNIs = Range{First: 70000, Last: 1<<24 - 1}

// Ids of others than the default objects, which have 1.
var (
	networkIDs = Range{First: 2, Last: 1<<24 - 1}
	// Above are other zones of conntrack.
	routerIDs = Range{First: 2, Last: 1<<15 - 3}
)

// Numbers say which are given out, and which were last: the search goes on behind them, so that a
// number that was given back rests as long as possible. Agents with older caches would take one
// object for another.
type Numbers struct {
	VNIs                             Range
	LastNetwork, LastRouter, LastVNI int32 // 0: the highest in use
}

// ledger records the owner of each number.
type ledger struct {
	next                   Numbers
	networks, routers, vni map[int32]string
	// asked are the VNIs that specifications ask for; they are not allocated to other objects.
	asked map[int32]bool
}

// newLedger enters what the objects have, the oldest first; one that has the number
// of another loses it.
func newLedger(c Cluster, numbers Numbers) *ledger {
	l := &ledger{
		next:     numbers,
		networks: map[int32]string{int32(intent.DefaultNetwork): "network " + intent.DefaultNetworkName},
		routers:  map[int32]string{int32(intent.DefaultRouter): "router " + intent.DefaultRouterName},
		vni:      map[int32]string{int32(intent.DefaultNetwork): "network " + intent.DefaultNetworkName},
		asked:    map[int32]bool{},
	}
	for _, n := range inOrder(c.Networks, networkID) {
		if n.Spec.VNI != nil {
			l.asked[*n.Spec.VNI] = true
		}
		enter(l.networks, n.Status.ID, "network "+n.Name)
		enter(l.vni, n.Status.VNI, "network "+n.Name)
	}
	for _, r := range inOrder(c.Routers, routerID) {
		enter(l.routers, r.Status.ID, "router "+r.Name)
		enter(l.vni, r.Status.VNI, "router "+r.Name)
	}
	l.next.LastNetwork = last(l.next.LastNetwork, l.networks, networkIDs, nil)
	l.next.LastRouter = last(l.next.LastRouter, l.routers, routerIDs, nil)
	l.next.LastVNI = last(l.next.LastVNI, l.vni, l.next.VNIs, l.asked)
	return l
}

func enter(book map[int32]string, number int32, owner string) {
	if _, taken := book[number]; !taken && number != 0 {
		book[number] = owner
	}
}

// last is the number to go on behind: the known one, or else the highest that was
// given out by itself.
func last(known int32, book map[int32]string, in Range, asked map[int32]bool) int32 {
	if known != 0 {
		return known
	}
	highest := in.First - 1
	for n := range book {
		if n <= in.Last && !asked[n] {
			highest = max(highest, n)
		}
	}
	return highest
}

// free finds the next number that is not taken, and wraps around at the end.
func free(after int32, in Range, taken func(int32) bool) (int32, bool) {
	n := after
	for range in.Last - in.First + 1 {
		if n++; n < in.First || n > in.Last {
			n = in.First
		}
		if !taken(n) {
			return n, true
		}
	}
	return 0, false
}

func (l *ledger) network(n *v1alpha1.Network) Verdict {
	owner := "network " + n.Name
	if n.Name == intent.DefaultNetworkName {
		return Verdict{ID: int32(intent.DefaultNetwork), VNI: int32(intent.DefaultNetwork),
			Reason: v1alpha1.ReasonReady}
	}
	v := Verdict{Reason: v1alpha1.ReasonReady}
	if n.Spec.Type == v1alpha1.Overlay {
		var refused Verdict
		if v.VNI, refused = l.networkVNI(n, owner); refused.Reason != "" {
			return refused
		}
	}
	var ok bool
	if v.ID, ok = number(l.networks, n.Status.ID, owner, networkIDs, &l.next.LastNetwork, nil); !ok {
		return exhausted("ids of Networks", networkIDs)
	}
	enter(l.vni, v.VNI, owner)
	return v
}

// networkVNI is the VNI that a Network asks for, has, or can have.
func (l *ledger) networkVNI(n *v1alpha1.Network, owner string) (int32, Verdict) {
	if n.Spec.VNI == nil {
		vni, ok := number(l.vni, n.Status.VNI, owner, l.next.VNIs, &l.next.LastVNI, l.asked)
		if !ok {
			return 0, exhausted("VNIs", l.next.VNIs)
		}
		return vni, Verdict{}
	}
	if other, taken := l.vni[*n.Spec.VNI]; taken && other != owner {
		return 0, Verdict{Reason: v1alpha1.ReasonVNITaken,
			Message: fmt.Sprintf("VNI %d is that of %s", *n.Spec.VNI, other)}
	}
	return *n.Spec.VNI, Verdict{}
}

func (l *ledger) router(r *v1alpha1.Router) Verdict {
	if r.Name == intent.DefaultRouterName {
		return Verdict{ID: int32(intent.DefaultRouter), VNI: int32(intent.DefaultNetwork), Reason: v1alpha1.ReasonReady}
	}
	owner := "router " + r.Name
	v := Verdict{Reason: v1alpha1.ReasonReady}
	var ok bool
	if v.ID, ok = number(l.routers, r.Status.ID, owner, routerIDs, &l.next.LastRouter, nil); !ok {
		return exhausted("ids of Routers", routerIDs)
	}
	if v.VNI, ok = number(l.vni, r.Status.VNI, owner, l.next.VNIs, &l.next.LastVNI, l.asked); !ok {
		return exhausted("VNIs", l.next.VNIs)
	}
	return v
}

// number is the one that the owner has, or a new one, which is its own from now on.
func number(book map[int32]string, has int32, owner string, in Range, after *int32, not map[int32]bool) (int32, bool) {
	if has != 0 && book[has] == owner {
		return has, true
	}
	n, ok := free(*after, in, func(n int32) bool { return book[n] != "" || not[n] })
	if ok {
		book[n], *after = owner, n
	}
	return n, ok
}

func exhausted(what string, in Range) Verdict {
	return Verdict{
		Reason:  v1alpha1.ReasonIDsExhausted,
		Message: fmt.Sprintf("all %s of %s are taken: delete what is not used any more", what, in),
	}
}
