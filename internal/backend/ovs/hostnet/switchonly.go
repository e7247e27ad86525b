// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"

	"github.com/google/nftables"
	nl "github.com/vishvananda/netlink"
)

// switchOnlyTable drops what arrives on interfaces after Open vSwitch has read it, and before the
// kernel takes it in. One that does not exist has no chain.
func switchOnlyTable(interfaces []string) nftable {
	t := nftable{name: tableName, family: nftables.TableFamilyNetdev}
	for _, name := range interfaces {
		t.chains = append(t.chains, chain{
			Chain: &nftables.Chain{
				Name: name, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookIngress,
				Priority: nftables.ChainPriorityFilter, Device: name,
			},
			rules: []rule{anyFamily("drop", drop())},
		})
	}
	return t
}

func (h *Host) applySwitchOnly(d Desired) (int, error) {
	var there []string
	for _, name := range d.SwitchOnly {
		_, err := h.nl.LinkByName(name)
		if errors.As(err, new(nl.LinkNotFoundError)) {
			continue
		}
		if err != nil {
			return 0, err
		}
		there = append(there, name)
	}
	t := switchOnlyTable(there)
	return h.nft.with(t, func(conn *nftables.Conn) (int, error) {
		if len(there) == 0 {
			return t.removeIfThere(conn)
		}
		_, n, err := t.apply(conn)
		return n, err
	})
}

// removeIfThere asks first: a kernel may not know tables of the family.
func (t nftable) removeIfThere(conn *nftables.Conn) (int, error) {
	if ok, err := exists(conn, t.kernel()); !ok || err != nil {
		return 0, err
	}
	return 1, t.remove(conn)
}

// RemoveSwitchOnly deletes the table; one that is not there is fine.
func RemoveSwitchOnly() error {
	var s nftSocket
	defer s.close()
	t := switchOnlyTable(nil)
	_, err := s.with(t, t.removeIfThere)
	return err
}
