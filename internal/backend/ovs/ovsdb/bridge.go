// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sort"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/model"
	db "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"coelan.io/coelan/internal/backend/ovs/rows"
)

// Bridge says how a bridge should be. Unless it is to be a switch, its fail mode is secure: it
// forwards nothing but by flows.
type Bridge struct {
	Name     string
	Datapath string           // "system" or "netdev"
	MAC      net.HardwareAddr // of its LOCAL port; nil: chosen by Open vSwitch
	// Switch has it forward by the MACs that it learns (fail mode standalone).
	Switch bool
	// LocalVLAN is the VLAN of its LOCAL port, as Port.VLAN.
	LocalVLAN int
	// ExternalIDs are set beside the owner's mark; other keys stay.
	ExternalIDs map[string]string
}

// BridgeState is any bridge of the database, Coelan's or not.
type BridgeState struct {
	Name        string
	Datapath    string // "system" or "netdev"
	Own         bool   // it is Coelan's
	Ports       []string
	Controlled  bool // it has an OpenFlow controller
	ExternalIDs map[string]string
}

// protocols of a bridge: 1.0 is what OVS's own tools speak by default.
var protocols = []string{"OpenFlow10", "OpenFlow13", "OpenFlow14", "OpenFlow15"}

// EnsureBridge makes the bridge, or adapts it, and waits until ovs-vswitchd has
// it. A bridge of that name with another datapath, or with ports that are not
// Coelan's, is an error and stays as it is. A datapath that ovs-vswitchd cannot
// make is an error, too; a bridge that was new then is removed again.
func (c *Client) EnsureBridge(ctx context.Context, b Bridge) error {
	isNew := false
	err := c.with(ctx, func(ctx context.Context, s *session) error {
		row := s.bridge(b.Name)
		var ops []db.Operation
		var err error
		if row == nil {
			isNew = true
			ops, err = s.createBridge(b)
		} else if err = s.adoptable(row, b); err == nil {
			ops, err = s.updateBridge(row, b)
		}
		if err != nil {
			return err
		}
		// Also without a change: ovs-vswitchd may not have come to it yet.
		cfg, err := s.configure(ctx, ops)
		if err != nil {
			return err
		}
		if err := c.applied(ctx, s, cfg); err != nil {
			return err
		}
		return s.works(b)
	})
	if isNew && errors.Is(err, errCannotMake) {
		err = errors.Join(err, c.DelBridge(ctx, b.Name))
	}
	if err != nil {
		return fmt.Errorf("bridge %s: %w", b.Name, err)
	}
	return nil
}

// works finds a bridge that ovs-vswitchd could not make. It says so in its log
// only, and nowhere in the database, but the LOCAL port has no number then.
func (s *session) works(b Bridge) error {
	if local := s.iface(b.Name); local != nil && value(local.OFPort) == portLocal {
		return nil
	}
	hint := "see its log"
	if b.Datapath == "system" {
		hint = "is the kernel module openvswitch loaded? Its log says more"
	}
	return fmt.Errorf("%w with datapath %q: %s", errCannotMake, b.Datapath, hint)
}

var errCannotMake = errors.New("ovs-vswitchd cannot make it")

// portLocal is the OpenFlow number of a bridge's own port in the database.
const portLocal = 0xfffe

// DelBridge removes a bridge that is Coelan's, with its ports. One that is not
// there is no error.
func (c *Client) DelBridge(ctx context.Context, name string) error {
	err := c.with(ctx, func(ctx context.Context, s *session) error {
		row := s.bridge(name)
		if row == nil {
			return nil
		}
		if row.ExternalIDs[OwnerKey] != OwnerValue {
			return fmt.Errorf("is not Coelan's: it lacks external_ids:%s=%s", OwnerKey, OwnerValue)
		}
		root, err := s.root()
		if err != nil {
			return err
		}
		ops, err := s.cli.Where(root).Mutate(root, model.Mutation{
			Field: &root.Bridges, Mutator: db.MutateOperationDelete, Value: []string{row.UUID}})
		if err != nil {
			return err
		}
		cfg, err := s.configure(ctx, ops)
		if err != nil {
			return err
		}
		return c.applied(ctx, s, cfg)
	})
	if err != nil {
		return fmt.Errorf("bridge %s: %w", name, err)
	}
	return nil
}

// RequestMTU has the LOCAL port of a bridge take packets of a size, whatever its other ports take.
// It does not wait for ovs-vswitchd. Where that has been asked for, nothing is written.
func (c *Client) RequestMTU(ctx context.Context, bridge string, mtu int) error {
	return c.with(ctx, func(ctx context.Context, s *session) error {
		local := s.iface(bridge)
		if local == nil {
			return fmt.Errorf("bridge %s does not exist", bridge)
		}
		if value(local.MTURequest) == mtu {
			return nil
		}
		want := &rows.Interface{MTURequest: &mtu}
		ops, err := s.cli.Where(local).Update(want, &want.MTURequest)
		if err != nil {
			return err
		}
		_, err = s.transact(ctx, ops)
		return err
	})
}

// Bridges lists all bridges of the database by name.
func (c *Client) Bridges(ctx context.Context) ([]BridgeState, error) {
	var all []BridgeState
	err := c.with(ctx, func(_ context.Context, s *session) error {
		all = nil
		ports := s.rows(rows.TablePort)
		for _, m := range s.rows(rows.TableBridge) {
			row := m.(*rows.Bridge)
			b := BridgeState{
				Name: row.Name, Datapath: datapathName(row.DatapathType),
				Own: row.ExternalIDs[OwnerKey] == OwnerValue, Controlled: len(row.Controllers) > 0,
				ExternalIDs: row.ExternalIDs,
			}
			for _, uuid := range row.Ports {
				if p, ok := ports[uuid].(*rows.Port); ok {
					b.Ports = append(b.Ports, p.Name)
				}
			}
			sort.Strings(b.Ports)
			all = append(all, b)
		}
		return nil
	})
	slices.SortFunc(all, func(a, b BridgeState) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

func (s *session) createBridge(b Bridge) ([]db.Operation, error) {
	root, err := s.root()
	if err != nil {
		return nil, err
	}
	if p := s.port(b.Name); p != nil {
		return nil, fmt.Errorf("a port of another bridge has this name: remove it")
	}
	failMode := b.failMode()
	iface := &rows.Interface{UUID: "iface", Name: b.Name, Type: "internal", ExternalIDs: owned(nil)}
	port := &rows.Port{
		UUID: "port", Name: b.Name, Interfaces: []string{iface.UUID}, VLAN: Port{VLAN: b.LocalVLAN}.vlan(),
	}
	bridge := &rows.Bridge{
		UUID: "bridge", Name: b.Name, DatapathType: b.Datapath, FailMode: &failMode, Protocols: protocols,
		Ports: []string{port.UUID}, ExternalIDs: owned(b.ExternalIDs), OtherConfig: b.otherConfig(),
	}
	ops, err := s.create(iface, port, bridge)
	if err != nil {
		return nil, err
	}
	insert, err := s.cli.Where(root).Mutate(root, model.Mutation{
		Field: &root.Bridges, Mutator: db.MutateOperationInsert, Value: []string{bridge.UUID}})
	return append(ops, insert...), err
}

// adoptable refuses a bridge that serves something else.
func (s *session) adoptable(row *rows.Bridge, b Bridge) error {
	if have := datapathName(row.DatapathType); have != b.Datapath {
		return fmt.Errorf("exists with datapath %q, wanted is %q: remove the bridge or change the setting", have,
			b.Datapath)
	}
	if row.ExternalIDs[OwnerKey] == OwnerValue {
		return nil
	}
	ports := s.rows(rows.TablePort)
	var foreign []string
	for _, uuid := range row.Ports {
		if p, ok := ports[uuid].(*rows.Port); ok && p.Name != row.Name {
			foreign = append(foreign, p.Name)
		}
	}
	if len(foreign) > 0 {
		sort.Strings(foreign)
		return fmt.Errorf("exists, is not Coelan's and has ports (%s): use another bridge name or remove them",
			strings.Join(foreign, ", "))
	}
	return nil
}

func (s *session) updateBridge(row *rows.Bridge, b Bridge) ([]db.Operation, error) {
	failMode := b.failMode()
	want := *row
	want.FailMode = &failMode
	want.ExternalIDs = merged(row.ExternalIDs, owned(b.ExternalIDs))
	want.OtherConfig = merged(row.OtherConfig, b.otherConfig())
	want.Protocols = row.Protocols
	if !slices.Contains(row.Protocols, "OpenFlow15") {
		want.Protocols = protocols
	}
	ops, err := s.cli.Where(row).Update(&want, &want.FailMode, &want.ExternalIDs, &want.OtherConfig, &want.Protocols)
	if local := s.port(b.Name); err == nil && local != nil && b.LocalVLAN != 0 {
		var change []db.Operation
		change, err = s.setVLAN(local, b.LocalVLAN)
		ops = append(ops, change...)
	}
	return ops, err
}

func (b Bridge) failMode() string {
	if b.Switch {
		return "standalone"
	}
	return "secure"
}

func (b Bridge) otherConfig() map[string]string {
	if b.MAC == nil {
		return nil
	}
	return map[string]string{"hwaddr": b.MAC.String()}
}

// datapathName is the type of a bridge's datapath; the database writes "" for
// "system".
func datapathName(column string) string {
	if column == "" {
		return "system"
	}
	return column
}

// owned is ids with the owner's mark.
func owned(ids map[string]string) map[string]string {
	return merged(ids, map[string]string{OwnerKey: OwnerValue})
}

// merged is a copy of base with what is over it.
func merged(base, over map[string]string) map[string]string {
	m := make(map[string]string, len(base)+len(over))
	for k, v := range base {
		m[k] = v
	}
	for k, v := range over {
		m[k] = v
	}
	return m
}
