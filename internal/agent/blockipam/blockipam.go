// SPDX-License-Identifier: Apache-2.0

package blockipam

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/trigger"
)

// API is where blocks are. Its errors are those of package apierrors.
type API interface {
	// Blocks lists those of a Network, as they are now.
	Blocks(ctx context.Context, network string) ([]*v1alpha1.AddressBlock, error)
	Block(ctx context.Context, name string) (*v1alpha1.AddressBlock, error)
	CreateBlock(ctx context.Context, b *v1alpha1.AddressBlock) (*v1alpha1.AddressBlock, error)
	// DeleteBlock succeeds if the block of that UID is gone.
	DeleteBlock(ctx context.Context, name string, uid types.UID) error
	PatchBlockStatus(ctx context.Context, name string, status any) error
}

// Blocks are those of one node. Its methods are safe for concurrent use.
type Blocks struct {
	// Subnets are the parts of Networks, by name, that new blocks are from; of other Networks they
	// are from anywhere. It is set before the Blocks are used.
	Subnets map[string][]netip.Prefix
	// Keep is how long blocks are kept of a Network that no attachment is on any more, for the next
	// one. It is set before the Blocks are used.
	Keep time.Duration

	log   *slog.Logger
	node  string
	api   API
	view  *apicache.View
	store *attachment.Store
	wake  trigger.Trigger

	mu       sync.Mutex
	index    *index
	networks map[string]*state
	held     map[hold]bool
	// granted are the answers that were given, by block and UID, until the view shows them.
	granted map[string]bool
	// used is what was written last of a block.
	used map[string]int

	// idle are the Networks with blocks that no attachment is on, and since when. It is of the
	// goroutine that runs.
	idle map[string]time.Time
}

// state is what is known of a Network beside the view.
type state struct {
	// claiming is held while something is claimed or given back.
	claiming sync.Mutex
	// made are blocks of this node that the view has not shown yet.
	made map[string]made
	// unlisted are new blocks of which the single addresses are not known yet.
	unlisted map[string]bool
	// unsure are blocks that may have been released: it is not known whether the
	// API has received that.
	unsure map[string]bool
	// asking is how many requests have been told of ranges and have not ended.
	asking int
}

// made is a block and when it was made.
type made struct {
	*v1alpha1.AddressBlock
	at time.Time
}

// showTimeout is how long the view may take to show a block before it is asked for: it may have
// gone again unseen.
const showTimeout = time.Second

// hold is an address that is kept for a Port.
type hold struct {
	network string
	addr    netip.Addr
	port    string
}

// New keeps the single addresses that are known from being handed out.
func New(log *slog.Logger, node string, api API, v *apicache.View, store *attachment.Store) *Blocks {
	b := &Blocks{
		log: log, node: node, api: api, view: v, store: store, wake: trigger.New(), index: newIndex(),
		networks: map[string]*state{}, held: map[hold]bool{}, granted: map[string]bool{}, used: map[string]int{},
	}
	b.follow(v.State())
	b.honorUnsettled()
	return b
}

// Kick says that attachments have come or gone.
func (b *Blocks) Kick() {
	b.wake.Fire()
}

func (b *Blocks) of(network string) *state {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.networks[network]
	if s == nil {
		s = &state{made: map[string]made{}, unlisted: map[string]bool{}, unsure: map[string]bool{}}
		b.networks[network] = s
	}
	return s
}

// ExhaustedError says that no block of a Network's subnet is left.
type ExhaustedError struct {
	Network string
	Subnet  netip.Prefix
	// Parts are those that the node may take blocks from; none: all.
	Parts []netip.Prefix
}

func (e *ExhaustedError) Error() string {
	if len(e.Parts) > 0 {
		return fmt.Sprintf("network %s: no block of subnet %s is left in %v, from which this node takes its blocks; "+
			"delete pods that do not need their addresses, or give the node more in its NodeNetworkConfig",
			e.Network, e.Subnet, e.Parts)
	}
	return fmt.Sprintf("network %s: all blocks of subnet %s are taken; delete pods that do not need their addresses, or make a larger Network",
		e.Network, e.Subnet)
}

// Ranges are what this node hands out of the first subnet of each family. A block is claimed where
// there is none, or all are among exhausted. Until ctx ends, none is given back. Errors:
// *ExhaustedError, those of the API.
func (b *Blocks) Ranges(ctx context.Context, network intent.Network, exhausted []netip.Prefix) ([]ipam.Range, error) {
	if network.Withheld != "" {
		return nil, fmt.Errorf("network %s: no address is handed out: %s", network.Name, network.Withheld)
	}
	s := b.of(network.Name)
	b.ask(ctx, s)
	s.claiming.Lock()
	defer s.claiming.Unlock()
	var ranges []ipam.Range
	for _, sp := range specs(network) {
		own, err := b.usable(ctx, network, s, sp)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(own, func(p netip.Prefix) bool { return !slices.Contains(exhausted, p) }) {
			p, err := b.claim(ctx, network, s, sp)
			if err != nil {
				return nil, err
			}
			own = append(own, p)
		}
		for _, p := range own {
			r, err := sp.Block(p)
			if err != nil {
				return nil, fmt.Errorf("network %s: block %s: %w", network.Name, p, err)
			}
			ranges = append(ranges, r)
		}
	}
	return ranges, nil
}

// specs are those of the Network that this node takes addresses from.
func specs(network intent.Network) []spec {
	var list []spec
	for _, p := range ipam.Pools(network) {
		list = append(list, spec{Pool: p})
	}
	return list
}

// ask keeps the Network's blocks until ctx ends.
func (b *Blocks) ask(ctx context.Context, s *state) {
	b.mu.Lock()
	s.asking++
	b.mu.Unlock()
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		s.asking--
		b.mu.Unlock()
		b.Kick()
	})
}

// settle is how long changes are gathered, and retry how long what failed has to wait.
const (
	settle   = 200 * time.Millisecond
	minRetry = 500 * time.Millisecond
	maxRetry = 30 * time.Second
)
