// SPDX-License-Identifier: Apache-2.0

package cards

import (
	"context"
	"log/slog"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/config"
)

// Removal takes all Bridges from a node. The agent must not be running.
func Removal(ctx context.Context, c config.Config) backend.Removal {
	host := NewHost(slog.Default(), c)
	return backend.Removal{What: "bridges of network cards", Do: func() error { return ReturnAll(ctx, c, host) }}
}

// ReturnAll gives network cards back to the node, with the addresses that their bridges have.
func ReturnAll(ctx context.Context, c config.Config, k Kernel) error {
	db := ovsdb.OpenSilently(c.OVSRunDir)
	defer db.Close()
	bridges, err := db.Bridges(ctx)
	if err != nil {
		return err
	}
	none := Bridges{db: db, kernel: k}
	_, err = none.Ensure(ctx, bridges, "", nil)
	return err
}
