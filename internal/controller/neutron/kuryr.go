// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/kuryr"
)

// namedBy is what Networks and nodes name that is not Coelan's, sorted.
func namedBy(s *intent.State) (list []string) {
	for n := range s.Networks().All() {
		if n.Kuryr != "" || n.NeutronNetwork != "" {
			list = append(list, strings.Join([]string{n.Kuryr, n.NeutronNetwork, n.Project}, " "))
		}
	}
	for n := range s.Nodes().All() {
		if n.TrunkPort != "" {
			list = append(list, fmt.Sprint(n.Name, n.TrunkPort, n.Addresses))
		}
	}
	slices.Sort(list)
	return list
}

// claims are for what Kuryr has made.
func (r *Runner) claims(ctx context.Context) []resource.Claim {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return append(r.namespaceClaims(ctx), r.floatingClaims(ctx)...)
}

// namespaceClaims are for what Kuryr has made of the namespaces that Networks name, and of their
// pods. Clusters without such a Network have nothing read.
func (r *Runner) namespaceClaims(ctx context.Context) []resource.Claim {
	var of []intent.Network
	for n := range r.Intent.Intent().State().Networks().All() {
		if n.Kuryr != "" {
			of = append(of, n)
		}
	}
	if len(of) == 0 {
		return nil
	}
	networks := map[string]kuryr.Network{}
	problem := r.each(ctx, "KuryrNetworkList", func(object []byte) error {
		n, ok, err := kuryr.ReadNetwork(object)
		if ok {
			networks[n.Namespace] = n
		}
		return err
	})
	var list []resource.Claim
	for _, n := range of {
		list = append(list, networkClaims(n, networks, problem)...)
	}
	err := r.each(ctx, "KuryrPortList", func(object []byte) error {
		p, ok, err := kuryr.ReadPort(object)
		if ok {
			list = append(list, portClaim(p))
		}
		return err
	})
	if err != nil {
		r.Log.Warn("cannot read which ports Kuryr has made", "err", err)
	}
	return list
}

// readTimeout bounds reading objects of the API for claims: nothing is compared meanwhile.
const readTimeout = 20 * time.Second

// pageSize is how many objects of Kuryr are read at once.
const pageSize = 500

// each reads all of Kuryr's objects of a kind. One that cannot be read leaves the others as they
// are; the first such error is returned.
func (r *Runner) each(ctx context.Context, kind string, read func(object []byte) error) error {
	var first error
	for next := ""; ; {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: kuryr.Group, Version: kuryr.Version, Kind: kind})
		err := r.Access.Live.List(ctx, list, client.Limit(pageSize), client.Continue(next))
		if meta.IsNoMatchError(err) {
			return fmt.Errorf("the cluster has no kind of %s/%s", kuryr.Group, kind)
		}
		if err != nil {
			return err
		}
		for i := range list.Items {
			data, err := json.Marshal(list.Items[i].Object)
			if err == nil {
				err = read(data)
			}
			if err != nil && first == nil {
				first = err
			}
		}
		if next = list.GetContinue(); next == "" {
			return first
		}
	}
}

// networkClaims are for the network and the subnet of a namespace.
func networkClaims(n intent.Network, networks map[string]kuryr.Network, problem error) []resource.Claim {
	made, ok := networks[n.Kuryr]
	network := resource.Claim{
		Kind: resource.Network, ID: made.NetworkID, By: kuryr.Network{Namespace: n.Kuryr}.String(),
		Ref: compile.NetworkRef(n.Name),
	}
	if !ok {
		network.Refused = "there is no such KuryrNetwork with a network"
		if problem != nil {
			network.Refused += ": " + problem.Error()
		}
		return []resource.Claim{network}
	}
	fits := false
	for _, sn := range n.Subnets {
		fits = fits || sn.Prefix == made.CIDR
	}
	if !fits {
		network.Refused = fmt.Sprintf("its subnet is %s, which spec.subnets does not have", made.CIDR)
		return []resource.Claim{network}
	}
	return []resource.Claim{network, {
		Kind: resource.Subnet, ID: made.SubnetID, By: network.By, Ref: compile.SubnetRef(n.Name, made.CIDR),
		Has: map[string][]any{"network_id": {made.NetworkID}},
	}}
}

// portClaim is for the port of a pod. Ports of Kuryr's pools have no device until a pod takes them,
// and keep none then.
func portClaim(p kuryr.Port) resource.Claim {
	c := resource.Claim{
		Kind: resource.Port, ID: p.ID, By: p.String(), MAC: p.MAC.String(), Device: p.PodUID, Refused: p.Unusable,
		Has: map[string][]any{
			"device_owner": {kuryr.DeviceOwner}, "device_id": {p.PodUID, ""}, "mac_address": {p.MAC.String()},
			"network_id": {p.NetworkID}, "binding:host_id": {p.Node, ""},
		},
	}
	for _, a := range p.Addresses {
		c.Addresses = append(c.Addresses, a.String())
	}
	return c
}
