// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"maps"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
)

// network is what Neutron has of a Network.
type network struct {
	// holder is the UID of the Network, and project that of its network; empty: the cluster's own.
	holder, project string
	id              string // empty: there is none
	// subnets are the ids of subnets by their prefixes.
	subnets map[netip.Prefix]string
}

// with is the network with a resource of it.
func (n network) with(of resource.Resource, holder string, a resource.Actual) network {
	now := network{holder: holder, project: of.Project, id: n.id, subnets: n.subnets}
	if n.holder != now.holder || n.project != now.project {
		now.id, now.subnets = "", nil
	}
	if of.Kind == resource.Network {
		if now.id != a.ID {
			now.id, now.subnets = a.ID, nil // those were of another network
		}
		return now
	}
	now.subnets = maps.Clone(now.subnets)
	if now.subnets == nil {
		now.subnets = map[netip.Prefix]string{}
	}
	cidr, _ := a.Attributes["cidr"].(string)
	if prefix, err := netip.ParsePrefix(cidr); err == nil {
		now.subnets[prefix.Masked()] = a.ID
	}
	return now
}

func (n network) equal(o network) bool {
	return n.holder == o.holder && n.project == o.project && n.id == o.id && maps.Equal(n.subnets, o.subnets)
}

// status is what a Network says of it; nil: nothing.
func (n network) status(o *v1alpha1.Network) *v1alpha1.NeutronNetwork {
	if n.id == "" || n.holder != string(o.UID) {
		return nil
	}
	s := &v1alpha1.NeutronNetwork{ID: n.id}
	for _, sn := range o.Spec.Subnets {
		prefix, err := netip.ParsePrefix(sn.CIDR)
		if err != nil {
			continue
		}
		if id := n.subnets[prefix.Masked()]; id != "" {
			s.Subnets = append(s.Subnets, v1alpha1.NeutronSubnet{CIDR: sn.CIDR, ID: id})
		}
	}
	return s
}

// foundNetwork takes the network, or a subnet, that Neutron has of the Network with a UID.
func (i *identities) foundNetwork(of resource.Resource, holder string, a resource.Actual) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.looked[of.Object] = i.looked[of.Object].with(of, holder, a)
	i.setNetwork(of.Object, i.networks[of.Object].with(of, holder, a))
}

// networkID is the id of the network that Neutron has of a Network; empty: there is none, or none
// was found yet.
func (i *identities) networkID(name string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.networks[compile.NetworkObject(name)].id
}

// allFound says that all networks, subnets, routers and floating IPs that Neutron has were found
// since the last call, and all ports that are as they are wanted: what was not is gone. Nodes are
// those that have a port, be it not as it is wanted.
func (i *identities) allFound(nodes map[string]bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for object := range i.networks {
		i.setNetwork(object, i.looked[object])
	}
	i.looked = map[string]network{}
	i.forgetPorts()
	i.forgetOthers()
	i.setNodePorts(nodes)
	if !i.compared {
		i.compared = true
		for _, o := range i.objects {
			if o.kind != intent.KindPort {
				i.queue.Add(o.target)
			}
		}
	}
}

// setNetwork has a Network that has become another one in Neutron written. The caller holds mu.
func (i *identities) setNetwork(object string, now network) {
	if i.networks[object].equal(now) {
		return
	}
	if i.networks[object] = now; now.id == "" && now.subnets == nil {
		delete(i.networks, object)
	}
	i.changed(object)
}

// writeNetwork writes into a Network which network and subnets it is, and once the project that
// these are in. Nothing of what it says is taken away before all were compared.
func (i *identities) writeNetwork(ctx context.Context, t target) error {
	i.mu.Lock()
	is, compared := i.networks[t.object()], i.compared
	i.mu.Unlock()
	n := &v1alpha1.Network{}
	if err := i.Access.Get(ctx, t.key(), n); err != nil {
		return client.IgnoreNotFound(err)
	}
	now := is.status(n)
	if _, says := n.Annotations[v1alpha1.KuryrProjectAnnotation]; !says && now != nil && is.project != "" {
		change := map[string]any{"metadata": map[string]any{"uid": n.UID, "annotations": map[string]string{
			v1alpha1.KuryrProjectAnnotation: is.project,
		}}}
		if err := patch(change, func(p client.Patch) error { return i.Access.Patch(ctx, n, p) }); err != nil {
			return err
		}
	}
	says := n.Status.Neutron
	if equality.Semantic.DeepEqual(says, now) ||
		!compared && says != nil && (now == nil || len(now.Subnets) < len(says.Subnets)) {
		return nil
	}
	status := map[string]any{"neutron": nil}
	if now != nil {
		status["neutron"] = map[string]any{"id": now.ID, "subnets": now.Subnets}
	}
	change := map[string]any{"metadata": map[string]any{"uid": n.UID}, "status": status}
	return patch(change, func(p client.Patch) error { return i.Access.Status().Patch(ctx, n, p) })
}
