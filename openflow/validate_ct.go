// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"errors"
	"fmt"
	"net/netip"
)

func (c *checker) ct(a *CT) error {
	if err := c.prereq(needIP); err != nil {
		return err
	}
	if v := find(c.match, FieldCTState); v != nil && a.Commit && CTStateFlags(v.value.lo)&CTInv != 0 {
		return errors.New("an invalid packet cannot be committed")
	}
	if !a.Commit && (a.Force || len(a.Exec) > 0) {
		return errors.New("force and exec need commit")
	}
	if a.ZoneFrom.Set() {
		if a.ZoneFrom.N != 16 {
			return fmt.Errorf("a zone has 16 bits, %s has %d", a.ZoneFrom, a.ZoneFrom.N)
		}
		if err := c.readable(a.ZoneFrom, 16); err != nil {
			return err
		}
	}
	if a.NAT != nil {
		if err := c.nat(a.NAT); err != nil {
			return err
		}
	}
	inner := checker{match: c.match, anyPacket: c.anyPacket, inCT: true}
	for _, e := range a.Exec {
		switch e.(type) {
		case SetFieldAction, MoveAction:
		default:
			return fmt.Errorf("exec(%s): only set_field and move", e)
		}
		if err := inner.action(e); err != nil {
			return fmt.Errorf("exec: %w", err)
		}
	}
	return nil
}

func (c *checker) nat(n *NAT) error {
	if n.SNAT && n.DNAT {
		return errors.New("nat of both source and destination")
	}
	if !n.SNAT && !n.DNAT && *n != (NAT{}) {
		return errors.New("nat without source or destination takes no range and no flags")
	}
	if !n.AddrMin.IsValid() {
		if n.PortMin != 0 || n.PortMax != 0 || n.AddrMax != (netip.Addr{}) {
			return errors.New("nat of ports needs an address")
		}
		return nil
	}
	family := needIPv6
	if n.AddrMin.Is4() {
		family = needIPv4
	}
	switch {
	case n.AddrMax.IsValid() && n.AddrMax.Is4() != n.AddrMin.Is4(), n.AddrMax.IsValid() && n.AddrMax.Less(n.AddrMin):
		return fmt.Errorf("nat: %s to %s is no range", n.AddrMin, n.AddrMax)
	case n.PortMax != 0 && n.PortMax < n.PortMin, n.PortMax != 0 && n.PortMin == 0:
		return fmt.Errorf("nat: ports %d to %d are no range", n.PortMin, n.PortMax)
	case n.Hash && n.Random:
		return errors.New("nat: hash and random exclude each other")
	}
	return c.prereq(family)
}

func (c *checker) learn(a *Learn) error {
	if a.Table > tableMax {
		return fmt.Errorf("table %d: the last one is %d", a.Table, tableMax)
	}
	if a.ResultDst.Set() {
		if err := c.bits(a.ResultDst, 1); err != nil {
			return err
		}
	}
	for i := range a.Specs {
		s := &a.Specs[i]
		switch {
		case s.Kind != LearnOutput && !s.Dst.Set():
			return fmt.Errorf("spec %d sets no field: a value with gaps in its mask, or without a field", i)
		case s.Src.Set() && s.Kind != LearnOutput && s.Src.N != s.Dst.N:
			return fmt.Errorf("%s: %d bits into %d", s, s.Src.N, s.Dst.N)
		case s.Src.Set():
			if err := c.readable(s.Src, 1024); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
	}
	return nil
}
