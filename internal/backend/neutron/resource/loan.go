// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"net/netip"
	"strings"
)

// Loan is a network of another program, or a subnet of one, that the cluster's ports may be on, or
// a subnet pool that its subnets may be of. The cluster neither changes nor removes it.
type Loan struct {
	Actual
	// Refused says why there is none; empty: there is.
	Refused string
}

// lentKey begins keys of Loans.
const lentKey = "Lent/"

// LentNetwork is the network of another program that an object names.
func LentNetwork(object string) Ref { return Ref{Kind: Network, Key: Key(lentKey + object)} }

// LentSubnet is the subnet of a prefix of that network.
func LentSubnet(object string, prefix netip.Prefix) Ref {
	return Ref{Kind: Subnet, Key: Key(lentKey+object, prefix.String())}
}

// LentSubnetPool is the subnet pool of another program with that id.
func LentSubnetPool(id string) Ref { return Ref{Kind: SubnetPool, Key: Key(lentKey + id)} }

// lent reports whether a Ref is of a Loan.
func (r Ref) lent() bool { return strings.HasPrefix(r.Key, lentKey) }

// Lend adds a Loan.
func (i *Inventory) Lend(r Ref, l Loan) { i.loans[r] = l }

// Loan is what there is of a Loan; false: it has not been looked for.
func (i *Inventory) Loan(r Ref) (Loan, bool) {
	l, ok := i.loans[r]
	return l, ok
}
