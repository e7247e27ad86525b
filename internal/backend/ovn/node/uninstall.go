// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/kernelview"
	"coelan.io/coelan/internal/backend/ovs/cards"
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
		{What: "bridges of external controllers", Do: func() error { return removeForeign(ctx, c) }},
		{What: "ports of bridge " + c.Bridge, Do: func() error { return removePorts(ctx, c) }},
	}, kernelview.Removals()...)
}

// openDatabase connects to Open vSwitch's database, silently.
func openDatabase(c config.Config) *ovsdb.Client {
	return ovsdb.Open(ovsdb.Options{
		Socket: filepath.Join(c.OVSRunDir, "db.sock"), Logger: slog.New(slog.DiscardHandler),
	})
}

func removeForeign(ctx context.Context, c config.Config) error {
	db := openDatabase(c)
	defer db.Close()
	return db.RemoveForeign(ctx)
}

func removePorts(ctx context.Context, c config.Config) error {
	db := openDatabase(c)
	defer db.Close()
	ports, err := db.Ports(ctx)
	errs := []error{err}
	for _, p := range ports {
		errs = append(errs, db.DelPorts(ctx, p.Bridge, p.Name))
	}
	return errors.Join(append(errs, statefile.Remove(c.StateFile(uplinkFile)))...)
}
