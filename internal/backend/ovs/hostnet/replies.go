// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

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
	var floating []netip.Addr
	if d.Services.Native {
		floating = d.Services.Floating
	}
	for _, f := range p.families {
		if slices.ContainsFunc(floating, func(a netip.Addr) bool { return a.Is6() == f.ipv6 }) {
			written, err := h.applyReplyRoute(d.Gateway.Name, f)
			note("route of answers of floating IPs", written, err)
		}
	}
	add, del := planReplyRules(have, floating)
	for _, r := range add {
		note(fmt.Sprintf("rule for answers from %s", r.Src), true, h.nl.RuleAdd(&r))
	}
	for _, r := range del {
		note(fmt.Sprintf("rule for answers from %s: delete", r.Src), true, h.nl.RuleDel(&r))
	}
	if len(floating) == 0 && len(have) > 0 {
		errs = append(errs, h.removeReplyRoutes())
	}
	return n, errors.Join(errs...)
}

// planReplyRules leads from the rules that there are to one for each floating IP. A rule that leads
// elsewhere is not that of its address.
func planReplyRules(have []netlink.Rule, floating []netip.Addr) (add, del []netlink.Rule) {
	missing := map[netip.Prefix]bool{}
	for _, a := range floating {
		missing[netip.PrefixFrom(a, a.BitLen())] = true
	}
	for _, r := range have {
		if src := prefix(r.Src); missing[src] && r.Table == repliesTable && r.Priority == repliesPriority {
			delete(missing, src)
			continue
		}
		del = append(del, r)
	}
	for _, a := range floating {
		if missing[netip.PrefixFrom(a, a.BitLen())] {
			add = append(add, *replyRule(a))
		}
	}
	return add, del
}

// replyRules are those that there are, whatever they say.
func (h *Host) replyRules() (own []netlink.Rule, err error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		// Not by h.nl: the request of this library does not pass strict checks.
		list, err := dump(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return nil, fmt.Errorf("list routing rules: %w", err)
		}
		for _, r := range list {
			if r.Protocol == uint8(Protocol) && r.Src != nil {
				r.Family = family
				own = append(own, r)
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
	for _, r := range rules {
		if err := h.nl.RuleDel(&r); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("rule for answers from %s: delete: %w", r.Src, err))
		}
	}
	return errors.Join(append(errs, h.removeReplyRoutes())...)
}

func (h *Host) removeReplyRoutes() error {
	var errs []error
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
