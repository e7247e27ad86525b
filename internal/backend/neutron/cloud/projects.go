// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/projects"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// reasonNoProject is that of objects which ask for a project that there is not.
const reasonNoProject = "ProjectNotFound"

// tenants are the projects beside the cluster's own.
type tenants struct {
	identity *gophercloud.ServiceClient // nil: there is no keystone
	// read are those that have been read.
	read []string
	// asked are those that keystone has been asked about since all was read, and whether it has
	// them.
	asked map[string]bool
}

// newTenants begins with those that the settings name: what the cluster has in them is found, also
// when nothing asks for it any more.
func newTenants(a Access, api *gophercloud.ServiceClient, named []string) (tenants, error) {
	t := tenants{read: slices.Sorted(slices.Values(named)), asked: map[string]bool{}}
	if a.CloudsFile == "" {
		return t, nil
	}
	var err error
	t.identity, err = openstack.NewIdentityV3(api.ProviderClient, gophercloud.EndpointOpts{})
	return t, err
}

// follow adds the projects that a Set asks for, and reports whether some have not been read.
func (t *tenants) follow(want *resource.Set) (more bool) {
	for _, p := range slices.Sorted(maps.Keys(want.Projects)) {
		if !slices.Contains(t.read, p) {
			t.read, more = append(t.read, p), true
		}
	}
	return more
}

// missing are problems of objects that ask for projects which keystone does not have. That it does
// not answer, or not to this user, is none: Neutron takes any project.
func (s *session) missing(ctx context.Context, want *resource.Set) (list []resource.Problem) {
	for _, p := range slices.Sorted(maps.Keys(want.Projects)) {
		if s.tenants.identity != nil && !s.known(ctx, p) {
			for _, object := range want.Projects[p] {
				list = append(list, noProject(object, p))
			}
		}
	}
	return list
}

func noProject(object, project string) resource.Problem {
	return resource.Problem{
		Object: object, Reason: reasonNoProject,
		Message: "keystone has no project " + project + ": no network and no port is made in it; name another one",
	}
}

// known reports whether keystone has a project, asking at most once between two readings.
func (s *session) known(ctx context.Context, project string) bool {
	if known, asked := s.tenants.asked[project]; asked {
		return known
	}
	s.calls()
	_, err := projects.Get(ctx, s.tenants.identity, project).Extract()
	known := !gophercloud.ResponseCodeIs(err, http.StatusNotFound)
	s.tenants.asked[project] = known
	return known
}

// absent reports whether a call makes something in a project that keystone does not have. Security
// groups are made nonetheless: without them what policies deny would pass.
func (s *session) absent(c resource.Call) bool {
	known, asked := s.tenants.asked[c.Ref.Project]
	return asked && !known && c.Operation == resource.Create && c.Ref.Kind != resource.SecurityGroup &&
		c.Ref.Kind != resource.SecurityGroupRule
}
