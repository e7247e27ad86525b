// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/intent"
)

const (
	// sessionBridge has the sessions (BFD) by which Open vSwitch finds out which nodes are in
	// reach. It has no flows: nothing but BFD passes there.
	sessionBridge = "coelan-bfd"
	// sessionInterval is the time between two packets of a session, in milliseconds: after three
	// without one the other node is out of reach.
	sessionInterval = 100
	// idNode is the external_ids key of a session's port with the node's name.
	idNode = "coelan-node"
)

// sessionDatabase is what sessions need of Open vSwitch's database.
type sessionDatabase interface {
	Bridges(ctx context.Context) ([]ovsdb.BridgeState, error)
	EnsureBridge(ctx context.Context, b ovsdb.Bridge) error
	DelBridge(ctx context.Context, name string) error
	Ports(ctx context.Context) ([]ovsdb.PortState, error)
	EnsurePorts(ctx context.Context, bridge string, ports ...ovsdb.Port) error
}

// sessions are those that this node has, by the other node's name: a node that may be active for an
// EgressAddress with all others, each of which may send to it; and they with it.
func sessions(s *intent.State) map[string]ovsdb.Port {
	local := s.Local()
	if local.Node == "" || !local.Encapsulation.Tunneled() || s.EgressAddresses().Len() == 0 {
		return nil
	}
	candidates := map[string]bool{}
	for a := range s.EgressAddresses().All() {
		for _, n := range a.Nodes {
			candidates[n] = true
		}
	}
	all := map[string]ovsdb.Port{}
	for n := range s.Nodes().All() {
		remote := n.AddressIn(local.TunnelIP)
		if n.Name == local.Node || !remote.IsValid() || !candidates[n.Name] && !candidates[local.Node] {
			continue
		}
		p := ovsdb.Session(sessionName(remote), string(local.Encapsulation), remote, datapath.SessionVNI,
			sessionInterval)
		p.ExternalIDs = map[string]string{idNode: n.Name}
		all[n.Name] = p
	}
	return all
}

// sessionName is the name of the port to a node: of 15 bytes, as names of ports may have.
func sessionName(remote netip.Addr) string {
	h := fnv.New32a()
	b := remote.As16()
	h.Write(b[:])
	return fmt.Sprintf("coelan-%08x", h.Sum32())
}

// sessionPorts are the ports of a State's sessions, by name.
func sessionPorts(s *intent.State) []ovsdb.Port {
	return slices.SortedFunc(maps.Values(sessions(s)), func(a, b ovsdb.Port) int {
		return strings.Compare(a.Name, b.Name)
	})
}

// ensureSessions makes the sessions of a State, and their bridge while there are any. Those that
// are not wanted any more are swept.
func ensureSessions(ctx context.Context, db sessionDatabase, s *intent.State) error {
	bridges, err := db.Bridges(ctx)
	if err != nil {
		return err
	}
	there := slices.ContainsFunc(bridges, func(b ovsdb.BridgeState) bool { return b.Name == sessionBridge && b.Own })
	ports := sessionPorts(s)
	switch {
	case len(ports) == 0 && there:
		return db.DelBridge(ctx, sessionBridge)
	case len(ports) == 0:
		return nil
	case !there:
		err := db.EnsureBridge(ctx, ovsdb.Bridge{Name: sessionBridge, Datapath: string(s.Local().Datapath)})
		if err != nil {
			return sessionError(err)
		}
	}
	if err := db.EnsurePorts(ctx, sessionBridge, ports...); err != nil {
		return sessionError(err)
	}
	return nil
}

func sessionError(err error) error { return fmt.Errorf("sessions with other nodes (BFD): %w", err) }
