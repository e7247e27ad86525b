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

	"coelan.io/coelan/internal/reserved"
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
	var want []netlink.Rule
	if d.Services.Native {
		floating = d.Services.Floating
	}
	for _, a := range floating {
		want = append(want, *replyRule(a))
	}
	for _, f := range p.families {
		if slices.ContainsFunc(floating, func(a netip.Addr) bool { return a.Is6() == f.ipv6 }) {
			written, err := h.applyReplyRoute(d.Gateway.Name, f, p.of.via(f))
			note("route of answers of floating IPs", written, err)
			if d.Services.ByAddress {
				want = append(want, *markedRule(f))
			}
		}
	}
	add, del := planReplyRules(have, want)
	for _, r := range add {
		note(fmt.Sprintf("rule for answers %s", replyText(r)), true, h.nl.RuleAdd(&r))
	}
	for _, r := range del {
		note(fmt.Sprintf("rule for answers %s: delete", replyText(r)), true, h.nl.RuleDel(&r))
	}
	if len(floating) == 0 && len(have) > 0 {
		errs = append(errs, h.removeReplyRoutes())
	}
	return n, errors.Join(errs...)
}

// planReplyRules leads from the rules that there are to those that are wanted. A rule that leads
// elsewhere is none of them.
func planReplyRules(have, want []netlink.Rule) (add, del []netlink.Rule) {
	missing := map[string]bool{}
	for _, r := range want {
		missing[replyText(r)] = true
	}
	for _, r := range have {
		if text := replyText(r); missing[text] && r.Table == repliesTable && r.Priority == repliesPriority {
			delete(missing, text)
			continue
		}
		del = append(del, r)
	}
	for _, r := range want {
		if missing[replyText(r)] {
			add = append(add, r)
		}
	}
	return add, del
}

// replyText says what a rule is about.
func replyText(r netlink.Rule) string {
	if r.Src != nil {
		return "from " + r.Src.String()
	}
	mask := ^uint32(0)
	if r.Mask != nil {
		mask = *r.Mask
	}
	return fmt.Sprintf("of family %d marked %#x/%#x", r.Family, r.Mark, mask)
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
			if r.Protocol == uint8(Protocol) && (r.Src != nil || r.Mark != 0) {
				r.Family = family
				own = append(own, r)
			}
		}
	}
	return own, nil
}

func replyRule(a netip.Addr) *netlink.Rule {
	r := newReplyRule(family(a))
	r.Src = ipNet(netip.PrefixFrom(a, a.BitLen()))
	return r
}

// markedRule is that of all answers to clients on wires, whatever their source is when they are
// routed.
func markedRule(f serviceFamily) *netlink.Rule {
	mask := uint32(reserved.WireMark)
	r := newReplyRule(family(f.masked))
	r.Mark, r.Mask = reserved.WireMark, &mask
	return r
}

func newReplyRule(family int) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Priority, r.Table, r.Protocol = family, repliesPriority, repliesTable, uint8(Protocol)
	return r
}

// applyReplyRoute keeps the only route of the table of a family.
func (h *Host) applyReplyRoute(gateway string, f serviceFamily, via netip.Addr) (written bool, err error) {
	index := h.gatewayIndex(gateway)
	if index == 0 {
		return false, fmt.Errorf("interface %s is missing or down", gateway)
	}
	all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if f.ipv6 {
		all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	want := Route{Destination: all, Via: via, Gateway: true}.netlink(index)
	want.Table = repliesTable
	have, err := h.replyRoutes(family(f.masked))
	if err != nil {
		return false, err
	}
	for _, r := range have {
		if r.LinkIndex == index && r.Gw.Equal(net.IP(via.AsSlice())) {
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
			errs = append(errs, fmt.Errorf("rule for answers %s: delete: %w", replyText(r), err))
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
