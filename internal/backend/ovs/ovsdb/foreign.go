// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"coelan.io/coelan/internal/backend/ovs/rows"
)

// Interfaces lists the interfaces of a bridge that are not Coelan's and have an external_ids entry
// of that key, by name: another program has added them and identifies them by it.
func (c *Client) Interfaces(ctx context.Context, bridge, key string) ([]PortState, error) {
	var all []PortState
	err := c.with(ctx, func(_ context.Context, s *session) error {
		all = nil
		row := s.bridge(bridge)
		if row == nil {
			return nil
		}
		ports, ifaces := s.rows(rows.TablePort), s.rows(rows.TableInterface)
		for _, uuid := range row.Ports {
			port, ok := ports[uuid].(*rows.Port)
			if !ok || port.Name == bridge {
				continue
			}
			for _, uuid := range port.Interfaces {
				i, ok := ifaces[uuid].(*rows.Interface)
				if ok && i.ExternalIDs[OwnerKey] != OwnerValue && i.ExternalIDs[key] != "" {
					all = append(all, portState(bridge, i))
				}
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b PortState) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// RequestNumber gives an interface that is not Coelan's an OpenFlow port number, and waits
// until ovs-vswitchd has given it. Nothing else of the interface is touched. One that has
// the number costs nothing.
func (c *Client) RequestNumber(ctx context.Context, name string, ofport int) error {
	p := Port{Name: name, OFPort: ofport}
	err := p.validate()
	if err == nil {
		err = c.with(ctx, func(ctx context.Context, s *session) error {
			row := s.iface(name)
			switch {
			case row == nil:
				return errors.New("is gone")
			case row.ExternalIDs[OwnerKey] == OwnerValue:
				return errors.New("is Coelan's own")
			case s.portReady(name) && value(row.OFPortRequest) == ofport:
				return nil
			}
			want := &rows.Interface{OFPortRequest: &ofport}
			ops, err := s.cli.Where(row).Update(want, &want.OFPortRequest)
			if err != nil {
				return err
			}
			cfg, err := s.configure(ctx, ops)
			if err != nil {
				return err
			}
			return c.awaitNumber(ctx, s, p, cfg)
		})
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	return nil
}
