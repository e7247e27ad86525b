// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/keymutex"
)

// The external_ids of interfaces. ovn-controller reads the first, which is the name of a
// Logical_Switch_Port, and writes the last.
const (
	idInterface = "iface-id"
	idMAC       = "attached-mac"
	idContainer = "coelan-container-id"
	idIfName    = "coelan-interface"
	idPodUID    = "coelan-pod-uid"
	idInstalled = "ovn-installed"
)

// installTimeout is how long an attachment waits until OVN has connected it: the controller's
// transaction, ovn-northd, which takes seconds for thousands of ports, and ovn-controller.
const installTimeout = 30 * time.Second

// detachTimeout is how long a DEL waits for a database that is away.
const detachTimeout = 3 * time.Second

// ports keeps the ports of attachments on the bridge, and removes those that belong to none.
type ports struct {
	log         *slog.Logger
	bridge      string
	logical     LogicalPorts
	intent      *intent.Store
	attachments *attachment.Store
	interfaces  *keymutex.Mutex
	hooks       backend.Hooks
	links       links
	db          portDatabase
	// patience is how long an attachment waits until OVN has connected it.
	patience time.Duration
}

// portDatabase is what ports need of Open vSwitch's database.
type portDatabase interface {
	Ports(ctx context.Context) ([]ovsdb.PortState, error)
	EnsurePorts(ctx context.Context, bridge string, ports ...ovsdb.Port) error
	DelPorts(ctx context.Context, bridge string, names ...string) error
	Interfaces(ctx context.Context, bridge, key string) ([]ovsdb.PortState, error)
	Watch() (changes <-chan struct{}, stop func())
}

// links are the interfaces of the host.
type links interface {
	Exists(name string) bool
	SetUp(name string) error
}

// portOf is the port of an attachment, plugged into the Logical_Switch_Port of that name in a VLAN.
func portOf(at attachment.Attachment, logical string, vlan int) ovsdb.Port {
	return ovsdb.Port{
		Name: at.HostInterface, AnyNumber: true, VLAN: vlan,
		ExternalIDs: map[string]string{
			idInterface: logical, idMAC: at.MAC.String(), idContainer: at.ContainerID, idIfName: at.IfName,
			idPodUID: at.PodUID,
		},
	}
}

// name is that of the Logical_Switch_Port of an attachment, of which the interface is st, and its
// VLAN on a machine of OpenStack. Of another program's interface it may be known by that alone.
func (p *ports) name(at attachment.Attachment, st ovsdb.PortState) (logical string, vlan int) {
	logical, vlan = p.logical.Port(at)
	if logical == "" && at.IsPort() {
		logical = st.ExternalIDs[idInterface]
	}
	return logical, vlan
}

// plug is the port that an attachment is to have, given what it has. While its Logical_Switch_Port
// is not known, name and VLAN are what it has; false if it has none. On a machine of OpenStack a
// port without a VLAN would have the packets of all pods and of the machine itself: none is made.
func (p *ports) plug(at attachment.Attachment, have ovsdb.PortState) (ovsdb.Port, bool) {
	logical, vlan := p.logical.Port(at)
	if logical == "" && have.ExternalIDs[idContainer] == at.ContainerID {
		logical, vlan = have.ExternalIDs[idInterface], have.VLAN
	}
	return portOf(at, logical, vlan), logical != "" && (vlan != 0 || !p.logical.Trunk())
}

// plugged says whether a port is as it should be. What ovn-controller has written is left alone.
func plugged(bridge string, want ovsdb.Port, have ovsdb.PortState) bool {
	if have.Bridge != bridge || have.Type != want.Type || !have.Ready() || want.VLAN != 0 && have.VLAN != want.VLAN {
		return false
	}
	for key, value := range want.ExternalIDs {
		if have.ExternalIDs[key] != value {
			return false
		}
	}
	return true
}

// find returns one of Coelan's ports.
func (p *ports) find(ctx context.Context, name string) (ovsdb.PortState, bool, error) {
	have, err := p.db.Ports(ctx)
	if err != nil {
		return ovsdb.PortState{}, false, err
	}
	i := slices.IndexFunc(have, func(s ovsdb.PortState) bool { return s.Name == name })
	if i < 0 {
		return ovsdb.PortState{}, false, nil
	}
	return have[i], true, nil
}

// ensurePort makes a port, unless it is as it should be: EnsurePorts would take away what
// ovn-controller has written of it.
func (p *ports) ensurePort(ctx context.Context, want ovsdb.Port) error {
	have, ok, err := p.find(ctx, want.Name)
	if err != nil || ok && plugged(p.bridge, want, have) {
		return err
	}
	return p.db.EnsurePorts(ctx, p.bridge, want)
}

// attach plugs an attachment, and returns when OVN has connected it.
func (p *ports) attach(ctx context.Context, at attachment.Attachment) error {
	unlock, err := p.interfaces.Lock(ctx, at.HostInterface)
	if err != nil {
		return fmt.Errorf("port %s: %w", at.HostInterface, err)
	}
	defer unlock()
	err = p.awaitInstalled(ctx, at, func(logical string, vlan int) error {
		if err := p.ensurePort(ctx, portOf(at, logical, vlan)); err != nil {
			return err
		}
		return p.links.SetUp(at.HostInterface)
	})
	if err != nil {
		return fmt.Errorf("attach %s: %w", at.PodRef(), err)
	}
	return nil
}

// awaitInstalled returns when ovn-controller has said of an attachment's interface that all of its
// flows are in place. It calls plug once the Logical_Switch_Port is known, and again when its name
// or its VLAN is another.
func (p *ports) awaitInstalled(
	ctx context.Context, at attachment.Attachment, plug func(logical string, vlan int) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	changes, stop := p.db.Watch()
	defer stop()
	for lastLogical, lastVLAN := "", 0; ; {
		renamed := p.logical.Changed()
		logical, vlan := p.logical.Port(at)
		if logical != "" && (logical != lastLogical || vlan != lastVLAN) {
			if err := plug(logical, vlan); err != nil {
				return err
			}
		}
		lastLogical, lastVLAN = logical, vlan
		done, err := p.installed(ctx, at, logical)
		if ctx.Err() == nil && (err != nil || done) {
			return err
		}
		select {
		case <-ctx.Done():
			return notConnected(at, logical, ctx.Err())
		case <-changes:
		case <-renamed:
		}
	}
}

// notConnected says what may be why an attachment's interface is not connected.
func notConnected(at attachment.Attachment, logical string, err error) error {
	switch {
	case logical == "" && at.IsPort():
		return fmt.Errorf("OVN has not connected interface %s, which is plugged for Port %s: do ovn-northd and "+
			"this node's ovn-controller run? %w", at.HostInterface, at.PortKey(), err)
	case logical == "":
		return fmt.Errorf("Neutron's port of Port %s is not known: does coelan-controller run, and does Neutron take "+
			"the port? The Port's Events say: %w", at.PortKey(), err)
	}
	return fmt.Errorf("OVN has not connected the port %s: does coelan-controller run, has its northbound database "+
		"that port, do ovn-northd and this node's ovn-controller run? %w", logical, err)
}

// installed says whether an interface is connected, be it Coelan's or a guest's, which may be
// plugged without its name being known here. While that of a pod is not, the database is not read:
// of many pods that come at once, all look after each change.
func (p *ports) installed(ctx context.Context, at attachment.Attachment, logical string) (bool, error) {
	if logical == "" && !at.IsPort() {
		return false, nil
	}
	states, err := p.states(ctx)
	if err != nil {
		return false, err
	}
	if logical == "" {
		return p.connected(states[at.HostInterface]), nil
	}
	for _, s := range states {
		if s.ExternalIDs[idInterface] == logical && p.connected(s) {
			return true, nil
		}
	}
	return false, nil
}

// connected reports whether an interface that is plugged works. OVN beyond a machine has its ports
// connected while they are not plugged, and says nothing of it.
func (p *ports) connected(s ovsdb.PortState) bool {
	return s.ExternalIDs[idInstalled] == "true" || p.logical.Trunk() && s.Ready()
}

// detach returns when the port of an attachment is gone. It succeeds also while Open vSwitch is
// away: what is left of a port without an attachment is removed as soon as it is seen.
func (p *ports) detach(ctx context.Context, at attachment.Attachment) error {
	unlock, err := p.interfaces.Lock(ctx, at.HostInterface)
	if err != nil {
		return fmt.Errorf("port %s: %w", at.HostInterface, err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(ctx, detachTimeout)
	defer cancel()
	err = p.db.DelPorts(ctx, p.bridge, at.HostInterface)
	if err != nil && !errors.Is(err, ovsdb.ErrNotConnected) {
		return fmt.Errorf("detach %s: %w", at.PodRef(), err)
	}
	return nil
}

// check says what an attachment lacks.
func (p *ports) check(ctx context.Context, at attachment.Attachment) error {
	have, ok, err := p.find(ctx, at.HostInterface)
	want, known := p.plug(at, have)
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("port %s of %s is missing on bridge %s", at.HostInterface, at.PodRef(), p.bridge)
	case !known || !plugged(p.bridge, want, have):
		return fmt.Errorf("port %s of %s is not plugged as %s on bridge %s: %s", at.HostInterface, at.PodRef(),
			want.ExternalIDs[idInterface], p.bridge, have.Error)
	case !p.connected(have):
		return fmt.Errorf("OVN has not connected port %s of %s: does ovn-controller run?", at.HostInterface, at.PodRef())
	}
	return nil
}

// ensure makes the ports of all attached pods that do not work. A port that is being attached or
// detached right now is left to that.
func (p *ports) ensure(ctx context.Context) error {
	have, err := p.db.Ports(ctx)
	if err != nil {
		return err
	}
	state := make(map[string]ovsdb.PortState, len(have))
	for _, port := range have {
		state[port.Name] = port
	}
	var errs []error
	for _, at := range p.attachments.List() {
		if at.IsPort() {
			continue // another program's interface
		}
		st, ok := state[at.HostInterface]
		if want, known := p.plug(at, st); known && (!ok || !plugged(p.bridge, want, st)) {
			errs = append(errs, p.repair(ctx, at, want, ok && st.Actual < 0))
		}
	}
	return errors.Join(errs...)
}

// repair makes one port. One that ovs-vswitchd failed to open is removed first: it would not look
// again by itself.
func (p *ports) repair(ctx context.Context, at attachment.Attachment, want ovsdb.Port, failed bool) error {
	unlock, free := p.interfaces.TryLock(at.HostInterface)
	if !free {
		return nil
	}
	defer unlock()
	if _, ok := p.intent.State().Ports().Get(at.Key.String()); !ok {
		return nil
	}
	if !p.links.Exists(at.HostInterface) {
		p.hooks.InterfaceGone()
		return nil
	}
	if failed {
		if err := p.db.DelPorts(ctx, p.bridge, at.HostInterface); err != nil {
			return fmt.Errorf("repair port of %s: %w", at.PodRef(), err)
		}
	}
	if err := p.db.EnsurePorts(ctx, p.bridge, want); err != nil {
		return fmt.Errorf("repair port of %s: %w", at.PodRef(), err)
	}
	p.log.Info("bridge port of a pod repaired", "port", at.HostInterface, "pod", at.PodRef())
	p.hooks.Repaired(1)
	return nil
}

// sweep removes Coelan's ports that belong neither to an attachment nor to the node itself.
func (p *ports) sweep(ctx context.Context, own ...string) error {
	have, err := p.db.Ports(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, port := range have {
		if !slices.Contains(own, port.Name) && !p.owned(port.Name) {
			errs = append(errs, p.remove(ctx, port))
		}
	}
	return errors.Join(errs...)
}

func (p *ports) remove(ctx context.Context, port ovsdb.PortState) error {
	unlock, free := p.interfaces.TryLock(port.Name)
	if !free {
		return nil
	}
	defer unlock()
	if p.owned(port.Name) {
		return nil
	}
	if err := p.db.DelPorts(ctx, port.Bridge, port.Name); err != nil {
		return fmt.Errorf("remove port %s that belongs to no pod: %w", port.Name, err)
	}
	p.log.Info("removed a bridge port that belongs to no pod", "port", port.Name, "was", port.ExternalIDs[idInterface])
	p.hooks.Swept("port", 1)
	return nil
}

// owned says whether an attachment has the host interface.
func (p *ports) owned(name string) bool {
	return slices.ContainsFunc(p.attachments.List(), func(at attachment.Attachment) bool {
		return at.HostInterface == name
	})
}

// guests are the interfaces of the bridge that are not Coelan's and are plugged for a Port.
func (p *ports) guests(ctx context.Context) ([]backend.Guest, error) {
	found, err := p.db.Interfaces(ctx, p.bridge, idInterface)
	var guests []backend.Guest
	for _, i := range found {
		key, ok := p.logical.Guest(i.ExternalIDs[idInterface])
		if ok {
			guests = append(guests, backend.Guest{Name: i.Name, ID: key, Number: i.Actual})
		}
	}
	return guests, err
}
