// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovsdb"
)

// ensurePodPorts makes the ports of all attached pods that do not work: after the database was made anew, after somebody
// removed one, and those that ovs-vswitchd could not open when it started. A port that is being attached or detached
// right now is left to that.
func (a *Agent) ensurePodPorts(ctx context.Context) error {
	have, err := a.db.Ports(ctx)
	if err != nil {
		return err
	}
	state := make(map[string]ovsdb.PortState, len(have))
	for _, p := range have {
		state[p.Name] = p
	}
	var errs []error
	for p := range a.intent.State().Ports().All() {
		at, ok := a.store.Get(keyOf(p))
		if !ok || at.IsPort() {
			continue // another node's, or somebody else's interface
		}
		if st, ok := state[at.HostInterface]; !ok || broken(st) || st.Bridge != a.cfg.Bridge {
			errs = append(errs, a.repair(ctx, at, ok && st.Actual < 0))
		}
	}
	return errors.Join(errs...)
}

// repair makes one port. One that ovs-vswitchd failed to open is removed first: it would not look again by itself.
func (a *Agent) repair(ctx context.Context, at attachment.Attachment, failed bool) error {
	if !a.names.try(at.HostInterface) {
		return nil
	}
	defer a.names.unlock(at.HostInterface)
	if _, ok := a.intent.State().Ports().Get(at.Key.String()); !ok {
		return nil
	}
	if !linkExists(at.HostInterface) {
		a.kickCollect()
		return nil
	}
	if failed {
		if err := a.db.DelPorts(ctx, a.cfg.Bridge, at.HostInterface); err != nil {
			return fmt.Errorf("repair port of %s: %w", at.PodRef(), err)
		}
	}
	if err := a.db.EnsurePorts(ctx, a.cfg.Bridge, podPort(at)); err != nil {
		return fmt.Errorf("repair port of %s: %w", at.PodRef(), err)
	}
	a.log.Info("port repaired", "port", at.HostInterface, "pod", at.PodRef(), "ofport", at.OFPort)
	a.metrics.repaired(1)
	return nil
}

func keyOf(p intent.Port) attachment.Key {
	container, name, _ := strings.Cut(p.ID, "/")
	return attachment.Key{ContainerID: container, IfName: name}
}

// sweep removes ports of ours that belong to nobody.
func (a *Agent) sweep(ctx context.Context) error {
	have, err := a.db.Ports(ctx)
	if err != nil {
		return err
	}
	wanted := map[string]bool{} // by bridge and name
	for _, p := range infrastructure(a.cfg, a.intent.State().Local()) {
		wanted[a.cfg.Bridge+" "+p.Name] = true
	}
	for _, u := range a.uplinkPorts() {
		wanted[a.cfg.Bridge+" "+u.inner.Name], wanted[u.bridge+" "+u.outer.Name] = true, true
	}
	for _, at := range a.store.List() {
		wanted[a.cfg.Bridge+" "+at.HostInterface] = true
	}
	var errs []error
	for _, p := range have {
		if !wanted[p.Bridge+" "+p.Name] {
			errs = append(errs, a.sweepPort(ctx, p))
		}
	}
	return errors.Join(errs...)
}

func (a *Agent) sweepPort(ctx context.Context, p ovsdb.PortState) error {
	if !a.names.try(p.Name) {
		return nil
	}
	defer a.names.unlock(p.Name)
	if a.owned(p.Name) {
		return nil
	}
	if err := a.db.DelPorts(ctx, p.Bridge, p.Name); err != nil {
		return fmt.Errorf("remove port %s that belongs to no pod: %w", p.Name, err)
	}
	a.log.Info("removed a port that belongs to no pod", "port", p.Name, "was", p.ExternalIDs[idInterface])
	a.metrics.swept("port", 1)
	return nil
}

// owned says whether an attachment has the host interface.
func (a *Agent) owned(name string) bool {
	for _, at := range a.store.List() {
		if at.HostInterface == name {
			return true
		}
	}
	return false
}

func linkExists(name string) bool {
	_, err := netlink.LinkByName(name)
	return err == nil
}
