// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/intent"
)

// forgetDatagrams makes the kernel's conntrack forget UDP clients of what has come, gone or
// changed. A client that goes on sending would otherwise be translated forever as it was when it
// began, or not at all.
func (h *Host) forgetDatagrams(p *servicePlan, had []set) {
	var own map[netip.Addr]bool
	for i, f := range p.families {
		size := len(p.table.sets) / len(p.families)
		stale := f.stale(had[i*size:(i+1)*size], p.table.sets[i*size:(i+1)*size])
		if stale.none() {
			continue
		}
		if own == nil {
			var err error
			if own, err = localAddresses(); err != nil {
				h.log.Warn("cannot delete conntrack entries of UDP clients of changed Services",
					"err", err)
				return
			}
		}
		stale.own = own
		// A dump that was interrupted says so, and has been acted on as far as it went.
		if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(family(f.hop)),
			stale); err != nil &&
			!errors.Is(err, netlink.ErrDumpInterrupted) {
			h.log.Warn("cannot delete conntrack entries of UDP clients of changed Services",
				"err", err)
		}
	}
}

// staleDatagrams picks connections of UDP.
type staleDatagrams struct {
	// ports are node ports, frontends external addresses with their ports, as the sets have them.
	ports, frontends map[string]bool
	own              map[netip.Addr]bool
	// stay are the places that frontends lead to, behind these: clients that are led there keep it,
	// as those do that have come since the change.
	stay map[string]bool
}

// stale are the keys of UDP that differ between two states of the family's sets.
func (f serviceFamily) stale(had, has []set) *staleDatagrams {
	s := &staleDatagrams{ports: map[string]bool{}, frontends: map[string]bool{}, stay: map[string]bool{}}
	differ := func(name string, proto int, into map[string]bool) {
		i := f.index(has, name)
		for _, pair := range [][2]map[string]string{{had[i].elements, has[i].elements},
			{has[i].elements, had[i].elements}} {
			for k, v := range pair[0] {
				if w, ok := pair[1][k]; (!ok || v != w) && k[proto] == byte(intent.UDP) {
					into[k] = true
				}
			}
		}
	}
	differ("nodeports", 0, s.ports)
	differ("external", int(f.sz), s.frontends)
	hosts, hosted := map[string]bool{}, map[string]bool{}
	for _, name := range [...]string{"inside", "outside", "sticky-inside", "sticky-outside"} {
		i := f.index(has, name)
		if i < 0 {
			continue
		}
		differ(name, int(f.sz), hosts)
		for key, to := range has[i].elements {
			at := f.asked(key)
			s.stay[at+to], hosted[at] = true, true
		}
	}
	for key := range hosts {
		if at := f.asked(key); strings.HasPrefix(at, string(f.hop.AsSlice())) {
			s.ports[at[f.sz:]] = true
		} else {
			s.frontends[at] = true
		}
	}
	s.stayLed(f, has, hosted)
	return s
}

// stayLed adds to stay where the kernel leads the frontends to, but those with endpoints of hosts.
func (s *staleDatagrams) stayLed(f serviceFamily, has []set, hosted map[string]bool) {
	nodePorts, external := has[f.index(has, "nodeports")].elements, has[f.index(has, "external")].elements
	for key := range s.ports {
		if at := string(f.hop.AsSlice()) + key; !hosted[at] {
			if _, served := nodePorts[key]; served {
				s.stay[at+string(f.hop.AsSlice())+key[4:]] = true
			}
		}
	}
	for at := range s.frontends {
		if to, led := external[at]; led && !hosted[at] {
			s.stay[at+to] = true
		}
	}
}

// index is where the family's set of a name is among some; -1: nowhere.
func (f serviceFamily) index(sets []set, name string) int {
	return slices.IndexFunc(sets, func(s set) bool { return s.name == name+f.name })
}

// asked is the frontend of a key of a map of host endpoints.
func (f serviceFamily) asked(key string) string { return key[:len(key)-4] }

func (s *staleDatagrams) none() bool { return len(s.ports)+len(s.frontends) == 0 }

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (s *staleDatagrams) MatchConntrackFlow(c *netlink.ConntrackFlow) bool {
	if c.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	to, port := addr(c.Forward.DstIP), service(intent.UDP, c.Forward.DstPort)
	at := frontend(to, intent.UDP, c.Forward.DstPort)
	ported := s.own[to] && s.ports[port]
	if !s.frontends[at] && !ported {
		return false
	}
	if ported {
		at = string(nodePortHop(to).AsSlice()) + port
	}
	return !s.stay[at+endpoint(addr(c.Reverse.SrcIP), c.Reverse.SrcPort)]
}
