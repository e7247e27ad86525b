// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
)

// service is one of OpenStack's, by its type in keystone's catalog.
type service struct{ kind, name string }

var (
	neutronService = service{"network", "a Neutron"}
	octaviaService = service{"load-balancer", "an Octavia"}
)

// checkRegion returns an error if a file names no region, and a service is in several. Without a
// region the library takes the first endpoint of the catalog, which may be in any.
func (a Access) checkRegion(
	provider *gophercloud.ProviderClient, where gophercloud.EndpointOpts, of service,
) error {
	if where.Region != "" {
		return nil
	}
	token, ok := provider.GetAuthResult().(tokens.CreateResult)
	if !ok {
		return errors.New("the token is not of version 3")
	}
	catalog, err := token.ExtractServiceCatalog()
	if err != nil {
		return fmt.Errorf("keystone's catalog: %w", err)
	}
	regions := regionsOf(catalog, where, of.kind)
	if len(regions) <= 1 {
		return nil
	}
	return fmt.Errorf("cloud %s of %s names no region, and keystone has %s in several, %s: "+
		"write region_name into the file", a.Cloud, a.CloudsFile, of.name, strings.Join(regions, ", "))
}

// regionsOf are the regions, sorted, of the endpoints that may be taken for a service.
func regionsOf(catalog *tokens.ServiceCatalog, where gophercloud.EndpointOpts, kind string) (list []string) {
	where.ApplyDefaults(kind)
	for _, s := range catalog.Entries {
		if !slices.Contains(where.Types(), s.Type) {
			continue
		}
		for _, e := range s.Endpoints {
			if gophercloud.Availability(e.Interface) == where.Availability {
				list = append(list, cmp.Or(e.Region, e.RegionID))
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
