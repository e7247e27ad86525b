// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// repliesTable is the routing table of what Services answer to clients on the wires of physical
	// networks: all of it goes to the bridge, whatever the host's own routes to the clients are.
	repliesTable = int(Protocol)
	// repliesPriority is that of the rules that lead there, before the main table's.
	repliesPriority = 500
)

// applyReplies has what comes from a floating IP of a Service go to the bridge.
func (h *Host) applyReplies(d Desired, p *servicePlan) (int, error) {
	have, err := h.replyRules()
	if err != nil {
		return 0, err
	}
	var n int
	var errs []error
	note := func(what string, written bool, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		} else if written {
			n++
		}
	}
	families := map[bool]bool{}
	for _, a := range d.Services.Floating {
		families[a.Is6()] = d.Services.Native
	}
	for _, f := range p.families {
		if families[f.ipv6] {
			written, err := h.applyReplyRoute(d.Gateway.Name, f)
			note("route of answers of floating IPs", written, err)
		}
	}
	for _, a := range d.Services.Floating {
		if _, there := have[a]; there || !d.Services.Native {
			if d.Services.Native {
				delete(have, a)
			}
			continue
		}
		note(fmt.Sprintf("rule for answers from %s", a), true, h.nl.RuleAdd(replyRule(a)))
	}
	for a, rule := range have {
		note(fmt.Sprintf("rule for answers from %s: delete", a), true, h.nl.RuleDel(&rule))
	}
	return n, errors.Join(errs...)
}

// replyRules are those that there are, by the floating IP.
func (h *Host) replyRules() (map[netip.Addr]netlink.Rule, error) {
	own := map[netip.Addr]netlink.Rule{}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		// Not by h.nl: the request of this library does not pass strict checks.
		list, err := dump(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return nil, fmt.Errorf("list routing rules: %w", err)
		}
		for _, r := range list {
			if r.Protocol == uint8(Protocol) && r.Src != nil {
				r.Family = family
				own[addr(r.Src.IP)] = r
			}
		}
	}
	return own, nil
}

func replyRule(a netip.Addr) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Priority, r.Table, r.Protocol = family(a), repliesPriority, repliesTable, uint8(Protocol)
	r.Src = ipNet(netip.PrefixFrom(a, a.BitLen()))
	return r
}

// applyReplyRoute keeps the only route of the table of a family.
func (h *Host) applyReplyRoute(gateway string, f serviceFamily) (written bool, err error) {
	index := h.gatewayIndex(gateway)
	if index == 0 {
		return false, fmt.Errorf("interface %s is missing or down", gateway)
	}
	all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if f.ipv6 {
		all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	want := Route{Destination: all, Via: f.masked, Gateway: true}.netlink(index)
	want.Table = repliesTable
	have, err := h.replyRoutes(family(f.masked))
	if err != nil {
		return false, err
	}
	for _, r := range have {
		if r.LinkIndex == index && r.Gw.Equal(net.IP(f.masked.AsSlice())) {
			return false, nil
		}
	}
	return true, h.nl.RouteReplace(&want)
}

func (h *Host) replyRoutes(family int) ([]netlink.Route, error) {
	list, err := dump(func() ([]netlink.Route, error) {
		return h.nl.RouteListFiltered(family, &netlink.Route{Table: repliesTable}, netlink.RT_FILTER_TABLE)
	})
	if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("list routes of table %d: %w", repliesTable, err)
	}
	return list, nil
}

// removeReplies deletes rules and routes.
func (h *Host) removeReplies() error {
	rules, err := h.replyRules()
	errs := []error{err}
	for a, r := range rules {
		if err := h.nl.RuleDel(&r); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("rule for answers from %s: delete: %w", a, err))
		}
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := h.replyRoutes(family)
		errs = append(errs, err)
		for _, r := range routes {
			if err := h.nl.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				errs = append(errs, fmt.Errorf("route of table %d: delete: %w", repliesTable, err))
			}
		}
	}
	return errors.Join(errs...)
}
