// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/octavia"
	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/controller/neutron/balancers"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/internal/translate"
)

// neutronFlags are those of the backend neutron. It shares --northbound, --cluster,
// --policy-mode, --service-cidrs, --snat and --snat-exclude-cidrs with the backend ovn.
type neutronFlags struct {
	access   cloud.Access
	spare    int
	projects []string
	pools    []string
	octavia  balancers.Settings
}

// maxSpare is what the smallest podCIDRs that are usual, /24, have room for.
const maxSpare = 120

func (f *neutronFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.access.CloudsFile, "clouds-file", "",
		"with the backend neutron: a file clouds.yaml, which says where keystone is, and as which user it is asked")
	flags.StringVar(&f.access.Cloud, "cloud", "", "with the backend neutron: name of the cloud in --clouds-file")
	flags.StringVar(&f.access.Endpoint, "neutron-endpoint", "",
		"with the backend neutron: URL of a Neutron without keystone, in place of --clouds-file")
	flags.StringVar(&f.access.Project, "neutron-project", "",
		"with --neutron-endpoint: the project that resources are of")
	flags.IntVar(&f.spare, "neutron-spare-ports", reserved.NeutronSpare,
		"with the backend neutron: ports that each node has ready for pods of its podCIDRs; 0: none, on Networks too")
	flags.StringArrayVar(&f.projects, "neutron-projects", nil,
		"with the backend neutron: PROJECT=NAMESPACE,…: namespaces that may ask for a project by the annotation "+
			"openstack.org/kuryr-project, or * for all; one flag for each project")
	flags.StringSliceVar(&f.pools, "neutron-subnet-pools", nil,
		"with the backend neutron: UUIDs of subnet pools, at most one of each family, that --namespace-subnets are a part of; none: the "+
			"controller makes them")
	flags.StringVar(&f.octavia.Endpoint, "octavia-endpoint", "", "with --neutron-endpoint: URL of an Octavia without keystone")
	flags.StringVar(&f.octavia.Subnet, "octavia-subnet", "",
		"with the backend neutron: id of the subnet of Neutron that addresses of load balancers of Octavia are of; empty: there are none")
	flags.StringVar(&f.octavia.Provider, "octavia-provider", octavia.ProviderOVN,
		"with --octavia-subnet: provider of load balancers")
	flags.StringVar(&f.octavia.External, "octavia-floating-network", "",
		"with --octavia-subnet: id of the network of Neutron of which each load balancer has a floating IP; empty: none has")
}

// options are nil for other backends.
func (f *neutronFlags) options(o *ovnFlags) (*controller.Neutron, error) {
	if o.backend != "neutron" {
		if f.access != (cloud.Access{}) || len(f.projects) > 0 || len(f.pools) > 0 {
			return nil, fmt.Errorf("--clouds-file, --cloud, --neutron-endpoint, --neutron-project, --neutron-projects and "+
				"--neutron-subnet-pools have no meaning with --backend %s", o.backend)
		}
		return nil, nil //nolint:nilnil // without Neutron there are no settings of it
	}
	if err := f.access.Validate(); err != nil {
		return nil, fmt.Errorf("--backend neutron: %w", err)
	}
	if o.auditDenied {
		return nil, errors.New("--audit-denied: Neutron does not log what is denied: leave it out")
	}
	if f.spare < 0 || f.spare > maxSpare {
		return nil, fmt.Errorf("--neutron-spare-ports: is %d, not in 0 to %d", f.spare, maxSpare)
	}
	switch o := f.octavia; {
	case o.Subnet == "" && (o.Endpoint != "" || o.External != ""):
		return nil, errors.New("--octavia-endpoint and --octavia-floating-network have no meaning without --octavia-subnet")
	case o.Subnet != "" && (o.Endpoint == "") == (f.access.CloudsFile == ""):
		return nil, errors.New("--octavia-endpoint: is needed with --neutron-endpoint, and has no meaning with --clouds-file")
	case o.Subnet != "" && o.Provider == "":
		return nil, errors.New("--octavia-provider: is empty")
	}
	for i, id := range f.pools {
		if uuid.Validate(id) != nil || slices.Contains(f.pools[:i], id) {
			return nil, fmt.Errorf("--neutron-subnet-pools: %q is not a UUID, or is there twice", id)
		}
	}
	n := &controller.Neutron{Cloud: f.access, Spare: f.spare, SubnetPools: f.pools, Octavia: f.octavia}
	var err error
	if n.Projects, err = translate.ParseProjects(f.projects); err != nil {
		return nil, fmt.Errorf("--neutron-projects: %w", err)
	}
	if n.Northbound, n.TLS, err = o.servers(); err != nil {
		return nil, err
	}
	if n.ServiceCIDRs, err = controller.ParsePrefixes(o.serviceCIDRs); err != nil {
		return nil, fmt.Errorf("--service-cidrs: %w", err)
	}
	n.Cluster, n.SNAT, n.PolicyMode, err = o.shared()
	return n, err
}
