// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/backend/ovs/datapath"
)

// servicesTable is the nftables table (family inet) of Services.
const servicesTable = "coelan-services"

// servicePlan is what the kernel needs for a Desired's Services.
type servicePlan struct {
	of       Services
	families []serviceFamily
	// own are the host's addresses, if they matter.
	own map[netip.Addr]bool
	// tunnels are the Guard's first rules of chains.
	tunnels string

	table  nftable
	routes []Route
}

// serviceMemory is what the kernel is known to hold, so that one change among ten thousand
// Services costs no look at all of them. It ends with any event of the table that is not
// the Host's own doing.
type serviceMemory struct {
	plan *servicePlan
	// chains are the texts of the table's, by name; sets is nil while they are not known.
	chains map[string]string
	sets   []set
	// absent says that there is no table.
	absent bool
}

// planServices makes a plan, or returns the one that there is.
func (h *Host) planServices(d Desired) (*servicePlan, error) {
	own, err := ownAddresses(d.Services)
	if err != nil {
		return nil, err
	}
	families := serviceFamilies(d.Gateway)
	same := func(a, b serviceFamily) bool { return a.gateway == b.gateway }
	if p := h.services.plan; p != nil && p.of.equal(d.Services) && slices.EqualFunc(p.families, families, same) &&
		maps.Equal(p.own, own) && p.tunnels == d.Guard.passText() {
		return p, nil
	}
	return newServicePlan(d, families, own), nil
}

// newServicePlan computes what the kernel needs for a Desired on a host with the addresses own.
func newServicePlan(d Desired, families []serviceFamily, own map[netip.Addr]bool) *servicePlan {
	p := &servicePlan{of: d.Services, families: families, own: own, tunnels: d.Guard.passText(),
		table: nftable{name: servicesTable}}
	if d.Services.Native {
		for _, f := range families {
			k := servicesOf(d.Services, f, own)
			if d.Services.ByAddress {
				k.inside = k.led
			}
			p.table.sets = append(p.table.sets, k.sets(d.Services.NodePortAddresses)...)
			p.routes = append(p.routes, k.routes()...)
		}
		p.table.chains = serviceChains(d.Gateway.Name, families, d.Services.ByAddress, d.Guard, p.table.sets)
	}
	return p
}

// ownAddresses are the host's, if it matters to a Service which they are.
func ownAddresses(s Services) (map[netip.Addr]bool, error) {
	if !s.needOwnAddresses() {
		return nil, nil
	}
	return localAddresses()
}

func (s Services) needOwnAddresses() bool {
	return s.Native && (len(s.Announced) > 0 || slices.ContainsFunc(s.Ports, func(p ServicePort) bool {
		return len(p.SourceRanges) > 0
	}))
}

func localAddresses() (map[netip.Addr]bool, error) {
	list, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	return hostAddresses(list), nil
}

// hostAddresses are those of the host but loopback and link-local ones, of which each pod's
// interface brings one.
func hostAddresses(list []netlink.Addr) map[netip.Addr]bool {
	own := make(map[netip.Addr]bool, len(list))
	for _, a := range list {
		if ip := prefix(a.IPNet).Addr(); !ip.IsLoopback() && (ip.Is4() || !ip.IsLinkLocalUnicast()) {
			own[ip] = true
		}
	}
	return own
}

// routes lead to the bridge, by the one neighbor that stands for it. Pods' packets do not go to
// that neighbor's own address: where they leave by the interface that they came in by, the kernel
// would make a redirect of each, and take it off what the pod may get of ICMPv6 errors. Of these
// "port unreachable" is one, and one redirect a second leaves nothing of them.
func (k *kernelServices) routes() []Route {
	var all []Route
	for _, r := range k.led {
		for _, p := range r.Prefixes() {
			all = append(all, Route{Destination: p, Via: k.via, Gateway: true, Source: k.f.gateway})
		}
	}
	return all
}

// via is the next hop to the bridge.
func (s Services) via(f serviceFamily) netip.Addr {
	if i := slices.IndexFunc(s.Via, f.has); i >= 0 {
		return s.Via[i]
	}
	return f.masked
}

// applyServices brings neighbors and table into the state of the plan.
func (h *Host) applyServices(d Desired, p *servicePlan) (int, error) {
	if h.doubt.Swap(false) {
		h.services = serviceMemory{plan: h.services.plan}
	}
	h.services.plan = p
	n, err := h.applyServiceNeighbours(d, p)
	if !p.of.Native {
		m, e := h.removeServices(p)
		return n + m, errors.Join(err, e)
	}
	m, e := h.nft.with(p.table, func(conn *nftables.Conn) (int, error) { return h.applyServiceTable(conn, p) })
	if e != nil {
		h.services = serviceMemory{}
	}
	return n + m, errors.Join(err, e)
}

// applyServiceTable looks at the kernel only if it is not known what that has.
func (h *Host) applyServiceTable(conn *nftables.Conn, p *servicePlan) (int, error) {
	before, texts := h.services.sets, p.table.texts()
	changes, ok := p.table.chainsFrom(h.services.chains, texts)
	var n int
	var err error
	if ok && sameNames(before, p.table.sets) {
		n, err = p.table.change(conn, before, changes)
	} else {
		before, n, err = p.table.apply(conn)
	}
	if err != nil {
		return 0, err
	}
	h.services = serviceMemory{plan: p, chains: texts, sets: p.table.sets}
	if n > 0 && before != nil {
		h.forgetDatagrams(p, before)
	}
	return n, nil
}

// sameNames says that two states of a table have the same sets; false if one is not known.
func sameNames(a, b []set) bool {
	return a != nil && slices.EqualFunc(a, b, func(a, b set) bool { return a.name == b.name })
}

func (h *Host) removeServices(p *servicePlan) (int, error) {
	if h.services.absent {
		return 0, nil
	}
	n, err := h.nft.with(p.table, func(conn *nftables.Conn) (int, error) {
		if there, err := exists(conn, p.table.kernel()); !there || err != nil {
			return 0, err
		}
		return 1, p.table.remove(conn)
	})
	h.services = serviceMemory{plan: p, absent: err == nil}
	return n, err
}

// RemoveServices deletes the table of Services; one that is not there is fine.
func RemoveServices() error { return removeTable(nftable{name: servicesTable}) }

// applyServiceNeighbours keeps the permanent neighbors that stand for the bridge, so that no
// neighbor discovery is needed.
func (h *Host) applyServiceNeighbours(d Desired, p *servicePlan) (int, error) {
	link, err := h.nl.LinkByName(d.Gateway.Name)
	if err != nil {
		// It was said already that there is none.
		return 0, nil
	}
	var n int
	var errs []error
	for _, f := range p.families {
		k, err := applyNeighbour(link, f.masked, p.of.Native && p.of.via(f) == f.masked)
		if err != nil {
			err = fmt.Errorf("neighbour %s of %s: %w", f.masked, d.Gateway.Name, err)
		}
		n, errs = n+k, append(errs, err)
	}
	return n, errors.Join(errs...)
}

func applyNeighbour(link netlink.Link, hop netip.Addr, wanted bool) (int, error) {
	have, err := dump(func() ([]netlink.Neigh, error) { return netlink.NeighList(link.Attrs().Index, family(hop)) })
	if err != nil {
		return 0, err
	}
	set, del := planNeighbour(have, link.Attrs().Index, hop, wanted)
	switch {
	case del != nil:
		return 1, netlink.NeighDel(del)
	case set != nil:
		return 1, netlink.NeighSet(set)
	}
	return 0, nil
}

// planNeighbour is what to write or to delete, so that an interface has the entry that stands for
// the bridge, or has none for that address; both nil: nothing.
func planNeighbour(have []netlink.Neigh, device int, hop netip.Addr, wanted bool) (set, del *netlink.Neigh) {
	want := &netlink.Neigh{
		LinkIndex: device, Family: family(hop), State: unix.NUD_PERMANENT, IP: hop.AsSlice(),
		HardwareAddr: datapath.RouterMAC.HardwareAddr(),
	}
	i := slices.IndexFunc(have, func(e netlink.Neigh) bool { return addr(e.IP) == hop })
	switch {
	case !wanted && i >= 0:
		return nil, &have[i]
	case !wanted, i >= 0 && have[i].State == want.State && slices.Equal(have[i].HardwareAddr, want.HardwareAddr):
		return nil, nil
	}
	return want, nil
}
