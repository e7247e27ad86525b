// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

// Expect has nothing to prepare.
func (b *Backend) Expect(attachment.Attachment) {}

// Attach plugs an attachment, and returns when OVN has connected it and the node's ports lead to
// it. The revision of intent is of no use: what OVN does follows the controller's.
func (b *Backend) Attach(ctx context.Context, at attachment.Attachment, _ uint64) error {
	if err := b.ports.attach(ctx, at); err != nil {
		return err
	}
	if err := b.host.ports.Attach(at); err != nil {
		return fmt.Errorf("attach %s: %w", at.PodRef(), err)
	}
	return nil
}

// Detach returns when the port of an attachment is gone.
func (b *Backend) Detach(ctx context.Context, at attachment.Attachment, _ uint64) error {
	if err := b.host.ports.Detach(at); err != nil {
		return fmt.Errorf("detach %s: %w", at.PodRef(), err)
	}
	return b.ports.detach(ctx, at)
}

// Check says what an attachment lacks.
func (b *Backend) Check(ctx context.Context, at attachment.Attachment) error {
	if err := b.ports.check(ctx, at); err != nil {
		return err
	}
	return b.host.ports.Check(at)
}

// Applied returns at once: OVN says of no revision when it is in effect.
func (b *Backend) Applied(context.Context, uint64) error { return nil }

// Forwards returns when OVN has connected an attachment.
func (b *Backend) Forwards(ctx context.Context, at attachment.Attachment, _ uint64) error {
	return b.ports.awaitInstalled(ctx, at, func(string, int) error { return nil })
}

// Withdrawn returns at once: what OVN has of an attachment goes with its interface.
func (b *Backend) Withdrawn(context.Context, attachment.Attachment, uint64) {}

// Admits says why this node cannot have a configuration in place of its own.
func (b *Backend) Admits(_ context.Context, c config.Config) error {
	node, err := backend.OwnNode(b.Intent.State(), b.Node)
	if err != nil {
		return err
	}
	if len(c.Uplinks) > 0 {
		return errors.New("uplinks: OVN has bridges of physical networks by bridgeMappings alone: make the bridge, with the card in it")
	}
	_, _, err = b.local(c, node, b.Intent.State().Local().Datapath)
	return err
}

// Connected says why this node is not connected to a physical network.
func (b *Backend) Connected(physical string) error {
	b.status.mu.Lock()
	defer b.status.mu.Unlock()
	bridge, ok := b.status.mappings[physical]
	switch {
	case b.status.mappings == nil:
		return fmt.Errorf("physical network %s: Open vSwitch has not been asked yet", physical)
	case !ok:
		return fmt.Errorf("physical network %s: it is not in external_ids:%s of this node's Open vSwitch", physical, idMappings)
	case !slices.Contains(b.status.bridges, bridge):
		return fmt.Errorf("physical network %s: bridge %s does not exist: make it, with the network card in it", physical, bridge)
	}
	return nil
}

// PhysicalNetworks are those that ovn-controller is configured with, by name; nil before they have
// been looked at.
func (b *Backend) PhysicalNetworks() map[string]bool {
	b.status.mu.Lock()
	defer b.status.mu.Unlock()
	if b.status.mappings == nil {
		return nil
	}
	known := map[string]bool{}
	for physical, bridge := range b.status.mappings {
		known[physical] = slices.Contains(b.status.bridges, bridge)
	}
	return known
}

// Reserves says whether the node itself needs one of its ports.
func (b *Backend) Reserves(p intent.Protocol, port uint16) bool {
	return b.host.kernel.Reserves(p, port)
}

// ForgetBalanced has nothing to do: ovn-controller flushes connections to backends that are gone
// from a load balancer.
func (b *Backend) ForgetBalanced(context.Context, []backend.Balanced) error { return nil }

// Guests lists the interfaces of the bridge that are not Coelan's and say what they are plugged
// for. It is an error while it is not known whether the node is a machine of OpenStack, to which
// none are plugged: an empty list would say that all are gone.
func (b *Backend) Guests(ctx context.Context) ([]backend.Guest, error) {
	if !b.logical.Known() {
		return nil, fmt.Errorf("the API server has not said yet what node %s is", b.Node)
	}
	return b.ports.guests(ctx)
}

// RequestNumber has nothing to do: no flow of Coelan's names an OpenFlow port.
func (b *Backend) RequestNumber(context.Context, string, int) error { return nil }

// Report adds the backend's part to what an agent tells of itself.
func (b *Backend) Report(s *agentapi.Status) {
	b.status.mu.Lock()
	defer b.status.mu.Unlock()
	s.OVS = agentapi.OVSStatus{
		Version: b.status.info.Version.String(), Bridge: b.Config.Bridge, Datapath: b.datapath(),
		Connected: b.status.asked.Load(),
	}
	s.Host = agentapi.HostStatus(b.host.kernel.Status())
	if b.status.left != "" {
		s.Problems = append(s.Problems, strings.Split(b.status.left, "\n")...)
	}
}

// Ports are all attachments, with what Open vSwitch has of each.
func (b *Backend) Ports(ctx context.Context) ([]agentapi.PortInfo, error) {
	states, err := b.ports.states(ctx)
	if err != nil {
		return nil, err
	}
	infos := []agentapi.PortInfo{}
	for _, at := range b.Attachments.List() {
		st, ok := states[at.HostInterface]
		ready := st.Ready() && b.ports.connected(st)
		info := agentapi.PortInfo{Attachment: at, Ready: ready, Actual: st.Actual, Error: st.Error}
		if b.Config.Backend.Type == config.NeutronBackend {
			info.Neutron, _ = b.ports.name(at, st)
		}
		switch {
		case !ok:
			info.Error = "not in the database"
		case !info.Ready:
			info.Error = cmp.Or(st.Error, "OVN has not connected it")
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(x, y agentapi.PortInfo) int { return cmp.Compare(x.PodRef(), y.PodRef()) })
	return infos, nil
}

// states are the interfaces that are Coelan's or say what they are plugged for, by name.
func (p *ports) states(ctx context.Context) (map[string]ovsdb.PortState, error) {
	own, err := p.db.Ports(ctx)
	if err != nil {
		return nil, err
	}
	guests, err := p.db.Interfaces(ctx, p.bridge, idInterface)
	if err != nil {
		return nil, err
	}
	states := make(map[string]ovsdb.PortState, len(own)+len(guests))
	for _, s := range append(own, guests...) {
		states[s.Name] = s
	}
	return states, nil
}

// ServiceProblems are none here: the controller says them.
func (b *Backend) ServiceProblems() map[string][]string { return nil }

// Uplinks are none: OVN wires physical networks.
func (b *Backend) Uplinks() map[string]uint32 { return nil }

// PolicyStats are none: OVN counts no packets for rules.
func (b *Backend) PolicyStats(context.Context) ([]agentapi.PolicyStat, error) {
	return []agentapi.PolicyStat{}, nil
}

// FloatingIPs, Gateways, EgressAddresses and NextHops are OVN's own affair.
func (b *Backend) FloatingIPs() []agentapi.FloatingIPInfo { return []agentapi.FloatingIPInfo{} }

// Gateways are OVN's own affair.
func (b *Backend) Gateways(context.Context) ([]agentapi.GatewayInfo, error) {
	return []agentapi.GatewayInfo{}, nil
}

// EgressAddresses are OVN's own affair.
func (b *Backend) EgressAddresses() []agentapi.EgressInfo { return []agentapi.EgressInfo{} }

// NextHops are OVN's own affair.
func (b *Backend) NextHops() []agentapi.NextHop { return []agentapi.NextHop{} }
