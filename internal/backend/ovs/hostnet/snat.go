// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
)

// tableName is the nftables table (family inet) that belongs to Coelan alone.
const tableName = "coelan"

// SNAT is the masquerading of pods' packets.
type SNAT struct {
	// Enabled turns masquerading on. The table exists in any case: it also guards.
	Enabled bool
	// Pods are the sources: this node's podCIDRs.
	Pods []netip.Prefix
	// Direct are the destinations that see the pods' own addresses: all nodes' podCIDRs
	// and the configured exclusions.
	Direct []netip.Prefix
}

// hostTable has sets of sources and destinations of both families.
func (d Desired) hostTable() nftable {
	gateway := d.Gateway.Name
	return nftable{
		name: tableName, chains: slices.Concat(d.SNAT.chains(gateway, d.Guard), d.Guard.chains(gateway),
			[]chain{mssChain(gateway)}),
		sets: slices.Concat(addressSets("pods", d.SNAT.Pods), addressSets("direct", d.SNAT.Direct), d.Guard.sets()),
	}
}

func (h *Host) applySNAT(d Desired) (int, error) {
	t := d.hostTable()
	return h.nft.with(t, func(conn *nftables.Conn) (int, error) {
		_, n, err := t.apply(conn)
		return n, err
	})
}

// RemoveSNAT deletes the table; one that is not there is fine.
func RemoveSNAT() error { return removeTable(nftable{name: tableName}) }

func removeTable(t nftable) error {
	var s nftSocket
	defer s.close()
	_, err := s.with(t, func(conn *nftables.Conn) (int, error) { return 0, t.remove(conn) })
	return err
}
