// SPDX-License-Identifier: Apache-2.0

// Package egressclaims writes into the API for which external addresses this node is active, so
// that other nodes follow, and the addresses stay where they are.
package egressclaims

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/names"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/trigger"
)

// API is where AddressBlocks are. Its errors are those of package apierrors.
type API interface {
	// ClaimBlock writes the node that is active into the status of a block that has that resource
	// version.
	ClaimBlock(ctx context.Context, name, resourceVersion, node string) error
}

// Claims are safe for concurrent use.
type Claims struct {
	log  *slog.Logger
	node string
	api  API
	view *apicache.View
	wake trigger.Trigger

	mu     sync.Mutex
	claims []backend.ExternalAddress
}

// New makes Claims that are none.
func New(log *slog.Logger, node string, api API, view *apicache.View) *Claims {
	return &Claims{log: log, node: node, api: api, view: view, wake: trigger.New()}
}

// Set replaces the addresses that this node claims and that the API does not show so. It does not
// block.
func (c *Claims) Set(list []backend.ExternalAddress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Equal(c.claims, list) {
		return
	}
	c.claims = slices.Clone(list)
	c.wake.Fire()
}

// The pauses between attempts.
const (
	minPause = 50 * time.Millisecond
	maxPause = 5 * time.Second
)

// Run writes until ctx ends. What another node has written meanwhile is not overwritten: whether
// this one still is active is decided anew then.
func (c *Claims) Run(ctx context.Context) error {
	backoff := retry.New(minPause, maxPause)
	for {
		again := backoff.After(c.write(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		case <-again:
		}
	}
}

// write writes all claims, and returns the last error.
func (c *Claims) write(ctx context.Context) (failed error) {
	c.mu.Lock()
	claims := c.claims
	c.mu.Unlock()
	blocks := c.view.State().Blocks
	for _, a := range claims {
		name := names.BlockName(a.Network, netip.PrefixFrom(a.Address, a.Address.BitLen()))
		b := blocks.Get(name)
		if b == nil || b.Status.ActiveNode == c.node {
			continue // intent follows
		}
		err := c.api.ClaimBlock(ctx, name, b.ResourceVersion, c.node)
		switch {
		case err == nil || apierrors.IsNotFound(err) || ctx.Err() != nil:
		case apierrors.IsConflict(err):
			failed = err // the block has another version, which is about to be seen
		default:
			c.log.Warn("cannot write that this node is active for an external address, retrying",
				"network", a.Network, "address", a.Address, "err", err)
			failed = err
		}
	}
	return failed
}
