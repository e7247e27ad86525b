// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/statefile"
)

// Removals are what a Backend has put on its node, in the order in which it is removed. The agent
// must not be running.
func Removals(ctx context.Context, c config.Config) []backend.Removal {
	return []backend.Removal{
		{What: "bridge " + c.Bridge, Do: func() error { return removeBridge(ctx, c) }},
		{What: "routes", Do: removeRoutes},
		{What: "nftables table coelan", Do: hostnet.RemoveSNAT},
		{What: "nftables table coelan-services", Do: hostnet.RemoveServices},
		{What: "nftables table coelan-hostports", Do: hostnet.RemoveHostPorts},
	}
}

// removeBridge also takes the wires from the bridges of physical networks, what is
// remembered of the uplink, and flow-restore-wait back: nothing would reset it after the
// next start of Open vSwitch.
func removeBridge(ctx context.Context, c config.Config) error {
	db := ovsdb.Open(ovsdb.Options{Socket: filepath.Join(c.OVSRunDir, "db.sock"),
		Logger: slog.New(slog.DiscardHandler)})
	defer db.Close()
	ports, err := db.Ports(ctx)
	errs := []error{err, db.ReleaseFlowRestore(ctx, false)}
	for _, p := range ports {
		if p.Bridge != c.Bridge {
			errs = append(errs, db.DelPorts(ctx, p.Bridge, p.Name))
		}
	}
	return errors.Join(append(errs, db.DelBridge(ctx, c.Bridge), statefile.Remove(c.StateFile(uplinkFile)))...)
}

// removeRoutes leaves none of our routes. Those through the gateway interface have gone with it.
func removeRoutes() error {
	h, err := hostnet.New(slog.New(slog.DiscardHandler), "")
	if err != nil {
		return err
	}
	defer h.Close()
	return h.RemoveRoutes()
}
