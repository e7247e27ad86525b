// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/kernelview"
	"coelan.io/coelan/internal/backend/ovs/cards"
	"coelan.io/coelan/internal/backend/ovs/foreignbridge"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/statefile"
)

// Removals are what a Backend has put on its node, in the order in which it is removed. The agent
// must not be running. OVN's bridge and configuration stay, not so a bridge that the agent has
// made.
func Removals(ctx context.Context, c config.Config) []backend.Removal {
	return append([]backend.Removal{
		cards.Removal(ctx, c),
		foreignbridge.Removal(ctx, c),
		{What: "ports of bridge " + c.Bridge, Do: func() error { return removePorts(ctx, c) }},
	}, kernelview.Removals()...)
}

func removePorts(ctx context.Context, c config.Config) error {
	db := ovsdb.OpenSilently(c.OVSRunDir)
	defer db.Close()
	ports, err := db.Ports(ctx)
	errs := []error{err}
	for _, p := range ports {
		errs = append(errs, db.DelPorts(ctx, p.Bridge, p.Name))
	}
	return errors.Join(append(errs, statefile.Remove(c.StateFile(uplinkFile)))...)
}
