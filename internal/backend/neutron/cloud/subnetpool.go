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
	for _, id := range s.givenPools {
		loan, err := s.lentByID(ctx, resource.SubnetPool, id)
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

	mu  sync.Mutex
	api *gophercloud.ServiceClient // nil: there was no connection yet
}

// NewSubnetPools returns the pools with these ids.
func NewSubnetPools(a Access, ids []string) *SubnetPools { return &SubnetPools{access: a, ids: ids} }

// takenTimeout bounds how long Taken waits for Neutron: its callers have more to do.
const takenTimeout = 10 * time.Second

// Taken are the prefixes of all their subnets that the user is shown: the cluster's, and those of
// other programs.
func (p *SubnetPools) Taken(ctx context.Context) ([]netip.Prefix, error) {
	if len(p.ids) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, takenTimeout)
	defer cancel()
	taken, err := p.subnets(ctx)
	if err != nil {
		return nil, fmt.Errorf("subnets of the subnet pools %v: %w", p.ids, err)
	}
	return taken, nil
}

func (p *SubnetPools) subnets(ctx context.Context) (prefixes []netip.Prefix, err error) {
	api, err := p.connected(ctx)
	if err != nil {
		return nil, err
	}
	get := func(path string, into any) error { return send(ctx, api, http.MethodGet, path, nil, into) }
	of := collections[resource.Subnet]
	subnets, err := list[struct{ CIDR string }](get, of.path, of.plural, url.Values{"subnetpool_id": p.ids})
	if err != nil {
		return nil, err
	}
	for _, s := range subnets {
		prefix, err := netip.ParsePrefix(s.CIDR)
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}

// connected returns the client, which is made once.
func (p *SubnetPools) connected(ctx context.Context) (_ *gophercloud.ServiceClient, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.api == nil {
		p.api, _, err = p.access.connect(ctx)
	}
	return p.api, err
}
