// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/kuryr"
)

// lacking are the FloatingIPs of Services that have a problem in Neutron, such as an address that
// is taken: by Kuryr, it may be.
func lacking(s *intent.State, problems []resource.Problem) (names []string) {
	for _, p := range problems {
		name, is := strings.CutPrefix(p.Object, compile.FloatingIPObject(""))
		f, _ := s.FloatingIPs().Get(name)
		if is && f.Service != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// seek has KuryrLoadBalancers read for FloatingIPs that have become lacking: at once, and later
// whenever all is read.
func (r *Runner) seek(names []string) {
	known := r.lacking
	r.lacking = names
	if slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(known, name) }) {
		r.client.Reread()
	}
}

// floatingClaims are for the floating IPs that Kuryr has given the Services of FloatingIPs that are
// lacking. Without any nothing is read.
func (r *Runner) floatingClaims(ctx context.Context) (list []resource.Claim) {
	state := r.Intent.Intent().State()
	for _, name := range r.lacking {
		f, _ := state.FloatingIPs().Get(name)
		if f.Service == "" {
			continue
		}
		made, there, err := r.loadBalancer(ctx, f.Service)
		switch {
		case meta.IsNoMatchError(err):
			return list // Kuryr was never here
		case err != nil || there:
			service, _ := state.Services().Get(f.Service)
			list = append(list, floatingClaim(f, made, service, err))
		}
	}
	return list
}

// loadBalancer is what Kuryr has made of a Service, namespace/name; false: nothing with a floating
// IP.
func (r *Runner) loadBalancer(ctx context.Context, service string) (made kuryr.LoadBalancer, there bool, err error) {
	made.Namespace, made.Name, _ = strings.Cut(service, "/")
	kind := schema.GroupVersionKind{Group: kuryr.Group, Version: kuryr.Version, Kind: "KuryrLoadBalancer"}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	err = r.Access.Live.Get(ctx, client.ObjectKey{Namespace: made.Namespace, Name: made.Name}, o)
	if err != nil {
		return made, false, client.IgnoreNotFound(err)
	}
	data, err := o.MarshalJSON()
	if err != nil {
		return made, false, err
	}
	return kuryr.ReadLoadBalancer(data)
}

// floatingClaim is for the floating IP of a Service. It proves to be the Service's by leading to
// its ClusterIP, as the load balancer had that; or to nothing, where Kuryr has made it and the load
// balancer is gone. People may write FloatingIPs, and descriptions: neither is a proof alone.
func floatingClaim(f intent.FloatingIP, made kuryr.LoadBalancer, service intent.Service, problem error) resource.Claim {
	c := resource.Claim{
		Kind: resource.FloatingIP, ID: made.FloatingIP, By: made.String(), Ref: compile.FloatingIPRef(f.Name),
		Has: map[string][]any{"fixed_ip_address": nil}, Kept: made.Users,
		Or: map[string][]any{"fixed_ip_address": {nil}, "description": {kuryr.FloatingIPDescription}},
	}
	for _, p := range service.Ports {
		if ip := p.ClusterIP; ip.IsValid() && !slices.Contains(c.Has["fixed_ip_address"], any(ip.String())) {
			c.Has["fixed_ip_address"] = append(c.Has["fixed_ip_address"], ip.String())
		}
	}
	switch {
	case problem != nil:
		c.Refused = fmt.Sprintf("it cannot be read: %v", problem)
	case c.Has["fixed_ip_address"] == nil:
		c.Refused = fmt.Sprintf("there is no Service %s with a ClusterIP", f.Service)
	case made.Address != f.Address:
		c.Refused = fmt.Sprintf("its address is %s, and that of the FloatingIP is %s: make one with spec.address %[1]s",
			made.Address, f.Address)
	}
	return c
}
