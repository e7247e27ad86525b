// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// tableName is the nftables table (family inet) that belongs to Coelan alone.
const tableName = "coelan"

// SNAT is the masquerading of pods' packets.
type SNAT struct {
	// Enabled turns masquerading on. The table exists in any case: it also keeps redirects away from pods.
	Enabled bool
	// Pods are the sources: this node's podCIDRs.
	Pods []netip.Prefix
	// Direct are the destinations that see the pods' own addresses: all nodes' podCIDRs and the configured exclusions.
	Direct []netip.Prefix
}

// addressSet is one named set of the table.
type addressSet struct {
	name   string
	typ    nftables.SetDatatype
	ranges []addressRange
}

// sets makes the four sets: sources and destinations of both families.
func (s SNAT) sets() []addressSet {
	return []addressSet{
		{"pods4", nftables.TypeIPAddr, ranges(s.Pods, netip.Addr.Is4)},
		{"direct4", nftables.TypeIPAddr, ranges(s.Direct, netip.Addr.Is4)},
		{"pods6", nftables.TypeIP6Addr, ranges(s.Pods, netip.Addr.Is6)},
		{"direct6", nftables.TypeIP6Addr, ranges(s.Direct, netip.Addr.Is6)},
	}
}

// applySNAT compares the table with what is desired. Other addresses are exchanged inside the sets; any other
// difference replaces the whole table. Both are one transaction of the kernel: no packet sees a half.
func (h *Host) applySNAT(d Desired) (int, error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return 0, fmt.Errorf("nftables: %w", err)
	}
	defer func() { _ = conn.CloseLasting() }()
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	chains := d.SNAT.chains(table, d.Gateway.Name)
	sets := d.SNAT.sets()
	whole, err := sameStructure(conn, table, chains, sets)
	if err != nil {
		return 0, fmt.Errorf("nftables table %s: %w", tableName, err)
	}
	var n int
	if whole {
		if n, err = exchangeElements(conn, table, sets); err != nil {
			return 0, fmt.Errorf("nftables table %s: %w", tableName, err)
		}
	} else {
		replaceTable(conn, table, chains, sets)
		n = 1
	}
	if n == 0 {
		return 0, nil
	}
	if err := conn.Flush(); err != nil {
		return 0, fmt.Errorf("nftables table %s: %w", tableName, err)
	}
	return n, nil
}

// sameStructure says whether the table exists with exactly these chains, rules and sets, whatever the sets hold.
func sameStructure(conn *nftables.Conn, table *nftables.Table, chains []chain, sets []addressSet) (bool, error) {
	tables, err := conn.ListTablesOfFamily(table.Family)
	if err != nil {
		return false, err
	}
	if !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == table.Name && t.Flags == 0 }) {
		return false, nil
	}
	have, err := conn.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return false, err
	}
	have = slices.DeleteFunc(have, func(c *nftables.Chain) bool { return c.Table.Name != table.Name })
	if len(have) != len(chains) {
		return false, nil
	}
	for _, c := range chains {
		if ok, err := c.same(conn, have); !ok || err != nil {
			return false, err
		}
	}
	present, err := conn.GetSets(table)
	if err != nil {
		return false, err
	}
	if len(present) != len(sets) {
		return false, nil
	}
	for _, s := range sets {
		if !slices.ContainsFunc(present, func(p *nftables.Set) bool { return p.Name == s.name && p.Interval }) {
			return false, nil
		}
	}
	return true, nil
}

// same compares a chain's hook and its rules. A rule is recognised by the comment that it was written with, the digest
// of its text; the kernel does not let anybody change a rule and keep its comment.
func (c chain) same(conn *nftables.Conn, have []*nftables.Chain) (bool, error) {
	i := slices.IndexFunc(have, func(k *nftables.Chain) bool { return k.Name == c.Name })
	if i < 0 {
		return false, nil
	}
	k := have[i]
	if k.Type != c.Type || k.Hooknum == nil || *k.Hooknum != *c.Hooknum || k.Priority == nil || *k.Priority != *c.Priority {
		return false, nil
	}
	rules, err := conn.GetRules(c.Table, k)
	if err != nil || len(rules) != len(c.rules) {
		return false, err
	}
	for i, r := range c.rules {
		if !bytes.Equal(rules[i].UserData, r.comment()) {
			return false, nil
		}
	}
	return true, nil
}

// comment is the rule's user data: its text with a digest, in the form that nft prints.
func (r rule) comment() []byte {
	sum := sha256.Sum256([]byte(r.text))
	return userdata.Append(nil, userdata.TypeComment, []byte("coelan "+hex.EncodeToString(sum[:8])+"\x00"))
}

func replaceTable(conn *nftables.Conn, table *nftables.Table, chains []chain, sets []addressSet) {
	// Deleting is an error for a table that is not there; adding it first never is.
	conn.AddTable(table)
	conn.DelTable(table)
	conn.AddTable(table)
	for _, s := range sets {
		// The error is one of the arguments' form, and these are fixed.
		_ = conn.AddSet(s.kernel(table), elements(s.ranges))
	}
	for _, c := range chains {
		conn.AddChain(c.Chain)
		for _, r := range c.rules {
			conn.AddRule(&nftables.Rule{Table: table, Chain: c.Chain, Exprs: r.exprs, UserData: r.comment()})
		}
	}
}

func (s addressSet) kernel(table *nftables.Table) *nftables.Set {
	return &nftables.Set{Table: table, Name: s.name, KeyType: s.typ, Interval: true}
}

func exchangeElements(conn *nftables.Conn, table *nftables.Table, sets []addressSet) (int, error) {
	var n int
	for _, s := range sets {
		set := s.kernel(table)
		have, err := conn.GetSetElements(set)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return 0, fmt.Errorf("set %s: %w", s.name, err)
		}
		if slices.Equal(rangesOf(have), s.ranges) {
			continue
		}
		conn.FlushSet(set)
		if len(s.ranges) > 0 {
			if err := conn.SetAddElements(set, elements(s.ranges)); err != nil {
				return 0, fmt.Errorf("set %s: %w", s.name, err)
			}
		}
		n++
	}
	return n, nil
}

// RemoveSNAT deletes the table; one that is not there is fine.
func RemoveSNAT() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	conn.AddTable(table)
	conn.DelTable(table)
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("nftables table %s: %w", tableName, err)
	}
	return nil
}
