// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// canonical is the same text for Selectors that select the same for the same reason, and differs for all others. It is empty
// for those that select nothing.
func (s Selector) canonical() string {
	switch {
	case s.Nodes != nil:
		return tagged("nodes ", s.Nodes)
	case s.SecurityGroup != "":
		return "group " + strconv.Quote(s.SecurityGroup)
	case s.Namespace != "":
		return tagged("in "+strconv.Quote(s.Namespace)+" ", s.Pods)
	}
	scope := tagged("in any of ", s.Namespaces)
	if scope == "" {
		return ""
	}
	return tagged(scope+" ", s.Pods)
}

// tagged is the prefix with the canonical text of the labels' selector, or empty if that selects nothing.
func tagged(prefix string, s labels.Selector) string {
	requirements, ok := requirementsOf(s)
	if !ok {
		return ""
	}
	texts := make([]string, len(requirements))
	for i, r := range requirements {
		values := r.ValuesUnsorted()
		slices.Sort(values)
		text := []byte(strconv.Quote(r.Key()) + " " + operator(r.Operator()))
		for _, v := range slices.Compact(values) {
			text = strconv.AppendQuote(append(text, ' '), v)
		}
		texts[i] = string(text)
	}
	slices.Sort(texts)
	return prefix + "(" + strings.Join(slices.Compact(texts), ",") + ")"
}

// operator is one of those that mean the same.
func operator(o selection.Operator) string {
	switch o {
	case selection.Equals, selection.DoubleEquals:
		o = selection.In
	case selection.NotEquals:
		o = selection.NotIn
	}
	return string(o)
}

// requirementsOf are those of the selector, unless it selects nothing.
func requirementsOf(s labels.Selector) (labels.Requirements, bool) {
	if s == nil {
		return nil, false
	}
	return s.Requirements()
}

// everywhere selects all Ports of Namespaces that are known.
var everywhere = Selector{Namespaces: labels.Everything(), Pods: labels.Everything()}

// resolved is what the name of a container port stands for.
type resolved struct {
	protocol uint8
	port     uint16
}

func (r resolved) compare(o resolved) int {
	return cmp.Or(cmp.Compare(r.protocol, o.protocol), cmp.Compare(r.port, o.port))
}

// suffix is what the ID of a rule's part for that port has behind the rule's.
func (r resolved) suffix() string {
	return "/" + strconv.Itoa(int(r.protocol)) + "-" + strconv.Itoa(int(r.port))
}

// fits says that the named port is what a rule means.
func (n NamedPort) fits(p Port) bool {
	return n.Name == p.Name && (p.Protocol == 0 || p.Protocol == n.Protocol)
}

// groupIDBytes of a hash make the ID of a group. Two groups that somebody made to share an ID would be one: with 120 bits it takes
// 2^120 attempts to find a selector that shares that of another.
const groupIDBytes = 15

// groupID names the addresses of a selector's Ports; if port has a name only of those whose container port of that name is
// at, and if there are blocks only the addresses in them.
func groupID(canonical string, name string, at resolved, blocks []netip.Prefix) string {
	text := []byte(canonical)
	if name != "" {
		text = strconv.AppendQuote(append(text, " port "...), name)
		text = append(text, at.suffix()...)
	}
	for _, b := range blocks {
		text = b.AppendTo(append(text, ' '))
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:groupIDBytes])
}

// disjoint returns the blocks masked and sorted, without those that are in another.
func disjoint(blocks []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	sorted := make([]netip.Prefix, 0, len(blocks))
	for _, b := range blocks {
		if b.IsValid() {
			sorted = append(sorted, b.Masked())
		}
	}
	slices.SortFunc(sorted, comparePrefixes)
	for _, b := range sorted {
		// The one before is the only one that can have it: what follows a block in this order is in it, or behind all of it.
		if n := len(out); n > 0 && out[n-1].Bits() <= b.Bits() && out[n-1].Contains(b.Addr()) {
			continue
		}
		out = append(out, b)
	}
	return out
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// inBlocks says that the address is in one of the blocks, which are disjoint and sorted.
func inBlocks(blocks []netip.Prefix, a netip.Addr) bool {
	i, found := slices.BinarySearchFunc(blocks, a, func(b netip.Prefix, a netip.Addr) int { return b.Addr().Compare(a) })
	return found || i > 0 && blocks[i-1].Contains(a)
}
