// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"fmt"
	"net/netip"
	"strings"
)

// parseCT reads the arguments of ct.
func parseCT(s string) (Action, error) {
	var a CT
	for _, item := range splitItems(s) {
		if err := a.parseItem(item); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *CT) parseItem(item string) (err error) {
	name, value, _ := strings.Cut(item, "=")
	switch {
	case item == "commit":
		a.Commit = true
	case item == "force":
		a.Force = true
	case name == "table":
		a.Table = new(uint8)
		return parseNum(value, a.Table)
	case name == "zone" && strings.Contains(value, "["):
		a.ZoneFrom, err = parseSubfield(value)
	case name == "zone":
		return parseNum(value, &a.Zone)
	case name == "alg":
		switch value {
		case "ftp":
			a.ALG = ALGFTP
		case "tftp":
			a.ALG = ALGTFTP
		default:
			return parseNum(value, &a.ALG)
		}
	case item == "nat":
		a.NAT = &NAT{}
	case strings.HasPrefix(item, "nat("):
		_, arg := cutArg(item)
		a.NAT, err = parseNAT(arg)
	case strings.HasPrefix(item, "exec("):
		_, arg := cutArg(item)
		a.Exec, err = ParseActions(arg)
	default:
		return fmt.Errorf("unknown %q", item)
	}
	return err
}

// parseNAT reads the arguments of nat.
func parseNAT(s string) (*NAT, error) {
	n := &NAT{}
	for _, item := range splitItems(s) {
		name, value, hasRange := strings.Cut(item, "=")
		switch name {
		case "src":
			n.SNAT = true
		case "dst":
			n.DNAT = true
		case "persistent":
			n.Persistent = true
		case "hash":
			n.Hash = true
		case "random":
			n.Random = true
		default:
			return nil, fmt.Errorf("unknown %q", item)
		}
		if hasRange {
			if err := n.parseRange(value); err != nil {
				return nil, err
			}
		}
	}
	return n, nil
}

// parseRange reads addr, addr-addr, and either with :port or :port-port; an IPv6 address
// before a port has brackets.
func (n *NAT) parseRange(s string) (err error) {
	addrs, ports := s, ""
	if i := strings.LastIndexByte(s, ']'); i >= 0 {
		addrs, ports = s[:i+1], strings.TrimPrefix(s[i+1:], ":")
	} else if strings.Count(s, ":") == 1 {
		addrs, ports, _ = strings.Cut(s, ":")
	}
	low, high, isRange := strings.Cut(addrs, "-")
	if n.AddrMin, err = netip.ParseAddr(strings.Trim(low, "[]")); err != nil {
		return err
	}
	if isRange {
		if n.AddrMax, err = netip.ParseAddr(strings.Trim(high, "[]")); err != nil {
			return err
		}
	}
	if ports == "" {
		return nil
	}
	low, high, isRange = strings.Cut(ports, "-")
	if err = parseNum(low, &n.PortMin); err == nil && isRange {
		err = parseNum(high, &n.PortMax)
	}
	return err
}
