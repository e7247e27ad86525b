// SPDX-License-Identifier: Apache-2.0

package foreignbridge

import (
	"context"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/config"
)

// Removal takes what was made for external controllers from a node. A bridge with ports of other
// programs stays. The agent must not be running.
func Removal(ctx context.Context, c config.Config) backend.Removal {
	return backend.Removal{What: "bridges of external controllers", Do: func() error {
		db := ovsdb.OpenSilently(c.OVSRunDir)
		defer db.Close()
		return db.RemoveForeign(ctx)
	}}
}
