// SPDX-License-Identifier: Apache-2.0

// Package hostnet keeps the node's own kernel in the state that Coelan needs: the gateway interface
// with its addresses and settings, routes to the other nodes' pods, masquerading, what leads
// Services to the bridge that balances them, and for the userspace datapath the addresses of the
// uplink's bridge and the neighbors of the tunnels.
//
// Everything is compared first and written only where it differs, so a restart that finds nothing
// changed writes nothing. Events of the kernel start a comparison; nothing is polled. All of it
// works on the network namespace of the process and talks netlink; no program is run.
package hostnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/trigger"
)

// Desired is what the host's kernel holds for Coelan.
type Desired struct {
	// Gateway is the port between the host and the pods.
	Gateway Gateway
	// Routes are all routes that carry Coelan's protocol number, the gateway's
	// own prefixes included.
	Routes []Route
	// SNAT is the masquerading of pods' packets.
	SNAT SNAT
	// Guard keeps pods and strangers from the nodes' own ports.
	Guard Guard
	// Services are led to the bridge that balances them.
	Services Services
	// HideClientsOfHostPorts gives pods that are clients of host ports the gateway's address, and
	// marks them by their TTL: for backends that lead answers between pods past the kernel, which
	// has to translate them.
	HideClientsOfHostPorts bool
	// Uplink is the interface with the node's address; its router advertisements keep working when
	// the node forwards.
	Uplink string
	// Cards are the network cards behind an uplink that is a bridge of the userspace datapath.
	Cards []string
	// SwitchOnly are interfaces of which only Open vSwitch takes packets in, and the kernel none.
	// The userspace datapath reads an interface beside the kernel.
	SwitchOnly []string
}

// Status is the outcome of the newest comparison.
type Status struct {
	// Synced says that the kernel holds all that is desired.
	Synced bool `json:"synced"`
	// Changes counts what has been written since the start.
	Changes int `json:"changes"`
	// Error is what failed last; empty when Synced.
	Error string `json:"error,omitempty"`
}

// Host applies a Desired and keeps it.
type Host struct {
	log     *slog.Logger
	nl      *netlink.Handle
	sysctls sysctls
	nft     nftSocket

	wake trigger.Trigger
	// gateway is the index of the gateway interface, as it was seen last.
	gateway atomic.Int64
	// doubt says that another program may have changed the table of Services.
	doubt atomic.Bool
	// applying serializes whole comparisons.
	applying sync.Mutex
	// services is what the kernel has, as far as it is known; it is guarded by applying.
	services serviceMemory
	// hostPorts are those that pods have now; they are guarded by applying.
	hostPorts []HostPort

	mu      sync.Mutex
	desired *Desired
	status  Status
	changed broadcast.Broadcast
}

// New opens the sockets. sysctlDir is usually /proc/sys.
func New(log *slog.Logger, sysctlDir string) (*Host, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	// With strict checks the kernel filters a dump itself; old kernels know none of
	// it and send everything.
	_ = nl.SetStrictCheck(true)
	return &Host{
		log:     log,
		nl:      nl,
		sysctls: sysctls{dir: sysctlDir},
		wake:    trigger.New(),
	}, nil
}

// Close releases the sockets; the kernel's state stays.
func (h *Host) Close() {
	h.nl.Close()
	h.nft.close()
}

// Set replaces what is desired; Run applies it. An equal value costs nothing.
func (h *Host) Set(d Desired) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.desired != nil && h.desired.equal(d) {
		return
	}
	h.desired = &d
	h.wake.Fire()
}

// Status returns the newest outcome.
func (h *Host) Status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status
}

// Backoff between comparisons that failed or that found something to write each time, as
// when two programs disagree.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 10 * time.Second
	// calm is how many comparisons in a row may find something to write before each next one waits.
	calm = 5
	// peace is how long there must be nothing to write until the row ends: a Host looks at what it
	// wrote itself, too.
	peace = time.Second
)

// Run compares and applies after every Set and every event of the kernel that may concern
// it, until ctx ends.
func (h *Host) Run(ctx context.Context) error {
	events := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { events <- watch(ctx, hostGroups, h.relevant, h.wake.Fire) }()
	var again <-chan time.Time
	backoff, writes := retry.New(minBackoff, maxBackoff), 0
	var wrote time.Time
	var last *Desired
	for {
		select {
		case err := <-events:
			// It also ends with ctx.
			return err
		case <-h.wake:
		case <-again:
		}
		h.mu.Lock()
		asked := h.desired != last
		last = h.desired
		h.mu.Unlock()
		n, err := h.apply()
		again = nil
		if err == nil && n == 0 {
			if time.Since(wrote) > peace {
				writes = 0
				backoff.Reset()
			}
			continue
		}
		if err != nil {
			again = backoff.After(err)
		}
		if asked {
			// Only this Host's own writes caused it.
			continue
		}
		wrote = time.Now()
		if writes++; n > 0 && writes > calm {
			h.log.Warn("another program keeps changing the host's routes, addresses or nftables; find and stop it",
				"comparisons", writes)
			backoff.Wait(ctx)
		}
	}
}

// Apply compares and writes d once, and makes it what Run keeps. It returns the number of writes.
func (h *Host) Apply(d Desired) (int, error) {
	h.mu.Lock()
	h.desired = &d
	h.mu.Unlock()
	return h.apply()
}

func (h *Host) apply() (int, error) {
	h.applying.Lock()
	defer h.applying.Unlock()
	h.mu.Lock()
	d := h.desired
	h.mu.Unlock()
	if d == nil {
		return 0, nil
	}
	n, err := h.applyAll(*d)
	h.mu.Lock()
	defer h.mu.Unlock()
	failed := h.status.Error
	h.status = Status{Synced: err == nil, Changes: h.status.Changes + n}
	if err != nil {
		h.status.Error = err.Error()
	}
	h.changed.Send()
	switch {
	case err != nil && h.status.Error != failed:
		h.log.Error("cannot write all of the host's network configuration, retrying", "err", err, "writes", n)
	case err == nil && n > 0:
		h.log.Info("host network configuration written", "writes", n)
	}
	return n, err
}

// applyAll goes through all parts even if one fails: a wrong route must not
// keep the masquerading away.
func (h *Host) applyAll(d Desired) (int, error) {
	plan, err := h.planServices(d)
	if err != nil {
		return 0, err
	}
	d.Routes = slices.Concat(d.Routes, plan.routes)
	var total int
	var errs []error
	for _, part := range []func(Desired) (int, error){
		h.applyForwarding, h.applyNeighbors, h.applyCards, h.applySwitchOnly, h.applyGateway, h.applyRoutes,
		h.applySNAT, h.applyHostPorts,
		func(d Desired) (int, error) { return h.applyServices(d, plan) },
		func(d Desired) (int, error) { return h.applyReplies(d, plan) },
	} {
		n, err := part(d)
		total += n
		if err != nil {
			errs = append(errs, err)
		}
	}
	return total, errors.Join(errs...)
}

// Watch calls update with the newest outcome, now and after each comparison, until ctx ends.
func (h *Host) Watch(ctx context.Context, update func(Status)) error {
	for {
		h.mu.Lock()
		status, changed := h.status, h.changed.Changed()
		h.mu.Unlock()
		update(status)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// equal compares Services apart: there may be many.
func (d Desired) equal(o Desired) bool {
	same := d.Services.equal(o.Services)
	d.Services, o.Services = Services{}, Services{}
	return same && reflect.DeepEqual(d, o)
}

// families are the address families that the gateway uses.
func (d Desired) families() (v4, v6 bool) {
	for _, p := range d.Gateway.Addresses {
		v4 = v4 || p.Addr().Is4()
		v6 = v6 || p.Addr().Is6()
	}
	return v4, v6
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
