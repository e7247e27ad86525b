// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/ipam"
)

// slots are those of ipam.Slots that attachments get. What is ready for the addresses of a slot is
// as the last pod there needed it, so a pod of the same kind gets it rather than another one. Which
// pods had which slot is known from when the Store was opened.
type slots struct {
	// step is of the node's podCIDRs, and ofBlock of its blocks; 0: addresses are handed out one by
	// one.
	step, ofBlock, more int
	last                map[place]podName
}

// podName is a pod's namespace, and the parts of its name.
type podName struct {
	namespace string
	parts     []string
}

func (a *Attachment) podName() podName {
	return podName{a.PodNamespace, strings.Split(a.PodName, "-")}
}

func (s *slots) stepOf(space string) int {
	if space == "" {
		return s.step
	}
	return s.ofBlock
}

// note takes that an attachment has had its addresses.
func (s *slots) note(a Attachment) {
	if s.stepOf(a.space()) > 0 && len(a.Addresses) > 0 {
		s.last[place{a.space(), a.Addresses[0].Addr()}] = a.podName()
	}
}

// choose finds a free slot for an attachment, of equal ones the first one after what was handed out
// last; nil: there is none.
func (s *slots) choose(
	a Attachment, ranges []ipam.Range, after netip.Addr, taken func(netip.Addr) bool,
) (chosen []netip.Addr) {
	pod, step := a.podName(), s.stepOf(a.space())
	ready := len(ipam.Slots(ranges, step, step, taken))
	free := ipam.Slots(ranges, step, ready+s.more, taken)
	next := max(slices.IndexFunc(free[:ready], func(slot []netip.Addr) bool { return after.Less(slot[0]) }), 0)
	best := 0
	for _, i := range order(next, ready, len(free)) {
		rank := s.rank(pod, place{a.space(), free[i][0]})
		if (i < ready || rank > fresh) && (chosen == nil || rank > best) {
			chosen, best = free[i], rank
		}
	}
	return chosen
}

// order is the indexes up to ready, from next on, and then the others.
func order(next, ready, all int) []int {
	list := make([]int, 0, all)
	for i := range ready {
		list = append(list, (next+i)%ready)
	}
	for i := ready; i < all; i++ {
		list = append(list, i)
	}
	return list
}

// The ranks of a slot for a pod that is not of the kind of the last one there.
const (
	others = iota // another pod would rather have it
	fresh         // none has had it
)

// rank says how well a slot suits a pod. Pods of one kind have names that begin alike, up to the
// parts that tell them apart.
func (s *slots) rank(pod podName, primary place) int {
	last, known := s.last[primary]
	if !known {
		return fresh
	}
	common := 0
	for common < min(len(pod.parts), len(last.parts)) && pod.parts[common] == last.parts[common] {
		common++
	}
	switch {
	case pod.namespace != last.namespace || common == 0:
		return others
	case len(pod.parts) == len(last.parts):
		return fresh + 2*common + 1
	}
	return fresh + 2*common
}
