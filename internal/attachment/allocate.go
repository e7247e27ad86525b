// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/reserved"
)

// Allocate is AllocateAll for one plan.
func (s *Store) Allocate(p Plan) (Attachment, error) {
	list, err := s.AllocateAll(p)
	if err != nil {
		return Attachment{}, err
	}
	return list[0], nil
}

// AllocateAll gives each plan its addresses, a MAC, a port number
// and a host interface name, and records them: all or none. When it returns, they are on disk.
// Errors: *AllocationError, *WriteError; nothing is allocated then.
func (s *Store) AllocateAll(plans ...Plan) ([]Attachment, error) {
	list, err := s.choose(plans)
	if err != nil {
		return nil, err
	}
	changes := make([]change, len(list))
	for i := range list {
		changes[i] = change{Put: &list[i]}
	}
	err = s.commit(changes...)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range list {
		delete(s.pending, a.Key)
		if err != nil {
			s.free(a)
		}
		list[i] = a.clone()
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// choose picks what the attachments get and keeps others from it.
func (s *Store) choose(plans []Plan) ([]Attachment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Attachment, 0, len(plans))
	for i, p := range plans {
		a, err := s.chooseOne(p)
		if err != nil {
			for _, a := range list {
				delete(s.pending, a.Key)
				s.free(a)
			}
			return nil, &AllocationError{Index: i, Key: p.Key, Err: err}
		}
		s.pending[a.Key] = true
		s.reserve(a)
		list = append(list, a)
	}
	for _, a := range list {
		s.moveCursors(a)
	}
	return list, nil
}

func (s *Store) chooseOne(p Plan) (Attachment, error) {
	if _, ok := s.byKey[p.Key]; ok || s.pending[p.Key] {
		return Attachment{}, ErrExists
	}
	a := Attachment{
		Spec: p.Spec.clone(), Created: time.Now().UTC().Truncate(time.Second),
		FixedAddresses: len(p.Addresses) > 0 && !p.Dynamic && !p.Leased, FixedMAC: p.MAC != nil,
	}
	if a.NetworkName == "" {
		a.NetworkName = intent.DefaultNetworkName
	}
	if a.HostInterface == "" {
		a.HostInterface = HostInterface(a.Key)
	}
	if a.PortName == "" {
		a.PortName = PortName(a.PodName, a.IfName)
	}
	if err := s.chooseAddresses(&a, p); err != nil {
		return Attachment{}, err
	}
	if err := s.chooseMAC(&a, p.MAC); err != nil {
		return Attachment{}, err
	}
	a.DefaultRoutes = defaultRoutes(a, p)
	if err := s.chooseVLAN(&a); err != nil {
		return Attachment{}, err
	}
	port, err := s.nextPort()
	a.OFPort = port
	return a, err
}

// lastVLAN is the highest that frames can have (IEEE 802.1Q, table 9-2).
const lastVLAN = 4094

// chooseVLAN gives an attachment on a bridge of its own the lowest VLAN that is free there.
func (s *Store) chooseVLAN(a *Attachment) error {
	if a.Bridge == "" {
		return nil
	}
	for vlan := uint16(1); vlan <= lastVLAN; vlan++ {
		if _, taken := s.vlans[vlanPlace{a.Bridge, vlan}]; !taken {
			a.VLAN = vlan
			return nil
		}
	}
	return fmt.Errorf("bridge %s has %d interfaces of pods, and no VLAN is left: name another bridge", a.Bridge, lastVLAN)
}

// chooseAddresses gives the attachment its addresses, and those in the node's podCIDRs if
// they are asked for.
func (s *Store) chooseAddresses(a *Attachment, p Plan) error {
	for _, addr := range p.Addresses {
		if err := s.checkFixed(*a, addr); err != nil {
			return err
		}
		length, gateway := addr.BitLen(), netip.Addr{}
		if subnet, ok := p.Subnet(addr); ok {
			length, gateway = subnet.Prefix.Bits(), subnet.Gateway
		}
		a.Addresses, a.Gateways = append(a.Addresses, netip.PrefixFrom(addr, length)), append(a.Gateways, gateway)
	}
	if len(p.Addresses) == 0 && !s.nextSlot(a, p) {
		for _, family := range ipam.Families(p.Ranges) {
			addr, of, err := s.next(a, family, p.MAC == nil && len(a.Addresses) == 0)
			if err != nil {
				return err
			}
			a.Addresses, a.Gateways = append(a.Addresses, of.WithLength(addr)), append(a.Gateways, of.Gateway())
		}
	}
	for _, rng := range p.NodeRanges {
		if !slices.ContainsFunc(a.Addresses, func(had netip.Prefix) bool { return had.Addr().Is4() == rng.Is4() }) {
			continue
		}
		node := Attachment{} // in the space of podCIDRs
		addr, of, err := s.next(&node, []ipam.Range{rng}, false)
		if err != nil {
			return err
		}
		a.NodeAddresses, a.NodeGateways = append(a.NodeAddresses, of.WithLength(addr)),
			append(a.NodeGateways, of.Gateway())
	}
	return nil
}

// nextSlot gives the attachment the addresses of a slot, see InSlots. It reports false if there is
// none for it.
func (s *Store) nextSlot(a *Attachment, p Plan) bool {
	if s.slots.stepOf(a.space()) == 0 || len(p.Ranges) == 0 {
		return false
	}
	primary := p.Ranges[0]
	taken, first := s.taken(a, false), s.taken(a, p.MAC == nil)
	slot := s.slots.choose(*a, p.Ranges, s.cursors.after(a.space(), primary.Subnet()), func(addr netip.Addr) bool {
		if addr.Is4() == primary.Is4() {
			return first(addr)
		}
		return taken(addr)
	})
	if slot == nil {
		return false
	}
	for n, family := range ipam.Families(p.Ranges) {
		a.Addresses = append(a.Addresses, family[0].WithLength(slot[n]))
		a.Gateways = append(a.Gateways, family[0].Gateway())
	}
	return true
}

// checkFixed returns a *TakenError if another attachment, also of the same Port, has a fixed
// address, or it is held for another Port.
func (s *Store) checkFixed(a Attachment, addr netip.Addr) error {
	p := place{a.space(), addr}
	k, taken := s.addresses[p]
	by, held := s.held[p]
	id, released := s.releasedAt[p]
	lease, leased := s.leased[p]
	switch {
	case taken:
		by = s.nameOf(k)
	case leased:
		by = lease
	case released:
		was := s.releasedByID[id].Was
		return &TakenError{Network: a.NetworkName, What: "address " + addr.String(), By: was, Released: true}
	case !held || by == a.PortKey():
		return nil
	}
	return &TakenError{Network: a.NetworkName, What: "address " + addr.String(), By: by}
}

// next finds a free address of ranges of one family; if the MAC is derived from it, one that has a
// free MAC too.
func (s *Store) next(a *Attachment, ranges []ipam.Range, decidesMAC bool) (netip.Addr, ipam.Range, error) {
	return ipam.Next(ranges, s.cursors.after(a.space(), ranges[0].Subnet()), s.taken(a, decidesMAC))
}

// taken says of an address that the attachment cannot get it; nor if its MAC is to be made of it
// and another one has that.
func (s *Store) taken(a *Attachment, decidesMAC bool) func(netip.Addr) bool {
	return func(addr netip.Addr) bool {
		if _, taken := s.addresses[place{a.space(), addr}]; taken {
			return true
		}
		if _, held := s.held[place{a.space(), addr}]; held {
			return true
		}
		if _, leased := s.leased[place{a.space(), addr}]; leased {
			return true
		}
		if _, released := s.releasedAt[place{a.space(), addr}]; released {
			return true
		}
		// Two IPv6 addresses can hash to one MAC: the second is passed over.
		_, sameMAC := s.macs[macPlace{a.NetworkName, reserved.PodMAC(addr)}]
		return decidesMAC && sameMAC
	}
}

func (s *Store) chooseMAC(a *Attachment, fixed *intent.MAC) error {
	switch {
	case fixed != nil:
		a.MAC = *fixed
	case len(a.Addresses) > 0 && !a.Leased:
		a.MAC = reserved.PodMAC(a.Addresses[0].Addr())
	case a.IsPort():
		return nil // the Port's status has it
	default:
		a.MAC = MACOf(a.Key)
	}
	if k, taken := s.macs[macPlace{a.NetworkName, a.MAC}]; taken {
		return &TakenError{Network: a.NetworkName, What: "MAC " + a.MAC.String(), MAC: true, By: s.nameOf(k)}
	}
	return nil
}

// MACOf is the MAC of an interface without an address, or with one that its MAC is known before: as
// reserved.PodMAC makes it, but of the key's hash.
func MACOf(k Key) intent.MAC {
	sum := sha256.Sum256([]byte(k.String()))
	return intent.MAC{0x0a, 0xce, sum[0], sum[1], sum[2], sum[3]}
}

// defaultRoutes are the gateways of the default routes that are asked for. A family that the
// attachment has no address of, or no gateway, has none.
func defaultRoutes(a Attachment, p Plan) []netip.Addr {
	var list []netip.Addr
	for i, address := range a.Addresses {
		is4 := address.Addr().Is4()
		same := func(gw netip.Addr) bool { return gw.IsValid() && gw.Is4() == is4 }
		if slices.ContainsFunc(list, same) || is4 && !p.Default4 || !is4 && !p.Default6 {
			continue
		}
		gw := a.Gateways[i]
		if v := slices.IndexFunc(p.Gateways, same); v >= 0 {
			gw = p.Gateways[v]
		}
		if gw.IsValid() {
			list = append(list, gw)
		}
	}
	return list
}

// OpenFlow port numbers that interfaces get. Those below are of the node's own ports; 0xfeff is the
// last that ofport_request accepts.
const (
	FirstOFPort uint32 = 16
	LastOFPort  uint32 = 0xfeff
)

// nextPort is the first free port number after the last one handed out.
func (s *Store) nextPort() (uint32, error) {
	const count = LastOFPort - FirstOFPort + 1
	if len(s.ports) >= int(count) {
		return 0, ErrNoPort
	}
	port := s.cursors.Port
	for {
		if port++; port < FirstOFPort || port > LastOFPort {
			port = FirstOFPort
		}
		if _, taken := s.ports[port]; !taken {
			return port, nil
		}
	}
}

// Release forgets attachments and frees what they had, all at once; addresses only later if
// KeepReleased says so. It returns false if there is none of these keys, or only such that are
// being released by another call. On a *WriteError they are still there.
func (s *Store) Release(keys ...Key) (bool, error) {
	var changes []change
	s.mu.Lock()
	for _, k := range keys {
		if a, ok := s.byKey[k]; ok && !s.pending[k] {
			s.pending[k] = true
			changes = append(changes, change{Delete: &k})
			if kept, ok := s.released(a); ok {
				changes = append(changes, kept)
			}
		}
	}
	s.mu.Unlock()
	if len(changes) == 0 {
		return false, nil
	}
	err := s.commit(changes...)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		if c.Delete != nil {
			delete(s.pending, *c.Delete)
		}
	}
	return true, err
}
