// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/conditions"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

// fabric joins the backends of several nodes: a wire on which packets are function calls.
type fabric struct {
	mu    sync.Mutex
	nodes map[string]*memory
}

func newFabric() *fabric { return &fabric{nodes: map[string]*memory{}} }

// factory makes the backend of an agent's node.
func (f *fabric) factory() Factory {
	return Factory{
		Conditions: []conditions.Condition{{Name: "fabric", Limits: true}},
		New: func(o backend.Options) (Backend, error) {
			m := &memory{Options: o, fabric: f, ports: map[string]attachment.Attachment{}}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.nodes[o.Node] = m
			return m, nil
		},
	}
}

// memory is a backend that forwards in memory, by the intent of its node alone.
type memory struct {
	backend.Options
	noForeignBridges
	fabric *fabric

	mu    sync.Mutex
	ports map[string]attachment.Attachment // by the keys of their Ports
}

// noForeignBridges are those of a node without any: nothing is attached there, and nothing is asked
// for.
type noForeignBridges struct{ cni.ForeignBridges }

func (noForeignBridges) ForeignAttached(context.Context) ([]attachment.Attachment, error) {
	return nil, nil
}

func (m *memory) Open() error { return nil }

func (m *memory) Run(ctx context.Context) error {
	m.Hooks.Begin(ctx)
	for {
		state := m.Intent.State()
		_, err := backend.OwnNode(state, m.Node)
		m.Conditions.Set("fabric", err)
		if err == nil && state.Local().Node == "" {
			local := intent.Local{Node: m.Node, MTU: cmp.Or(m.Config.MTU, 1500), ServiceMode: intent.NativeServices}
			state, err = m.Intent.Update(func(tx *intent.Tx) error { tx.SetLocal(local); return nil })
		}
		m.Hooks.Reconciled(err)
		select {
		case <-ctx.Done():
			return nil
		case <-state.Replaced():
		}
	}
}

func (m *memory) Close() {}

func (m *memory) Expect(attachment.Attachment) {}

func (m *memory) Attach(_ context.Context, at attachment.Attachment, _ uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ports[at.Key.String()] = at
	return nil
}

func (m *memory) Detach(_ context.Context, at attachment.Attachment, _ uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.ports, at.Key.String())
	return nil
}

func (m *memory) Check(_ context.Context, at attachment.Attachment) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.ports[at.Key.String()]; !ok {
		return fmt.Errorf("port %s of %s is missing", at.HostInterface, at.PodRef())
	}
	return nil
}

func (m *memory) Admits(_ context.Context, c config.Config) error {
	if c.MTU > 1500 {
		return fmt.Errorf("mtu: %d is too large", c.MTU)
	}
	return nil
}

func (m *memory) Applied(context.Context, uint64) error                         { return nil }
func (m *memory) Forwards(context.Context, attachment.Attachment, uint64) error { return nil }
func (m *memory) Withdrawn(context.Context, attachment.Attachment, uint64)      {}
func (m *memory) Connected(physical string) error                               { return errors.New(physical + " is not here") }
func (m *memory) PhysicalNetworks() map[string]bool                             { return nil }
func (m *memory) Reserves(intent.Protocol, uint16) bool                         { return false }
func (m *memory) Guests(context.Context) ([]backend.Guest, error)               { return nil, nil }
func (m *memory) RequestNumber(context.Context, string, int) error              { return nil }
func (m *memory) ForgetBalanced(context.Context, []backend.Balanced) error      { return nil }
func (m *memory) ServiceProblems() map[string][]string                          { return nil }
func (m *memory) Uplinks() map[string]uint32                                    { return nil }
func (m *memory) PolicyStats(context.Context) ([]agentapi.PolicyStat, error)    { return nil, nil }
func (m *memory) FloatingIPs() []agentapi.FloatingIPInfo                        { return nil }
func (m *memory) Gateways(context.Context) ([]agentapi.GatewayInfo, error)      { return nil, nil }
func (m *memory) EgressAddresses() []agentapi.EgressInfo                        { return nil }
func (m *memory) NextHops() []agentapi.NextHop                                  { return nil }
func (m *memory) Report(s *agentapi.Status)                                     { s.OVS.Connected = true }
func (m *memory) Findings(_ context.Context, c *agentapi.Check) error {
	c.Ports = len(m.ports)
	return nil
}
func (m *memory) Ports(context.Context) ([]agentapi.PortInfo, error) { return nil, nil }

func (m *memory) Trace(context.Context, agentapi.TraceRequest) (agentapi.Trace, error) {
	return agentapi.Trace{}, &backend.BadRequestError{Problem: "the fabric has no flows to trace"}
}

// send says which pod a packet of a pod reaches, by the intent of the two nodes; "" if none.
func (f *fabric) send(from string, to netip.AddrPort) (pod string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.nodes {
		state := m.Intent.State()
		for p := range state.PortsAt(m.Node) {
			if p.Name() != from || m.Check(context.Background(), m.at(p)) != nil {
				continue
			}
			n, _ := state.Networks().Get(p.Network)
			return f.deliver(n.Router, endpoint(state, to))
		}
	}
	return ""
}

// endpoint is the first endpoint of the Service that has an address, or the address itself.
func endpoint(state *intent.State, to netip.AddrPort) netip.AddrPort {
	for v := range state.NodeServices().All() {
		for _, p := range v.Ports {
			if p.ClusterIP == to.Addr() && p.Port == to.Port() && len(p.Endpoints) > 0 {
				return netip.AddrPortFrom(p.Endpoints[0].Address, p.Endpoints[0].Port)
			}
		}
	}
	return to
}

// deliver finds the Port that has an address within a Router.
func (f *fabric) deliver(router string, to netip.AddrPort) string {
	for _, m := range f.nodes {
		state := m.Intent.State()
		for p := range state.PortsAt(m.Node) {
			n, _ := state.Networks().Get(p.Network)
			if n.Router == router && slices.Contains(p.Addresses, to.Addr()) && m.Check(context.Background(), m.at(p)) == nil {
				return p.Name()
			}
		}
	}
	return ""
}

// at is the attachment of a Port; one without a key if there is none.
func (m *memory) at(p intent.Port) attachment.Attachment {
	for _, at := range m.Attachments.List() {
		if at.Key.String() == p.ID {
			return at
		}
	}
	return attachment.Attachment{}
}
