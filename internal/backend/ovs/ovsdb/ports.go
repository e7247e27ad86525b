// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/model"
	db "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"coelan.io/coelan/internal/backend/ovs/rows"
)

// EnsurePorts makes the ports of a bridge, or adapts them, in one transaction,
// and waits until ovs-vswitchd has given each its OpenFlow port number. Ports
// that are there and work cost nothing. A port that ovs-vswitchd could not open
// is tried again. A port of that name that is not Coelan's, or is on another
// bridge, is an error, and nothing is changed then.
func (c *Client) EnsurePorts(ctx context.Context, bridge string, ports ...Port) error {
	all := make([]PlacedPort, len(ports))
	for i, p := range ports {
		all[i] = PlacedPort{bridge, p}
	}
	return c.EnsurePlaced(ctx, all...)
}

// PlacedPort is a port and the bridge that it is on.
type PlacedPort struct {
	Bridge string
	Port
}

// EnsurePlaced is EnsurePorts for ports of several bridges. The two ends of a wire, made by Patch,
// have to be in one call: an end without its peer is an error to ovs-vswitchd.
func (c *Client) EnsurePlaced(ctx context.Context, ports ...PlacedPort) error {
	for _, p := range ports {
		if err := p.validate(); err != nil {
			return portError(p.Name, err)
		}
	}
	return c.with(ctx, func(ctx context.Context, s *session) error {
		var ops []db.Operation
		var pending []Port
		for i, p := range ports {
			row := s.bridge(p.Bridge)
			if row == nil {
				return fmt.Errorf("bridge %s does not exist", p.Bridge)
			}
			change, err := s.ensurePort(row, p.Port, i)
			if err != nil {
				return portError(p.Name, err)
			}
			ops = append(ops, change...)
			if len(change) > 0 || !s.portReady(p.Name) {
				pending = append(pending, p.Port)
			}
		}
		if len(pending) == 0 {
			return nil
		}
		defer c.expect(pending)()
		cfg, err := s.configure(ctx, ops)
		if err != nil {
			return err
		}
		for _, p := range pending {
			if err := c.awaitNumber(ctx, s, p, cfg); err != nil {
				return portError(p.Name, err)
			}
		}
		return nil
	})
}

// DelPorts removes ports from a bridge in one transaction. It does not wait for
// ovs-vswitchd. Ports that are not there are no error; one that is not Coelan's
// is, and nothing is changed then.
func (c *Client) DelPorts(ctx context.Context, bridge string, names ...string) error {
	return c.with(ctx, func(ctx context.Context, s *session) error {
		ops, err := s.delPorts(bridge, names)
		if err != nil || len(ops) == 0 {
			return err
		}
		_, err = s.transact(ctx, ops)
		return err
	})
}

// ClosePort is DelPorts for one port, and waits until ovs-vswitchd has closed it. If it saw the
// port removed and added in one look, it would go on with the interface that it has open.
func (c *Client) ClosePort(ctx context.Context, bridge, name string) error {
	return c.with(ctx, func(ctx context.Context, s *session) error {
		ops, err := s.delPorts(bridge, []string{name})
		if err != nil || len(ops) == 0 {
			return err
		}
		cfg, err := s.configure(ctx, ops)
		if err != nil {
			return err
		}
		return c.applied(ctx, s, cfg)
	})
}

func (s *session) delPorts(bridge string, names []string) ([]db.Operation, error) {
	row := s.bridge(bridge)
	if row == nil {
		return nil, nil
	}
	var gone []string
	for _, name := range names {
		port := s.port(name)
		if port == nil {
			continue
		}
		if err := s.ours(row, port, s.iface(name)); err != nil {
			return nil, portError(name, err)
		}
		gone = append(gone, port.UUID)
	}
	if len(gone) == 0 {
		return nil, nil
	}
	return s.cli.Where(row).Mutate(row, model.Mutation{
		Field: &row.Ports, Mutator: db.MutateOperationDelete, Value: gone})
}

// Ports lists the ports that are Coelan's, of all bridges, by name. The LOCAL
// ports of bridges are not among them.
func (c *Client) Ports(ctx context.Context) ([]PortState, error) {
	var all []PortState
	err := c.with(ctx, func(_ context.Context, s *session) error {
		all = nil
		ports, ifaces := s.rows(rows.TablePort), s.rows(rows.TableInterface)
		for _, b := range s.rows(rows.TableBridge) {
			bridge := b.(*rows.Bridge)
			for _, uuid := range bridge.Ports {
				port, ok := ports[uuid].(*rows.Port)
				if !ok || port.Name == bridge.Name || len(port.Interfaces) != 1 {
					continue
				}
				row, ok := ifaces[port.Interfaces[0]].(*rows.Interface)
				if ok && row.ExternalIDs[OwnerKey] == OwnerValue {
					state := portState(bridge.Name, row)
					state.VLAN = value(port.VLAN)
					all = append(all, state)
				}
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b PortState) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// ensurePort returns the operations that make the port what it should be; n
// makes the names of new rows unique in the transaction.
func (s *session) ensurePort(bridge *rows.Bridge, p Port, n int) ([]db.Operation, error) {
	port := s.port(p.Name)
	if port == nil {
		return s.createPort(bridge, p, n)
	}
	// It is read once: another program may remove it, or the connection be lost, at any time.
	have := s.iface(p.Name)
	if err := s.ours(bridge, port, have); err != nil {
		return nil, err
	}
	var ops []db.Operation
	if p.VLAN != 0 && value(port.VLAN) != p.VLAN {
		var err error
		if ops, err = s.setVLAN(port, p.VLAN); err != nil {
			return nil, err
		}
	}
	if p.same(have) {
		return ops, nil
	}
	want := p.row()
	change, err := s.cli.Where(have).Update(want, &want.Type, &want.OFPortRequest, &want.MAC,
		&want.MTURequest, &want.Options, &want.ExternalIDs, &want.BFD)
	return append(ops, change...), err
}

func (s *session) setVLAN(port *rows.Port, vlan int) ([]db.Operation, error) {
	want := &rows.Port{VLAN: Port{VLAN: vlan}.vlan()}
	return s.cli.Where(port).Update(want, &want.VLAN)
}

func (s *session) createPort(bridge *rows.Bridge, p Port, n int) ([]db.Operation, error) {
	iface := p.row()
	iface.UUID = "iface" + strconv.Itoa(n)
	port := &rows.Port{
		UUID: "port" + strconv.Itoa(n), Name: p.Name, Interfaces: []string{iface.UUID}, VLAN: p.vlan(),
	}
	ops, err := s.create(iface, port)
	if err != nil {
		return nil, err
	}
	insert, err := s.cli.Where(bridge).Mutate(bridge, model.Mutation{
		Field: &bridge.Ports, Mutator: db.MutateOperationInsert, Value: []string{port.UUID}})
	return append(ops, insert...), err
}

// ours refuses a port that is not Coelan's or not of this bridge. The interface is that of its
// name, nil if there is none.
func (s *session) ours(bridge *rows.Bridge, port *rows.Port, iface *rows.Interface) error {
	if !slices.Contains(bridge.Ports, port.UUID) {
		for _, m := range s.rows(rows.TableBridge) {
			if b := m.(*rows.Bridge); slices.Contains(b.Ports, port.UUID) {
				return fmt.Errorf("is on bridge %s, wanted is %s: remove it there", b.Name, bridge.Name)
			}
		}
	}
	if iface == nil || iface.ExternalIDs[OwnerKey] != OwnerValue || port.Name == bridge.Name {
		return fmt.Errorf("exists on bridge %s and is not Coelan's (no external_ids:%s=%s): remove it", bridge.Name,
			OwnerKey, OwnerValue)
	}
	return nil
}

func (s *session) portReady(name string) bool {
	row := s.iface(name)
	return row != nil && portState("", row).Ready()
}

func portError(name string, err error) error { return fmt.Errorf("port %s: %w", name, err) }
