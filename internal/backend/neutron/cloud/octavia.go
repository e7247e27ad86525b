// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"

	"coelan.io/coelan/internal/backend/neutron/octavia"
	"coelan.io/coelan/internal/backend/ovn/names"
)

// Octavia is a client of Octavia and of what load balancers need of Neutron.
type Octavia struct {
	balancing, network *gophercloud.ServiceClient
	project            string
	cluster            names.Cluster
}

// ConnectOctavia returns a client; endpoint is the URL of an Octavia without keystone.
func (a Access) ConnectOctavia(ctx context.Context, endpoint string, cluster names.Cluster) (*Octavia, error) {
	network, project, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	o := &Octavia{network: network, project: project, cluster: cluster}
	if a.CloudsFile == "" {
		endpoint = strings.TrimSuffix(endpoint, "/") + "/"
		// The server of octavia-api takes one connection at a time: one that is kept, or not used
		// yet, would keep out all others.
		provider := &gophercloud.ProviderClient{HTTPClient: http.Client{
			Timeout: callTimeout, Transport: &http.Transport{DisableKeepAlives: true},
		}}
		o.balancing = &gophercloud.ServiceClient{
			ProviderClient: provider, Endpoint: endpoint, ResourceBase: endpoint + "v2.0/",
			// Octavia asks Neutron with the token that it gets, and fails without any.
			MoreHeaders: map[string]string{"X-Auth-Token": "none"},
		}
		return o, nil
	}
	_, where, _, err := clouds.Parse(clouds.WithLocations(a.CloudsFile), clouds.WithCloudName(a.Cloud))
	if err != nil {
		return nil, fmt.Errorf("cloud %s of %s: %w", a.Cloud, a.CloudsFile, err)
	}
	if err := a.checkRegion(network.ProviderClient, where, octaviaService); err != nil {
		return nil, err
	}
	if o.balancing, err = openstack.NewLoadBalancerV2(network.ProviderClient, where); err != nil {
		return nil, fmt.Errorf("keystone of cloud %s names no Octavia: %w", a.Cloud, err)
	}
	return o, nil
}

// Project is the one that load balancers are of.
func (o *Octavia) Project() string { return o.project }

// Services are those, as namespace/name, that have load balancers of the cluster.
func (o *Octavia) Services(ctx context.Context) ([]string, error) {
	all, err := list[octavia.Actual](reads(ctx, o.balancing), "lbaas/loadbalancers", "loadbalancers",
		url.Values{"project_id": {o.project}})
	var keys []string
	for _, b := range all {
		if key, ours := octavia.ServiceOf(o.cluster, b.Tags); ours {
			keys = append(keys, key)
		}
	}
	return keys, err
}

// Read returns the load balancer of a Service with all that is in it; nil: there is none. Of
// several, which an unanswered call can leave, it is the one that is deleted or mended first.
func (o *Octavia) Read(ctx context.Context, service string) (*octavia.Actual, int, error) {
	found, err := list[octavia.Actual](reads(ctx, o.balancing), "lbaas/loadbalancers", "loadbalancers",
		url.Values{"project_id": {o.project}, "tags": {octavia.Tag(o.cluster, service)}})
	if err != nil || len(found) == 0 {
		return nil, 0, err
	}
	b := &found[len(found)-1]
	of := url.Values{"loadbalancer_id": {b.ID}}
	b.ListenerOf, err = list[octavia.ActualListener](reads(ctx, o.balancing), "lbaas/listeners", "listeners", of)
	if err != nil {
		return nil, 0, err
	}
	if b.PoolOf, err = list[octavia.ActualPool](reads(ctx, o.balancing), "lbaas/pools", "pools", of); err != nil {
		return nil, 0, err
	}
	for i := range b.PoolOf {
		p := &b.PoolOf[i]
		path := "lbaas/pools/" + p.ID + "/members"
		p.MemberOf, err = list[octavia.ActualMember](reads(ctx, o.balancing), path, "members", nil)
		if err != nil {
			return nil, 0, err
		}
	}
	return b, len(found), nil
}

// Make makes a call. That what is to be deleted is gone is no error.
func (o *Octavia) Make(ctx context.Context, c octavia.Call) error {
	var body any
	if c.Body != nil {
		body = c.Body
	}
	err := send(ctx, o.balancing, c.Method, "lbaas/"+c.Path, body, nil)
	if c.Method == http.MethodDelete && gone(err) {
		return nil
	}
	return err
}

// Subnet is a subnet of Neutron.
type Subnet struct {
	ID, Description string
	CIDR            netip.Prefix
	Pools           []Pool `json:"allocation_pools"`
}

// Pool are addresses of a subnet that Neutron gives to ports which ask for any.
type Pool struct{ Start, End netip.Addr }

// Subnet returns a subnet by its id.
func (o *Octavia) Subnet(ctx context.Context, id string) (Subnet, error) {
	var answer struct{ Subnet Subnet }
	err := send(ctx, o.network, http.MethodGet, "subnets/"+url.PathEscape(id), nil, &answer)
	return answer.Subnet, err
}

// Subnets returns the subnets of the project.
func (o *Octavia) Subnets(ctx context.Context) ([]Subnet, error) {
	return list[Subnet](reads(ctx, o.network), "subnets", "subnets", url.Values{"project_id": {o.project}})
}

// Owned is the key of what a subnet is made of; false: it is not the cluster's.
func (o *Octavia) Owned(s Subnet) (key string, ours bool) { return o.cluster.Owned(s.Description) }

// reads reads with one attempt: what fails is tried again as a whole.
func reads(ctx context.Context, api *gophercloud.ServiceClient) func(path string, into any) error {
	return func(path string, into any) error { return send(ctx, api, http.MethodGet, path, nil, into) }
}

type floatingIP struct {
	ID          string `json:"id"`
	Description string `json:"description"`
	Address     string `json:"floating_ip_address"`
	Port        string `json:"port_id"`
	Network     string `json:"floating_network_id"`
}

// mark is the description of a Service's floating IP. It is none of those that Client takes for its
// own.
func (o *Octavia) mark(service string) string {
	return "load balancer of " + octavia.Tag(o.cluster, service)
}

func (o *Octavia) floating(ctx context.Context, service string) (ours []floatingIP, err error) {
	all, err := list[floatingIP](reads(ctx, o.network), "floatingips", "floatingips",
		url.Values{"project_id": {o.project}, "description": {o.mark(service)}})
	for _, f := range all {
		if f.Description == o.mark(service) {
			ours = append(ours, f)
		}
	}
	return ours, err
}

// DeleteFloatingIPs takes away what EnsureFloatingIP has given a Service's load balancer.
func (o *Octavia) DeleteFloatingIPs(ctx context.Context, service string) error {
	found, err := o.floating(ctx, service)
	for _, f := range found {
		err = errors.Join(err, o.deleteFloating(ctx, f))
	}
	return err
}

// deleteFloating deletes a floating IP; that it is gone is no error.
func (o *Octavia) deleteFloating(ctx context.Context, f floatingIP) error {
	err := send(ctx, o.network, http.MethodDelete, "floatingips/"+f.ID, nil, nil)
	if gone(err) {
		return nil
	}
	return err
}

// FloatingIPs are the addresses that EnsureFloatingIP has given a Service's load balancer.
func (o *Octavia) FloatingIPs(ctx context.Context, service string) (addresses []string, err error) {
	ours, err := o.floating(ctx, service)
	for _, f := range ours {
		addresses = append(addresses, f.Address)
	}
	return addresses, err
}

// EnsureFloatingIP has the port of a load balancer have an address of an external network,
// the one that is asked for if it is valid, and returns it. Otherwise it may be any but those that
// are claimed. Without a network, or a port, there is none afterwards, and the answer is empty. An
// address that cannot be had leaves what there is.
func (o *Octavia) EnsureFloatingIP(
	ctx context.Context, service, network, port string, address netip.Addr, claimed func(netip.Addr) bool,
) (string, error) {
	found, err := o.floating(ctx, service)
	if err != nil {
		return "", err
	}
	wanted := network != "" && port != ""
	kept := slices.IndexFunc(found, func(f floatingIP) bool {
		has, err := netip.ParseAddr(f.Address)
		return wanted && f.Network == network && err == nil &&
			(has == address || !address.IsValid() && !claimed(has))
	})
	if kept < 0 && wanted {
		body := map[string]any{"floating_network_id": network, "description": o.mark(service), "project_id": o.project}
		if address.IsValid() {
			body["floating_ip_address"] = address.String()
		}
		if len(found) == 0 {
			body["port_id"] = port
		}
		var answer struct {
			FloatingIP floatingIP `json:"floatingip"`
		}
		err := send(ctx, o.network, http.MethodPost, "floatingips", map[string]any{"floatingip": body}, &answer)
		if err != nil {
			return "", err
		}
		kept, found = len(found), append(found, answer.FloatingIP)
	}
	for i, f := range found {
		if i == kept {
			continue
		}
		if err := o.deleteFloating(ctx, f); err != nil {
			return "", err
		}
	}
	if kept < 0 || found[kept].Port == port {
		return addressOf(found, kept), nil
	}
	body := map[string]any{"floatingip": map[string]any{"port_id": port}}
	return addressOf(found, kept), send(ctx, o.network, http.MethodPut, "floatingips/"+found[kept].ID, body, nil)
}

func addressOf(list []floatingIP, i int) string {
	if i < 0 {
		return ""
	}
	return list[i].Address
}
