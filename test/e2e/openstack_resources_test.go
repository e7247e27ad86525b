// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// openStackResource is one as OpenStack's APIs list it. Only Octavia's have a status, an address
// and members.
type openStackResource struct {
	ID, Name, Description string
	Project               string `json:"project_id"`
	Status                string `json:"provisioning_status"`
	Address               string `json:"vip_address"`
	Members               []struct{ ID string }
}

// neutronList lists a collection of Neutron, such as "security-groups", of all projects.
func neutronList(ctx context.Context, collection string) ([]openStackResource, error) {
	return openStackList(ctx, neutronAPI, "/v2.0/", collection)
}

// octaviaList is neutronList for one of Octavia.
func octaviaList(ctx context.Context, collection string) ([]openStackResource, error) {
	return openStackList(ctx, octaviaAPI, "/v2.0/lbaas/", collection)
}

func openStackList(ctx context.Context, api, path, collection string) ([]openStackResource, error) {
	endpoint, err := openStackEndpoint(ctx, api)
	if err != nil {
		return nil, err
	}
	out, err := world.Exec(ctx, control, "curl", "-fsS", "--max-time", "30", endpoint+path+collection)
	if err != nil {
		return nil, err
	}
	var lists map[string]json.RawMessage
	if err := json.Unmarshal(out, &lists); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", collection, err, out)
	}
	var list []openStackResource
	return list, json.Unmarshal(lists[strings.ReplaceAll(collection, "-", "_")], &list)
}

// octaviaCollections are what a load balancer consists of, as Octavia lists it.
var octaviaCollections = []string{"loadbalancers", "listeners", "pools"}

// addressPorts are the ports that load balancers have their addresses of.
func addressPorts(ctx context.Context) (ports []openStackResource, err error) {
	all, err := neutronList(ctx, "ports")
	for _, p := range all {
		if strings.HasPrefix(p.Name, "ovn-lb-vip-") {
			ports = append(ports, p)
		}
	}
	return ports, err
}

// openStackResources are all that OpenStack has but for ports of pods, by their collections.
func openStackResources(ctx context.Context) (map[string][]openStackResource, error) {
	all := map[string][]openStackResource{}
	var errs []error
	add := func(collection string, list []openStackResource, err error) {
		all[collection] = list
		errs = append(errs, err)
	}
	for _, c := range []string{"networks", "subnets", "routers", "security-groups", "floatingips", "trunks"} {
		list, err := neutronList(ctx, c)
		add(c, list, err)
	}
	for _, c := range octaviaCollections {
		list, err := octaviaList(ctx, c)
		add(c, list, err)
	}
	list, err := addressPorts(ctx)
	add("ports of load balancers", list, err)
	return all, errors.Join(errs...)
}

// sameResources is an objection unless OpenStack has what it had before, nothing else, and nothing
// twice.
func sameResources(ctx context.Context, before map[string][]openStackResource) error {
	now, err := openStackResources(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for collection, list := range now {
		had, ids, called := map[string]bool{}, map[string]bool{}, map[[3]string]string{}
		for _, r := range before[collection] {
			had[r.ID] = true
		}
		for _, r := range list {
			ids[r.ID] = true
			if !had[r.ID] {
				errs = append(errs, fmt.Errorf("%s: %+v was not there before", collection, r))
			}
			name := [3]string{r.Project, r.Name, r.Description}
			if other, twice := called[name]; twice && r.Name+r.Description != "" {
				errs = append(errs, fmt.Errorf("%s: %s and %s are both %q", collection, other, r.ID, name))
			}
			called[name] = r.ID
		}
		for _, r := range before[collection] {
			if !ids[r.ID] {
				errs = append(errs, fmt.Errorf("%s: %+v is gone", collection, r))
			}
		}
	}
	return errors.Join(errs...)
}
