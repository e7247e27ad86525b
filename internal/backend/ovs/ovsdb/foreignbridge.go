// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/model"
	db "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"coelan.io/coelan/internal/backend/ovs/rows"
)

// ForeignValue is what rows have for OwnerKey that Coelan has made for an external controller. They
// are Coelan's to remove, but not part of its data path: Ports does not list them.
const ForeignValue = "external-controller"

// networkKey is the external_ids key with the network configuration that a controller, a manager or
// an uplink was made for.
const networkKey = "coelan-network"

// undoTimeout bounds taking back what did not work.
const undoTimeout = 5 * time.Second

// ForeignBridge says what is to be there for an external controller.
type ForeignBridge struct {
	Name     string
	Datapath string // "system" or "netdev", if the bridge has to be made
	// Network names the configuration that asks. What was made for it before and is not said any
	// more is removed.
	Network string
	// Controller and Manager are targets (ovs-vsctl(8)). A row of another program with the same
	// target is as good. No Manager: "".
	Controller, Manager string
	// Uplink is an interface of the node that is a port of the bridge; "": none is.
	Uplink string
}

// PlugForeign makes the bridge if there is none, its controller, the manager and the uplink, and
// the port of a pod, in one transaction, and waits until ovs-vswitchd has opened the port. Of what
// is there as it should be nothing is written. On an error nothing is left of what was made. A
// bridge of Coelan's data path is an error; a port of that name that was not made by PlugForeign
// too.
func (c *Client) PlugForeign(ctx context.Context, b ForeignBridge, p Port) error {
	err := c.with(ctx, func(ctx context.Context, s *session) error {
		change, err := s.foreignChange(b, &p)
		if err != nil || len(change.ops) == 0 && s.portReady(p.Name) {
			return err
		}
		cfg, results, err := s.configureRows(ctx, change.ops)
		if err != nil {
			return err
		}
		if err = c.awaitForeign(ctx, s, b, change, p, cfg); err != nil {
			return errors.Join(err, change.undo(ctx, results))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("bridge %s: %w", b.Name, err)
	}
	return nil
}

func (c *Client) awaitForeign(ctx context.Context, s *session, b ForeignBridge, change *foreignChange, p Port,
	cfg int,
) error {
	if change.newBridge {
		if err := c.applied(ctx, s, cfg); err != nil {
			return err
		}
		if err := s.works(Bridge{Name: b.Name, Datapath: b.Datapath}); err != nil {
			return err
		}
	}
	for _, port := range append(change.uplinks, p) {
		if err := c.awaitPort(ctx, s, port, cfg); err != nil {
			return portError(port.Name, err)
		}
	}
	return nil
}

// CheckForeign says what of PlugForeign's is missing or differs.
func (c *Client) CheckForeign(ctx context.Context, b ForeignBridge, p Port) error {
	err := c.with(ctx, func(_ context.Context, s *session) error {
		change, err := s.foreignChange(b, &p)
		switch {
		case err != nil:
			return err
		case len(change.missing) > 0:
			return errors.New(strings.Join(change.missing, "; "))
		case !s.portReady(p.Name):
			return fmt.Errorf("port %s does not work: %s", p.Name, portState(b.Name, s.iface(p.Name)).Error)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("bridge %s: %w", b.Name, err)
	}
	return nil
}

// ForeignUsable says why PlugForeign would refuse a bridge.
func (c *Client) ForeignUsable(ctx context.Context, b ForeignBridge) error {
	err := c.with(ctx, func(_ context.Context, s *session) error {
		_, err := s.foreignChange(b, nil)
		return err
	})
	if err != nil {
		return fmt.Errorf("bridge %s: %w", b.Name, err)
	}
	return nil
}

// UnplugForeign removes a pod's port that PlugForeign has made. It does not wait for ovs-vswitchd.
// One that is not there is no error.
func (c *Client) UnplugForeign(ctx context.Context, name string) error {
	return c.with(ctx, func(ctx context.Context, s *session) error {
		ops, err := s.delForeign(name)
		if err != nil || len(ops) == 0 {
			return err
		}
		_, err = s.transact(ctx, ops)
		return err
	})
}

// CloseForeign is UnplugForeign, and waits until ovs-vswitchd has closed the port: see ClosePort.
func (c *Client) CloseForeign(ctx context.Context, name string) error {
	return c.with(ctx, func(ctx context.Context, s *session) error {
		ops, err := s.delForeign(name)
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

func (s *session) delForeign(name string) ([]db.Operation, error) {
	port, iface := s.port(name), s.iface(name)
	if port == nil {
		return nil, nil
	}
	if iface == nil || !isForeign(iface.ExternalIDs) {
		return nil, portError(name, fmt.Errorf("is not Coelan's (no external_ids:%s=%s)", OwnerKey, ForeignValue))
	}
	bridge := s.bridgeOf(port)
	if bridge == nil {
		return nil, nil
	}
	return s.cli.Where(bridge).Mutate(bridge, model.Mutation{
		Field: &bridge.Ports, Mutator: db.MutateOperationDelete, Value: []string{port.UUID}})
}

// ForeignPorts lists the ports that PlugForeign has made, uplinks too, by name.
func (c *Client) ForeignPorts(ctx context.Context) ([]PortState, error) {
	var all []PortState
	err := c.with(ctx, func(_ context.Context, s *session) error {
		all = nil
		for _, m := range s.rows(rows.TableInterface) {
			i := m.(*rows.Interface)
			port := s.port(i.Name)
			if !isForeign(i.ExternalIDs) || port == nil {
				continue
			}
			if bridge := s.bridgeOf(port); bridge != nil && bridge.Name != i.Name {
				all = append(all, portState(bridge.Name, i))
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b PortState) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// RemoveForeign removes everything that PlugForeign has made. A bridge with ports of other programs
// stays, without the controllers that were made, and is not Coelan's any more. Rows of other
// programs stay.
func (c *Client) RemoveForeign(ctx context.Context) error {
	return c.with(ctx, func(ctx context.Context, s *session) error {
		root, err := s.root()
		if err != nil {
			return err
		}
		ops := remove(rows.TableOpenVSwitch, root.UUID, "manager_options", s.owned(rows.TableManager, root.Managers))
		for _, m := range s.rows(rows.TableBridge) {
			bridge := m.(*rows.Bridge)
			ports := s.ownedPorts(bridge)
			if isForeign(bridge.ExternalIDs) && len(ports) == len(bridge.Ports)-1 {
				ops = append(ops, remove(rows.TableOpenVSwitch, root.UUID, "bridges", []string{bridge.UUID})...)
				continue
			}
			ops = append(ops, remove(rows.TableBridge, bridge.UUID, "ports", ports)...)
			ops = append(ops, remove(rows.TableBridge, bridge.UUID, "controller",
				s.owned(rows.TableController, bridge.Controllers))...)
			if !isForeign(bridge.ExternalIDs) {
				continue
			}
			unmark, err := s.cli.Where(bridge).Mutate(bridge, model.Mutation{
				Field: &bridge.ExternalIDs, Mutator: db.MutateOperationDelete, Value: []string{OwnerKey}})
			if err != nil {
				return err
			}
			ops = append(ops, unmark...)
		}
		if len(ops) == 0 {
			return nil
		}
		cfg, err := s.configure(ctx, ops)
		if err != nil {
			return err
		}
		return c.applied(ctx, s, cfg)
	})
}

// ownedPorts are the ports of a bridge that PlugForeign has made.
func (s *session) ownedPorts(bridge *rows.Bridge) (list []string) {
	for _, port := range s.portsOf(bridge) {
		if i := s.iface(port.Name); i != nil && isForeign(i.ExternalIDs) {
			list = append(list, port.UUID)
		}
	}
	return list
}

// portsOf are the ports of a bridge without its own.
func (s *session) portsOf(bridge *rows.Bridge) (list []*rows.Port) {
	ports := s.rows(rows.TablePort)
	for _, uuid := range bridge.Ports {
		if port, ok := ports[uuid].(*rows.Port); ok && port.Name != bridge.Name {
			list = append(list, port)
		}
	}
	return list
}

// owned are those of some controllers or managers that PlugForeign has made.
func (s *session) owned(table string, uuids []string) (list []string) {
	for _, uuid := range uuids {
		if _, ids := s.endpoint(table, uuid); isForeign(ids) {
			list = append(list, uuid)
		}
	}
	return list
}

// endpoint is what a controller or a manager says.
func (s *session) endpoint(table, uuid string) (target string, ids map[string]string) {
	switch row := s.rows(table)[uuid].(type) {
	case *rows.Controller:
		return row.Target, row.ExternalIDs
	case *rows.Manager:
		return row.Target, row.ExternalIDs
	}
	return "", nil
}

// bridgeOf is the bridge of a port; nil if it has none any more.
func (s *session) bridgeOf(port *rows.Port) *rows.Bridge {
	for _, m := range s.rows(rows.TableBridge) {
		if b := m.(*rows.Bridge); slices.Contains(b.Ports, port.UUID) {
			return b
		}
	}
	return nil
}

func isForeign(ids map[string]string) bool { return ids[OwnerKey] == ForeignValue }

// foreignIDs are ids with the mark of what is made for an external controller.
func foreignIDs(ids map[string]string) map[string]string {
	return merged(ids, map[string]string{OwnerKey: ForeignValue})
}
