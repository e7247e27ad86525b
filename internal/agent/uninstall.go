// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"coelan.io/coelan/internal/announce"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/hostnet"
	"coelan.io/coelan/internal/ovsdb"
	"coelan.io/coelan/internal/statefile"
)

// Uninstall removes everything that Coelan has put on this node, and says what it removed. The agent must not be running.
// While pods are attached it refuses, unless force is set: they lose their network. Every part is tried; the errors are
// joined.
func Uninstall(ctx context.Context, c config.Config, force bool) (done []string, err error) {
	store, err := attachment.Open(c.StateFile(stateFile))
	if err != nil {
		return nil, err
	}
	attached := store.List()
	if err := store.Close(); err != nil {
		return nil, err
	}
	if len(attached) > 0 && !force {
		return nil, fmt.Errorf("%d pods are attached, the first is %s: drain the node, or use --force to cut them off",
			len(attached), attached[0].PodRef())
	}
	for _, part := range []struct {
		what string
		do   func() error
	}{
		{"CNI configuration and plugin", func() error { return uninstallCNI(c) }},
		{"bridge " + c.Bridge, func() error { return removeBridge(ctx, c) }},
		{"pods' interfaces", func() error { return removeLinks(c) }},
		{"routes", removeRoutes},
		{"nftables table coelan", hostnet.RemoveSNAT},
		{"nftables table coelan-services", hostnet.RemoveServices},
		{"answers for load balancers' addresses", announce.Remove},
		{"state in " + c.StateDir + " and sockets", func() error { return removeState(c) }},
	} {
		if e := part.do(); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", part.what, e))
			continue
		}
		done = append(done, "removed "+part.what)
	}
	return done, err
}

// removeBridge also takes the wires from the bridges of physical networks, and flow-restore-wait back: nobody would let go
// after the next start of Open vSwitch.
func removeBridge(ctx context.Context, c config.Config) error {
	db := ovsdb.Open(ovsdb.Options{Socket: filepath.Join(c.OVSRunDir, "db.sock"), Logger: slog.New(slog.DiscardHandler)})
	defer db.Close()
	ports, err := db.Ports(ctx)
	errs := []error{err, db.ReleaseFlowRestore(ctx, false)}
	for _, p := range ports {
		if p.Bridge != c.Bridge {
			errs = append(errs, db.DelPorts(ctx, p.Bridge, p.Name))
		}
	}
	return errors.Join(append(errs, db.DelBridge(ctx, c.Bridge))...)
}

func removeLinks(c config.Config) error {
	p, err := podnet.New(c.SysctlDir)
	if err != nil {
		return err
	}
	defer p.Close()
	links, err := p.Existing()
	if err != nil {
		return err
	}
	var errs []error
	for name := range links {
		errs = append(errs, p.Remove(name))
	}
	return errors.Join(errs...)
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

// removeState removes the files by name: their directories may be shared.
func removeState(c config.Config) error {
	var errs []error
	for _, path := range []string{
		c.StateFile(stateFile), c.StateFile(stateFile + ".lock"), c.StateFile(uplinkFile), c.StateFile(servicesFile), c.StateFile(policiesFile),
		c.CNI.Socket, c.AgentSocket,
	} {
		errs = append(errs, statefile.Remove(path))
	}
	return errors.Join(errs...)
}
