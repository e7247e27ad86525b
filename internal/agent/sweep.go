// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"regexp"

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
		if !ok {
			continue
		}
		if st, ok := state[at.HostInterface]; !ok || !st.Ready() || st.Bridge != a.cfg.Bridge {
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
	if _, ok := a.intent.State().Ports().Get(at.Key.String()); !ok || !linkExists(at.HostInterface) {
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
	a.metrics.repaired()
	return nil
}

func keyOf(p intent.Port) attachment.Key {
	return attachment.Key{ContainerID: p.ID[:len(p.ID)-len(p.Interface)-1], IfName: p.Interface}
}

// sweep removes ports of ours that belong to nobody.
func (a *Agent) sweep(ctx context.Context) error {
	have, err := a.db.Ports(ctx)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, p := range infrastructure(a.cfg, a.intent.State().Local()) {
		wanted[p.Name] = true
	}
	for _, at := range a.store.List() {
		wanted[at.HostInterface] = true
	}
	var errs []error
	for _, p := range have {
		if p.Bridge == a.cfg.Bridge && !wanted[p.Name] {
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
	if err := a.db.DelPorts(ctx, a.cfg.Bridge, p.Name); err != nil {
		return fmt.Errorf("remove port %s that belongs to no pod: %w", p.Name, err)
	}
	a.log.Info("removed a port that belongs to no pod", "port", p.Name, "was", p.ExternalIDs[idInterface])
	a.metrics.swept("port")
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

// collect is done once, before any pod can be attached: attachments whose interface is gone are those of containers that
// have ended while the agent was away, and interfaces without an attachment were left by a crash in the middle of an ADD
// or DEL.
func (a *Agent) collect() error {
	var errs []error
	for _, at := range a.store.List() {
		if linkExists(at.HostInterface) {
			continue
		}
		if _, err := a.store.Release(at.Key); err != nil {
			errs = append(errs, err)
			continue
		}
		a.log.Info("released the addresses of a container that is gone", "pod", at.PodRef(), "container", at.ContainerID)
		a.metrics.swept("attachment")
	}
	links, err := strayLinks(a.owned)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, l := range links {
		if err := netlink.LinkDel(l); err != nil {
			errs = append(errs, fmt.Errorf("remove interface %s that belongs to no pod: %w", l.Attrs().Name, err))
			continue
		}
		a.log.Info("removed an interface that belongs to no pod", "interface", l.Attrs().Name)
		a.metrics.swept("interface")
	}
	return errors.Join(errs...)
}

// hostInterface is the form of names that attachment.HostInterface makes.
var hostInterface = regexp.MustCompile(`^co[0-9a-f]{12}$`)

// strayLinks are the interfaces with the name and kind of a pod's host end that owned does not know.
func strayLinks(owned func(string) bool) ([]netlink.Link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var stray []netlink.Link
	for _, l := range links {
		if name := l.Attrs().Name; l.Type() == "veth" && hostInterface.MatchString(name) && !owned(name) {
			stray = append(stray, l)
		}
	}
	return stray, nil
}

func linkExists(name string) bool {
	_, err := netlink.LinkByName(name)
	return err == nil
}
