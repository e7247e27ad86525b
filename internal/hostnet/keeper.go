// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"

	"github.com/mdlayher/netlink"
	nl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Keeper gives an interface its addresses and routes back after Open vSwitch made it anew. On the userspace datapath the
// node's address is on a bridge's LOCAL port, a tap that vanishes with ovs-vswitchd; whoever configured it does not
// notice that it came back empty.
//
// While the interface is whole, what it has is written to a file. An interface of the same name with another index gets
// what the file says. A change by hand of an interface that stays is never undone.
type Keeper struct {
	log  *slog.Logger
	path string
	link string
	node netip.Addr
	boot string
}

// NewKeeper makes a Keeper of the interface link. It counts as whole while it is up and has the address node; path is
// the file, on a disk that survives the agent.
func NewKeeper(log *slog.Logger, path, link string, node netip.Addr) *Keeper {
	return &Keeper{log: log.With("interface", link), path: path, link: link, node: node, boot: bootID()}
}

// Run remembers and restores until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	events := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		events <- watch(ctx, linkGroups, k.relevant, func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		})
	}()
	for {
		select {
		case err := <-events:
			return err
		case <-wake:
			if err := k.step(); err != nil {
				k.log.Error("addresses of the uplink", "err", err)
			}
		}
	}
}

func (k *Keeper) relevant(_ int, m netlink.Message) bool {
	switch uint16(m.Header.Type) {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return linkName(m) == k.link
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return routeProtocol(m) != uint8(Protocol)
	}
	return true
}

// step compares the interface with the file once.
func (k *Keeper) step() error {
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
	if saved != nil && saved.Boot == k.boot && saved.Index != link.Attrs().Index {
		if err := k.restore(link, saved); err != nil {
			return err
		}
	}
	now, whole, err := k.look(link)
	if err != nil || !whole || reflect.DeepEqual(saved, now) {
		return err
	}
	return now.save(k.path)
}

// look reads what the interface has. The flags are read last: a vanishing interface goes down before it loses routes.
func (k *Keeper) look(link nl.Link) (now *memory, whole bool, err error) {
	now = &memory{Boot: k.boot, Index: link.Attrs().Index}
	if now.Addresses, err = addressesOf(link); err != nil {
		return nil, false, fmt.Errorf("interface %s: %w", k.link, err)
	}
	if now.Routes, err = routesOf(link); err != nil {
		return nil, false, fmt.Errorf("interface %s: %w", k.link, err)
	}
	link, err = nl.LinkByIndex(now.Index)
	if err != nil {
		// It has just vanished.
		return nil, false, nil
	}
	up := link.Attrs().Flags&net.FlagUp != 0
	return now, up && now.has(k.node), nil
}

// restore writes what is missing. Another program may be doing the same: what exists is no error.
func (k *Keeper) restore(link nl.Link, saved *memory) error {
	var errs []error
	if err := nl.LinkSetUp(link); err != nil {
		errs = append(errs, fmt.Errorf("up: %w", err))
	}
	for _, a := range saved.Addresses {
		if err := a.add(link); err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("address %s: %w", a.Prefix, err))
		}
	}
	for _, r := range saved.Routes {
		if err := r.add(link); err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("route %s: %w", r.Destination, err))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("interface %s: restore: %w", k.link, errors.Join(errs...))
	}
	k.log.Info("uplink restored", "addresses", len(saved.Addresses), "routes", len(saved.Routes))
	return nil
}
