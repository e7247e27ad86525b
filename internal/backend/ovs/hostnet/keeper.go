// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"reflect"
	"sync"

	"github.com/mdlayher/netlink"
	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/trigger"
)

// Keeper gives an interface its addresses and routes back after Open vSwitch made it anew. On the
// userspace datapath the node's address is on a bridge's LOCAL port, a tap that vanishes with
// ovs-vswitchd; the program that configured it does not notice that it came back empty.
//
// While the interface is whole, what it has is written to a file. An interface of the same
// name with another index gets what the file says. A change by hand of an interface that
// stays is never undone.
type Keeper struct {
	log     *slog.Logger
	path    string
	boot    string
	sysctls sysctls
	wake    trigger.Trigger
	// before is asked before each step of a move, in tests.
	before func(step string) error

	mu   sync.Mutex
	link string
	node netip.Addr
}

// NewKeeper makes a Keeper that remembers in the file path, on a disk that survives the agent. It
// starts with the interface that the file names, which may be waiting for its addresses already.
// sysctlDir is usually /proc/sys.
func NewKeeper(log *slog.Logger, path, sysctlDir string) *Keeper {
	k := &Keeper{
		log: log, path: path, boot: BootID(), sysctls: sysctls{sysctlDir}, wake: trigger.New(),
		before: func(string) error { return nil },
	}
	saved, err := load(path)
	if err != nil {
		log.Error("cannot read the saved addresses and routes of the uplink", "err", err)
	}
	if saved != nil {
		k.link, k.node = saved.Link, saved.Node
	}
	return k
}

// Set names the interface, which counts as whole while it is up and has the address node. An empty
// name forgets it.
func (k *Keeper) Set(link string, node netip.Addr) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.link == link && k.node == node {
		return nil
	}
	k.link, k.node = link, node
	k.wake.Fire()
	if link != "" {
		return nil
	}
	if err := os.Remove(k.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Run remembers and restores until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	events := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { events <- watch(ctx, linkGroups, k.relevant, k.wake.Fire) }()
	for {
		select {
		case err := <-events:
			return err
		case <-k.wake:
			if err := k.step(); err != nil {
				k.log.Error("cannot save or restore the uplink's addresses and routes", "err", err)
			}
		}
	}
}

func (k *Keeper) relevant(_ int, m netlink.Message) bool {
	switch uint16(m.Header.Type) {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		k.mu.Lock()
		defer k.mu.Unlock()
		return linkName(m) == k.link
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		p := routeProtocol(m)
		return p != uint8(Protocol) && p != unix.RTPROT_KERNEL
	}
	return !addressOfPod(m)
}

// step compares the interface with the file once.
func (k *Keeper) step() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.link == "" {
		return nil
	}
	link, err := nl.LinkByName(k.link)
	if errors.As(err, new(nl.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", k.link, err)
	}
	saved, err := load(k.path)
	if err != nil {
		return err
	}
	if saved != nil && saved.Boot == k.boot && saved.Link == k.link && saved.Index != link.Attrs().Index {
		if err := k.restore(link, saved); err != nil {
			return err
		}
	}
	now, whole, err := k.look(link, saved)
	if err != nil || !whole || reflect.DeepEqual(saved, now) {
		return err
	}
	return now.save(k.path)
}

// look reads what the interface has. The flags are read last: a vanishing interface goes down
// before it loses routes.
func (k *Keeper) look(link nl.Link, saved *memory) (now *memory, whole bool, err error) {
	now = &memory{Boot: k.boot, Link: k.link, Node: k.node, Index: link.Attrs().Index}
	list, err := objectsOf(link)
	if err != nil {
		return nil, false, err
	}
	now.Objects = configured(list)
	link, err = nl.LinkByIndex(now.Index)
	if err != nil {
		// It has just vanished.
		return nil, false, nil
	}
	up := link.Attrs().Flags&net.FlagUp != 0
	if saved != nil {
		now.Settings, now.MTU, now.TurnedIPv6Off = saved.Settings, saved.MTU, saved.TurnedIPv6Off
	}
	return now, up && now.has(k.node), nil
}

// restore writes what is missing. Another program may be doing the same: what exists is no error.
func (k *Keeper) restore(link nl.Link, saved *memory) error {
	errs := []error{k.prepare(link, saved), addAll(link, saved.Objects)}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("interface %s: restore: %w", link.Attrs().Name, err)
	}
	k.log.Info("addresses and routes are in place", "interface", link.Attrs().Name, "objects", len(saved.Objects))
	return nil
}

// prepare gives an interface the settings that it had, and sets it up.
func (k *Keeper) prepare(link nl.Link, saved *memory) error {
	errs := []error{k.sysctls.setInterface(link.Attrs().Name, saved.Settings)}
	if saved.MTU != 0 && link.Attrs().MTU != saved.MTU {
		errs = append(errs, nl.LinkSetMTU(link, saved.MTU))
	}
	return errors.Join(append(errs, nl.LinkSetUp(link))...)
}

// ifaceOf is a link as objects know it.
func ifaceOf(link nl.Link) iface { return iface{link.Attrs().Index, link.Attrs().Name} }

// objectsOf are all objects of an interface.
func objectsOf(link nl.Link) ([]object, error) {
	s, err := openObjects()
	if err != nil {
		return nil, err
	}
	defer s.close()
	list, err := s.list(ifaceOf(link))
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", link.Attrs().Name, err)
	}
	return list, nil
}

// addAll makes objects of an interface, and tries each.
func addAll(link nl.Link, list []object) error {
	s, err := openObjects()
	if err != nil {
		return err
	}
	defer s.close()
	var errs []error
	for _, o := range list {
		errs = append(errs, s.add(o, ifaceOf(link)))
	}
	return errors.Join(errs...)
}
