// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/podnets"
	"coelan.io/coelan/internal/translate"
)

// onSubnet is secondary for an interface on the subnet of Neutron that the request's
// NetworkAttachmentDefinition names by Kuryr's annotation: it is on the Network that has the
// subnet, if that takes the pod, and has addresses of this subnet alone.
func (p *Planner) onSubnet(ctx context.Context, i attachment.Plan, r podnets.Request, config podnets.Config,
	primary string, namespace *corev1.Namespace,
) (attachment.Plan, error) {
	of := func(err error) error {
		return about(fmt.Sprintf("%s: NetworkAttachmentDefinition %s/%s", r, r.Namespace, r.Name), err)
	}
	if !p.Neutron {
		return i, of(refused(v1alpha1.ReasonInvalid, "annotation %s names a subnet of Neutron, and the cluster's backend is another: "+
			"name a Network in spec.config", podnets.AnnotationKuryrConfig))
	}
	name, cidr, err := p.withSubnet(ctx, config.Subnet, namespace)
	if err == nil {
		i, err = p.secondary(ctx, i, name, primary, namespace)
	}
	if err != nil {
		return i, of(err)
	}
	at := slices.IndexFunc(i.Subnets, func(s intent.NetworkSubnet) bool { return s.Prefix == cidr })
	n := p.View.State().Networks.Get(name)
	switch {
	case config.Network != "" && config.Network != name:
		return i, of(refused(v1alpha1.ReasonInvalid, "spec.config names network %s, and annotation %s a subnet of network %s",
			config.Network, podnets.AnnotationKuryrConfig, name))
	case at < 0 || n == nil:
		return i, of(early(v1alpha1.ReasonNetworkNotReady, "network %s has no subnet %s any more", name, cidr))
	case len(i.Addresses) == 0 && !firstOfFamily(i.Subnets, at):
		return i, of(refused(v1alpha1.ReasonInvalid, "pods get addresses of the first subnet of each family, and %s is another one of "+
			"network %s: ask for an address of it", cidr, name))
	}
	i.Subnets = i.Subnets[at : at+1]
	i.Routes = routesOf(n, i.Subnets)
	return i, nil
}

// withSubnet is the Network that has a subnet of Neutron, and the subnet's prefix. The controller
// may be about to say so. Of several on one network of Neutron it is the one that takes pods of the
// namespace.
func (p *Planner) withSubnet(ctx context.Context, id string, namespace *corev1.Namespace) (
	network string, cidr netip.Prefix, err error,
) {
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	var having map[string]netip.Prefix
	s, found := p.View.Await(ctx, func(s apicache.State) bool {
		having = havingSubnet(s.NetworkList(), id)
		return len(having) > 0
	})
	switch {
	case !found && !s.Listed(kube.Networks):
		return "", cidr, early(v1alpha1.ReasonNetworkNotFound,
			"no network with the subnet %s of Neutron is known, and the API server has not been heard of", id)
	case !found:
		return "", cidr, refused(v1alpha1.ReasonNetworkNotFound,
			"no network has the subnet %s of Neutron in status.neutron: name a Network in spec.config, or a subnet of one", id)
	}
	names := slices.Sorted(maps.Keys(having))
	takes := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !translate.MayAttach(s.Networks.Get(name), namespace, p.Node)
	})
	switch len(takes) {
	case 0:
		return names[0], having[names[0]], nil // which is refused
	case 1:
		return takes[0], having[takes[0]], nil
	}
	return "", cidr, refused(v1alpha1.ReasonInvalid,
		"networks %s have the subnet %s of Neutron: name one of them in spec.config, without the annotation",
		strings.Join(takes, " and "), id)
}

// havingSubnet are the Networks that have a subnet of Neutron, each with the subnet's prefix.
func havingSubnet(networks []*v1alpha1.Network, id string) map[string]netip.Prefix {
	having := map[string]netip.Prefix{}
	for _, n := range networks {
		if n.Status.Neutron == nil {
			continue
		}
		for _, sn := range n.Status.Neutron.Subnets {
			if prefix, err := netip.ParsePrefix(sn.CIDR); err == nil && sn.ID == id {
				having[n.Name] = prefix.Masked()
			}
		}
	}
	return having
}

// subnetRequest is the request that a delegate is for, if the pod's annotation has one, and what
// its NetworkAttachmentDefinition says. The delegate's configuration names no Network.
func (p *Planner) subnetRequest(ctx context.Context, ask cni.Request, pod *corev1.Pod) (
	r podnets.Request, config podnets.Config, err error,
) {
	requests, err := p.requests(ask, pod)
	if err != nil {
		return r, config, err
	}
	i := slices.IndexFunc(requests, func(r podnets.Request) bool {
		return r.Annotation == podnets.AnnotationNetworks && r.Interface == ask.IfName
	})
	if i < 0 {
		return r, config, nil
	}
	config, err = p.definition(ctx, requests[i])
	return requests[i], config, err
}

func sameFamily(a, b netip.Prefix) bool { return a.Addr().Is4() == b.Addr().Is4() }

// firstOfFamily reports whether pods get addresses of a subnet without asking for them.
func firstOfFamily(subnets []intent.NetworkSubnet, at int) bool {
	return !slices.ContainsFunc(subnets[:at], func(s intent.NetworkSubnet) bool {
		return sameFamily(s.Prefix, subnets[at].Prefix)
	})
}

// narrowed is a Network of which nodes hand out addresses of these subnets alone.
func narrowed(n intent.Network, to []intent.NetworkSubnet) intent.Network {
	all := n
	n.Subnets, n.Pools = nil, nil
	for i, sn := range all.Subnets {
		wanted := slices.ContainsFunc(to, func(s intent.NetworkSubnet) bool { return s.Prefix == sn.Prefix })
		if wanted && firstOfFamily(all.Subnets, i) {
			n.Subnets, n.Pools = append(n.Subnets, sn), append(n.Pools, all.Pools[i])
		}
	}
	return n
}
