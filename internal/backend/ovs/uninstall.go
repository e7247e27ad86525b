// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/kernelview"
	"coelan.io/coelan/internal/backend/ovs/cards"
	"coelan.io/coelan/internal/backend/ovs/foreignbridge"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/statefile"
)

// Removals are what a Backend has put on its node, in the order in which it is removed. The agent
// must not be running.
func Removals(ctx context.Context, c config.Config) []backend.Removal {
	return append([]backend.Removal{
		cards.Removal(ctx, c),
		foreignbridge.Removal(ctx, c),
		{What: "bridge " + c.Bridge, Do: func() error { return removeBridge(ctx, c) }},
	}, kernelview.Removals()...)
}

// ForeignAttached are the attachments on bridges of external controllers. The agent need not run.
// None are known while Open vSwitch does not answer: that is an error of Removals.
func ForeignAttached(ctx context.Context, c config.Config) ([]attachment.Attachment, error) {
	db := ovsdb.OpenSilently(c.OVSRunDir)
	defer db.Close()
	list, err := foreignbridge.Attachments(ctx, db)
	if errors.Is(err, ovsdb.ErrNotConnected) {
		return nil, nil
	}
	return list, err
}

// removeBridge also takes the bridges that network configurations named, the wires from the bridges
// of physical networks, what is remembered of the uplink, and flow-restore-wait back: nothing would
// reset it after the next start of Open vSwitch.
func removeBridge(ctx context.Context, c config.Config) error {
	db := ovsdb.OpenSilently(c.OVSRunDir)
	defer db.Close()
	bridges, err := db.Bridges(ctx)
	errs := []error{err, db.ReleaseFlowRestore(ctx, false)}
	for _, b := range bridges {
		if isPodBridge(b) {
			errs = append(errs, db.DelBridge(ctx, b.Name))
		}
	}
	ports, err := db.Ports(ctx)
	errs = append(errs, err)
	for _, p := range ports {
		if p.Bridge != c.Bridge {
			errs = append(errs, db.DelPorts(ctx, p.Bridge, p.Name))
		}
	}
	return errors.Join(append(errs, db.DelBridge(ctx, sessionBridge), db.DelBridge(ctx, c.Bridge),
		statefile.Remove(c.StateFile(uplinkFile)))...)
}
