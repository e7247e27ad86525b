// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"coelan.io/coelan/internal/agent/view"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovsdb"
)

// idPhysical is the external_ids key of the ports to a physical network, with its name.
const idPhysical = "coelan-physical-network"

// kindUplink is the kind of what is remembered of physical networks: their port numbers.
const kindUplink = "uplink"

// numberUplinks gives each physical network the OpenFlow port that it had before, or a free one. Flows name it, and must
// not change when another network is added.
func numberUplinks(store view.Store, mappings map[string]string) (map[string]uint32, error) {
	const most = int(intent.LastUplinkPort - intent.FirstUplinkPort + 1)
	if len(mappings) > most {
		return nil, fmt.Errorf("bridgeMappings: %d physical networks, at most %d are possible", len(mappings), most)
	}
	numbers, taken := map[string]uint32{}, map[uint32]bool{}
	for name, data := range store.Objects(kindUplink) {
		n, err := strconv.ParseUint(string(data), 10, 32)
		port := uint32(n)
		if _, wanted := mappings[name]; err == nil && wanted && !taken[port] {
			numbers[name], taken[port] = port, true
		}
	}
	free := intent.FirstUplinkPort
	saved := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(mappings)) {
		if numbers[name] == 0 {
			for taken[free] {
				free++
			}
			numbers[name], taken[free] = free, true
		}
		saved[name] = []byte(strconv.FormatUint(uint64(numbers[name]), 10))
	}
	return numbers, store.SaveObjects(kindUplink, saved)
}

// uplinkPort is a wire between the integration bridge and the one that leads to a physical network.
type uplinkPort struct {
	physical, bridge string
	inner, outer     ovsdb.Port
}

// uplinkPorts are the wires to all physical networks, by name.
func (a *Agent) uplinkPorts() []uplinkPort {
	var list []uplinkPort
	for physical, number := range a.uplinks {
		inner, outer := fmt.Sprintf("coelan-phys%d", number), fmt.Sprintf("coelan-int%d", number)
		u := uplinkPort{
			physical: physical, bridge: a.cfg.BridgeMappings[physical],
			inner: ovsdb.Patch(inner, outer, int(number)), outer: ovsdb.Patch(outer, inner, 0),
		}
		ids := map[string]string{idPhysical: physical}
		u.inner.ExternalIDs, u.outer.ExternalIDs = ids, ids
		list = append(list, u)
	}
	slices.SortFunc(list, func(x, y uplinkPort) int { return cmp.Compare(x.physical, y.physical) })
	return list
}

// ensureUplinks connects the integration bridge to the bridges of physical networks. Each is tried; the Networks of one
// that fails take no pods, all others go on.
func (a *Agent) ensureUplinks(ctx context.Context) error {
	if len(a.uplinks) == 0 {
		return nil
	}
	bridges, err := a.db.Bridges(ctx)
	if err != nil {
		return err
	}
	unconnected := map[string]error{}
	var errs []error
	for _, u := range a.uplinkPorts() {
		if err := a.ensureUplink(ctx, u, bridges); err != nil {
			unconnected[u.physical] = err
			errs = append(errs, fmt.Errorf("physical network %s: %w", u.physical, err))
		}
	}
	a.mu.Lock()
	changed := !maps.EqualFunc(a.unconnected, unconnected, func(x, y error) bool { return x.Error() == y.Error() })
	a.unconnected = unconnected
	a.mu.Unlock()
	err = errors.Join(errs...)
	if changed {
		a.view.Touch()
	}
	if err != nil {
		a.nodeEvent("PhysicalNetworkNotConnected", err)
	}
	return err
}

func (a *Agent) ensureUplink(ctx context.Context, u uplinkPort, bridges []ovsdb.BridgeState) error {
	i := slices.IndexFunc(bridges, func(b ovsdb.BridgeState) bool { return b.Name == u.bridge })
	datapath := string(a.intent.State().Local().Datapath)
	switch {
	case i < 0:
		return fmt.Errorf("bridge %s does not exist: make it, with the network card in it", u.bridge)
	case bridges[i].Datapath != datapath:
		return fmt.Errorf("bridge %s has datapath %q, and bridge %s has %q: there is no way between them",
			u.bridge, bridges[i].Datapath, a.cfg.Bridge, datapath)
	}
	return a.db.EnsureWire(ctx, a.cfg.Bridge, u.inner, u.bridge, u.outer)
}

// connected says why this node is not connected to a physical network.
func (a *Agent) connected(physical string) error {
	if a.uplinks[physical] == 0 {
		return fmt.Errorf("physical network %s is not in its bridgeMappings", physical)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unconnected[physical]
}
