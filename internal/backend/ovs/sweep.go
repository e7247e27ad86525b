// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/keymutex"
)

// ports keeps the ports of attachments on the bridge, and removes those that belong to none.
type ports struct {
	log         *slog.Logger
	bridge      string
	intent      *intent.Store
	attachments *attachment.Store
	interfaces  *keymutex.Mutex
	hooks       backend.Hooks
	links       links
	db          portDatabase
	// settled returns when the datapath forwards by the ports that there are.
	settled func(context.Context) error

	mu sync.Mutex
	// repaired are attachments with ports that were made anew and the datapath may not know yet,
	// each with what is closed when it does.
	repaired map[attachment.Key]<-chan struct{}
}

// portDatabase is what ports need of Open vSwitch's database.
type portDatabase interface {
	Ports(ctx context.Context) ([]ovsdb.PortState, error)
	EnsurePlaced(ctx context.Context, ports ...ovsdb.PlacedPort) error
	Tried(ctx context.Context, names ...string) error
	DelPorts(ctx context.Context, bridge string, names ...string) error
	Bridges(ctx context.Context) ([]ovsdb.BridgeState, error)
	EnsureBridge(ctx context.Context, b ovsdb.Bridge) error
	Interfaces(ctx context.Context, bridge, key string) ([]ovsdb.PortState, error)
}

// links are the interfaces of the host.
type links interface {
	Exists(name string) bool
	// SetUp sets an interface up, again: ovs-vswitchd, when it turns promiscuous mode on or off,
	// writes all flags as it remembers them by name, and of an interface that had the name before,
	// it may remember that it was down.
	SetUp(name string) error
}

// ensure makes the ports of all attached pods that do not work: after the database was recreated,
// after one was removed, and those that ovs-vswitchd could not open when it started. A port that is
// being attached or detached right now is left to that.
func (p *ports) ensure(ctx context.Context) error {
	have, err := p.db.Ports(ctx)
	if err != nil {
		return err
	}
	state := byName(have)
	done := make(chan struct{})
	var errs []error
	for port := range p.intent.State().Ports().All() {
		at, ok := p.attachments.Get(keyOf(port))
		if !ok || at.IsPort() {
			continue // another node's, or another program's interface
		}
		if problem := p.problem(at, state); problem != nil {
			errs = append(errs, p.repair(ctx, at, problem.failed, done))
		}
	}
	return errors.Join(append(errs, p.settle(ctx, done))...)
}

// settle ends a round of repairs, of which done tells. Ovs-vswitchd says that it has a port before
// it has gone through the flows of the datapath, which drop packets for it until then.
func (p *ports) settle(ctx context.Context, done chan struct{}) error {
	defer close(done)
	p.mu.Lock()
	none := len(p.repaired) == 0
	p.mu.Unlock()
	if none {
		return nil
	}
	err := p.settled(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.repaired)
	return err
}

// awaitSettled returns when an attachment's ports that were made anew are in use.
func (p *ports) awaitSettled(ctx context.Context, key attachment.Key) error {
	p.mu.Lock()
	done := p.repaired[key]
	p.mu.Unlock()
	if done == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return nil
	}
}

func byName(list []ovsdb.PortState) map[string]ovsdb.PortState {
	m := make(map[string]ovsdb.PortState, len(list))
	for _, p := range list {
		m[p.Name] = p
	}
	return m
}

// portProblem is what is wrong with a port of an attachment.
type portProblem struct {
	port, text string
	failed     bool // ovs-vswitchd could not open it
}

// problem is the first of an attachment's ports; nil: they work. have are those of the database, by
// name.
func (p *ports) problem(at attachment.Attachment, have map[string]ovsdb.PortState) *portProblem {
	for _, want := range podPorts(p.bridge, at) {
		st, ok := have[want.Name]
		found := &portProblem{port: want.Name, failed: st.Actual < 0}
		switch {
		case !ok || st.Bridge != want.Bridge:
			found.text, found.failed = "is missing on bridge "+want.Bridge, false
		case broken(st) && want.OFPort == 0:
			found.text = fmt.Sprintf("does not work on bridge %s: %s", want.Bridge, st.Error)
		case broken(st):
			found.text = fmt.Sprintf("has OpenFlow port %d instead of %d: %s", st.Actual, want.OFPort, st.Error)
		case st.VLAN != want.VLAN && want.VLAN != 0:
			found.text = fmt.Sprintf("has the VLAN (tag) %d instead of %d", st.VLAN, want.VLAN)
		default:
			continue
		}
		return found
	}
	return nil
}

// repair makes the ports of an attachment. Those that ovs-vswitchd failed to open are removed
// first: it would not look again by itself. They are in use when done is closed.
func (p *ports) repair(ctx context.Context, at attachment.Attachment, failed bool, done <-chan struct{}) error {
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
	p.mu.Lock()
	p.repaired[at.Key] = done
	p.mu.Unlock()
	if failed {
		if err := p.delete(ctx, at); err != nil {
			return fmt.Errorf("repair port of %s: %w", at.PodRef(), err)
		}
	}
	if err := p.make(ctx, at); err != nil {
		return fmt.Errorf("repair port of %s: %w", at.PodRef(), err)
	}
	p.log.Info("bridge port of a pod repaired", "port", at.HostInterface, "pod", at.PodRef(), "ofport", at.OFPort)
	p.hooks.Repaired(1)
	return nil
}

func keyOf(p intent.Port) attachment.Key {
	container, name, _ := strings.Cut(p.ID, "/")
	return attachment.Key{ContainerID: container, IfName: name}
}

// guests are the interfaces of the bridge that are not Coelan's and say what they are plugged for.
func (p *ports) guests(ctx context.Context) ([]backend.Guest, error) {
	found, err := p.db.Interfaces(ctx, p.bridge, idInterface)
	var guests []backend.Guest
	for _, i := range found {
		guests = append(guests, backend.Guest{
			Name: i.Name, ID: i.ExternalIDs[idInterface], MAC: i.ExternalIDs[idMAC], Number: i.Actual,
		})
	}
	return guests, err
}

// sweep removes Coelan's ports that neither an attachment has nor other parts of the backend want.
func (p *ports) sweep(ctx context.Context, others []ovsdb.PlacedPort) error {
	have, err := p.db.Ports(ctx)
	if err != nil {
		return err
	}
	wanted := map[string]bool{} // by bridge and name
	for _, o := range others {
		wanted[o.Bridge+" "+o.Name] = true
	}
	for _, at := range p.attachments.List() {
		for _, port := range podPorts(p.bridge, at) {
			wanted[port.Bridge+" "+port.Name] = true
		}
	}
	var errs []error
	for _, port := range have {
		if !wanted[port.Bridge+" "+port.Name] {
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
	if p.owned(port) {
		return nil
	}
	if err := p.db.DelPorts(ctx, port.Bridge, port.Name); err != nil {
		return fmt.Errorf("remove port %s that belongs to no pod: %w", port.Name, err)
	}
	p.log.Info("removed a bridge port that belongs to no pod",
		"port", port.Name, "was", port.ExternalIDs[idInterface])
	p.hooks.Swept("port", 1)
	return nil
}

// owned says whether an attachment has the port.
func (p *ports) owned(port ovsdb.PortState) bool {
	for _, at := range p.attachments.List() {
		for _, own := range podPorts(p.bridge, at) {
			if own.Name == port.Name && own.Bridge == port.Bridge {
				return true
			}
		}
	}
	return false
}
