// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// readSubnetPools adds the subnet pools of other programs that the settings name.
func (s *session) readSubnetPools(ctx context.Context, have *resource.Inventory) error {
	return lendSubnetPools(s.getter(ctx), s.givenPools, have)
}

func lendSubnetPools(get getter, ids []string, have *resource.Inventory) error {
	for _, id := range ids {
		loan, err := lentByID(get, resource.SubnetPool, id)
		if err != nil {
			return err
		}
		have.Lend(resource.LentSubnetPool(id), loan)
	}
	return nil
}

// SubnetPools are subnet pools of other programs, which are asked beside all that a Client does.
type SubnetPools struct {
	access Access
	ids    []string

	// mu is held while Neutron is asked: the next question is for all callers that wait for it.
	mu    sync.Mutex
	api   *gophercloud.ServiceClient // nil: there was no connection yet
	last  pooled
	asked time.Time // when the last question began
	until time.Time // before, Neutron is not asked again
}

// pooled is what Read returns.
type pooled struct {
	pools *resource.Inventory
	taken []netip.Prefix
	err   error
}

// NewSubnetPools returns the pools with these ids.
func NewSubnetPools(a Access, ids []string) *SubnetPools { return &SubnetPools{access: a, ids: ids} }

// How long Read waits for Neutron, which takes seconds when it has much to do, and how long it does
// not ask again after an error: for twice as long as that took, too, so that callers have time for
// other things.
const (
	poolsTimeout = 30 * time.Second
	poolsFailed  = 5 * time.Second
)

// Read returns the pools, as Loans, and the prefixes of all their subnets that the user is shown:
// the cluster's, and those of other programs.
func (p *SubnetPools) Read(ctx context.Context) (pools *resource.Inventory, taken []netip.Prefix, err error) {
	called := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.asked.Before(called) && now.After(p.until) {
		ctx, cancel := context.WithTimeout(ctx, poolsTimeout)
		defer cancel()
		p.asked = now
		if p.last = p.read(ctx); p.last.err != nil {
			p.until = time.Now().Add(poolsFailed + 2*time.Since(now))
		}
	}
	return p.last.pools, p.last.taken, p.last.err
}

func (p *SubnetPools) read(ctx context.Context) (found pooled) {
	if p.api == nil {
		if p.api, _, found.err = p.access.connect(ctx); found.err != nil {
			return found
		}
	}
	get := func(path string, into any) error { return send(ctx, p.api, http.MethodGet, path, nil, into) }
	found.pools = resource.NewInventory()
	if found.err = lendSubnetPools(get, p.ids, found.pools); found.err != nil {
		return found
	}
	subnets, err := listSubnets(get, url.Values{"subnetpool_id": p.ids})
	if err != nil {
		return pooled{err: fmt.Errorf("subnets of the subnet pools %v: %w", p.ids, err)}
	}
	for _, s := range subnets {
		found.taken = append(found.taken, s.CIDR)
	}
	return found
}
