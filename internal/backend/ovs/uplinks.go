// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/cards"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/intent"
)

// idPhysical is the external_ids key of the ports to a physical network, with its name.
const idPhysical = "coelan-physical-network"

// kindUplink is the kind of what is remembered of physical networks: their port numbers.
const kindUplink = "uplink"

// objectStore keeps small objects on disk. *attachment.Store is one.
type objectStore interface {
	Objects(kind string) map[string][]byte
	SaveObjects(kind string, objects map[string][]byte) error
}

// uplinksFit says that so many physical networks are too many.
func uplinksFit(n int) error {
	const most = int(datapath.LastUplinkPort - datapath.FirstUplinkPort + 1)
	if n > most {
		return fmt.Errorf("bridgeMappings and uplinks: %d physical networks, at most %d are possible", n, most)
	}
	return nil
}

// numberUplinks gives each physical network the OpenFlow port that it had before, or a free one.
// Flows name it, and must not change when another network is added.
func numberUplinks(store objectStore, wanted intent.Table[intent.Uplink]) (map[string]uint32, error) {
	if err := uplinksFit(wanted.Len()); err != nil {
		return nil, err
	}
	numbers, taken := map[string]uint32{}, map[uint32]bool{}
	for name, data := range store.Objects(kindUplink) {
		n, err := strconv.ParseUint(string(data), 10, 32)
		port := uint32(n)
		if _, ok := wanted.Get(name); err == nil && ok && !taken[port] {
			numbers[name], taken[port] = port, true
		}
	}
	free := datapath.FirstUplinkPort
	saved := map[string][]byte{}
	for u := range wanted.All() {
		if numbers[u.Physical] == 0 {
			for taken[free] {
				free++
			}
			numbers[u.Physical], taken[free] = free, true
		}
		saved[u.Physical] = []byte(strconv.FormatUint(uint64(numbers[u.Physical]), 10))
	}
	return numbers, store.SaveObjects(kindUplink, saved)
}

// uplinkPort is a wire between the integration bridge and the one that leads to a physical network.
type uplinkPort struct {
	physical, bridge string
	inner, outer     ovsdb.Port
}

// uplinks are the wires to the bridges of physical networks.
type uplinks struct {
	bridge  string
	numbers map[string]uint32 // the OpenFlow ports, by physical network; they do not change
	cards   *cards.Bridges
	intent  *intent.Store
	hooks   backend.Hooks
	db      uplinkDatabase
	// withoutCard says why physical networks have no bridge with their card, and cardErr what else
	// failed of cards. Only the reconciler uses them.
	withoutCard map[string]error
	cardErr     error

	mu sync.Mutex
	// unconnected says why this node is not connected to a physical network, by its name.
	unconnected map[string]error
	// decided says whether this node is connected to a physical network; nil before the first look.
	// What merely failed, such as a write to the database, decides nothing.
	decided map[string]bool
}

// placed are both ends of a wire from the agent's bridge.
func (p uplinkPort) placed(agent string) []ovsdb.PlacedPort {
	return []ovsdb.PlacedPort{{Bridge: agent, Port: p.inner}, {Bridge: p.bridge, Port: p.outer}}
}

// uplinkDatabase is what uplinks need of Open vSwitch's database.
type uplinkDatabase interface {
	cards.Database
	Bridges(ctx context.Context) ([]ovsdb.BridgeState, error)
	EnsurePlaced(ctx context.Context, ports ...ovsdb.PlacedPort) error
}

// ports are the wires to all physical networks, by name.
func (u *uplinks) ports() []uplinkPort {
	var list []uplinkPort
	for up := range u.intent.State().Uplinks().All() {
		number := u.numbers[up.Physical]
		inner, outer := fmt.Sprintf("coelan-phys%d", number), fmt.Sprintf("coelan-int%d", number)
		p := uplinkPort{
			physical: up.Physical, bridge: up.Bridge,
			inner: ovsdb.Patch(inner, outer, int(number)), outer: ovsdb.Patch(outer, inner, 0),
		}
		ids := map[string]string{idPhysical: up.Physical}
		p.inner.ExternalIDs, p.outer.ExternalIDs = ids, ids
		list = append(list, p)
	}
	return list
}

// ensureCards has bridges for network cards. It comes first: the node's own address may move to
// one. node are the node's addresses. What fails is kept for ensure.
func (u *uplinks) ensureCards(ctx context.Context, datapath intent.Datapath, node []netip.Addr) {
	bridges, err := u.db.Bridges(ctx)
	if err == nil {
		u.withoutCard, err = u.cards.Ensure(ctx, bridges, datapath, node)
	}
	u.cardErr = err
}

// cardErrors say what failed of ensureCards.
func (u *uplinks) cardErrors() error {
	errs := []error{u.cardErr}
	for _, physical := range slices.Sorted(maps.Keys(u.withoutCard)) {
		errs = append(errs, physicalError(physical, u.withoutCard[physical]))
	}
	return errors.Join(errs...)
}

func physicalError(physical string, err error) error {
	return fmt.Errorf("physical network %s: %w", physical, err)
}

// ensure connects the integration bridge to the bridges of physical networks. Each is tried; the
// Networks of one that fails take no pods, all others go on.
func (u *uplinks) ensure(ctx context.Context) error {
	bridges, err := u.db.Bridges(ctx)
	if err != nil {
		return err
	}
	unconnected := map[string]error{}
	maps.Copy(unconnected, u.withoutCard)
	errs := []error{u.cardErr}
	for _, p := range u.ports() {
		err := unconnected[p.physical]
		if err == nil {
			err = u.ensureWire(ctx, p, bridges)
		}
		if err != nil {
			unconnected[p.physical] = err
			errs = append(errs, physicalError(p.physical, err))
		}
	}
	u.mu.Lock()
	u.decide(unconnected)
	changed := !maps.EqualFunc(u.unconnected, unconnected, func(x, y error) bool { return x.Error() == y.Error() })
	u.unconnected = unconnected
	u.mu.Unlock()
	err = errors.Join(errs...)
	if changed {
		u.hooks.UplinksChanged()
	}
	if err != nil {
		u.hooks.Warn("PhysicalNetworkNotConnected", err)
	}
	return err
}

// decide takes what was found of each physical network.
func (u *uplinks) decide(unconnected map[string]error) {
	decided := map[string]bool{}
	for physical := range u.numbers {
		err := unconnected[physical]
		was, known := u.decided[physical]
		switch {
		case err == nil:
			decided[physical] = true
		case cards.IsAbsent(err):
			decided[physical] = false
		case known:
			decided[physical] = was
		}
	}
	u.decided = decided
}

// known are the physical networks of which it is known whether this node is connected to them.
func (u *uplinks) known() map[string]bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.decided)
}

func (u *uplinks) ensureWire(ctx context.Context, p uplinkPort, bridges []ovsdb.BridgeState) error {
	i := slices.IndexFunc(bridges, func(b ovsdb.BridgeState) bool { return b.Name == p.bridge })
	datapath := string(u.intent.State().Local().Datapath)
	switch {
	case i < 0:
		return cards.Absent(fmt.Errorf("bridge %s does not exist: make it, with the network card in it", p.bridge))
	case bridges[i].Datapath != datapath:
		return cards.Absent(fmt.Errorf("bridge %s has datapath %q, and bridge %s has %q: there is no way between them",
			p.bridge, bridges[i].Datapath, u.bridge, datapath))
	}
	return u.db.EnsurePlaced(ctx, p.placed(u.bridge)...)
}

// connected says why this node is not connected to a physical network.
func (u *uplinks) connected(physical string) error {
	if u.numbers[physical] == 0 {
		return fmt.Errorf("physical network %s is not in its bridgeMappings or uplinks", physical)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.unconnected[physical]
}
