// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/names"
)

// AddRouterGateway publishes a Router with a gateway on an external Network, in place of one that
// it may have had. Nodes have addresses there by AddGatewayAddress. The Router default need not
// have been added: agents know it without an object.
func (a *API) AddRouterGateway(router, network string) error {
	return a.SetRouterGateway(router, v1alpha1.RouterGateway{Network: network})
}

// SetRouterGateway is AddRouterGateway for a gateway of any kind. The addresses are those in effect
// of a centralized one, which any node may be active for; it gives back others that it has had.
func (a *API) SetRouterGateway(router string, gateway v1alpha1.RouterGateway, addresses ...string) error {
	if router == intent.DefaultRouterName && !a.has(routers, router) {
		a.AddRouter(router, v1alpha1.RouterSpec{})
	}
	for _, address := range addresses {
		a.claim(gateway.Network, address, v1alpha1.AddressBlockSpec{Gateway: router + "/" + v1alpha1.AnyNode})
	}
	err := alter(a, routers, router, func(r *v1alpha1.Router) {
		r.Spec.Gateway, r.Status.GatewayAddresses = &gateway, addresses
	})
	a.release(v1alpha1.AddressBlockSpec{Gateway: router + "/" + v1alpha1.AnyNode}, addresses)
	return err
}

// SetEgress publishes an Egress with these addresses in effect, in place of one of its name, of
// which it gives back others.
func (a *API) SetEgress(name string, spec v1alpha1.EgressSpec, addresses ...string) {
	for _, address := range addresses {
		a.claim(spec.Network, address, v1alpha1.AddressBlockSpec{Egress: name})
	}
	a.set(egresses, &v1alpha1.Egress{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec, Status: v1alpha1.EgressStatus{Addresses: addresses},
	})
	a.release(v1alpha1.AddressBlockSpec{Egress: name}, addresses)
}

// RemoveEgress deletes an Egress, and gives back its addresses.
func (a *API) RemoveEgress(name string) {
	a.remove(egresses, name)
	a.release(v1alpha1.AddressBlockSpec{Egress: name}, nil)
}

// claim publishes the AddressBlock of an address unless its claimant has it already, with what
// nodes have reported.
func (a *API) claim(network, address string, spec v1alpha1.AddressBlockSpec) {
	whole := netip.PrefixFrom(netip.MustParseAddr(address), netip.MustParseAddr(address).BitLen())
	spec.Network, spec.CIDR = network, whole.String()
	if slices.ContainsFunc(a.Blocks(), func(b *v1alpha1.AddressBlock) bool { return b.Spec == spec }) {
		return
	}
	a.set(blocks, &v1alpha1.AddressBlock{
		ObjectMeta: metav1.ObjectMeta{Name: names.BlockName(network, whole)}, Spec: spec,
	})
}

// release gives back the addresses of a claimant but for some.
func (a *API) release(by v1alpha1.AddressBlockSpec, but []string) {
	for _, b := range a.Blocks() {
		address, _, _ := strings.Cut(b.Spec.CIDR, "/")
		if b.Spec.Gateway == by.Gateway && b.Spec.Egress == by.Egress && !slices.Contains(but, address) {
			a.remove(blocks, b.Name)
		}
	}
}

// RemoveRouterGateway publishes a Router without a gateway, and gives back the addresses of all
// nodes.
func (a *API) RemoveRouterGateway(router string) error {
	err := alter(a, routers, router, func(r *v1alpha1.Router) { r.Spec.Gateway, r.Status.GatewayAddresses = nil, nil })
	for _, b := range a.Blocks() {
		if of, _, _ := strings.Cut(b.Spec.Gateway, "/"); of == router {
			a.remove(blocks, b.Name)
		}
	}
	return err
}

// AddGatewayAddress publishes the AddressBlock by which the controller makes a node a gateway of a
// Router, or v1alpha1.AnyNode: the node has the address in the external Network. Of a node with
// addresses of both families there are two.
func (a *API) AddGatewayAddress(router, node, network, address string) {
	a.claim(network, address, v1alpha1.AddressBlockSpec{Gateway: router + "/" + node})
}

// RemoveGatewayAddresses gives back the addresses by which a node is a gateway of a Router.
func (a *API) RemoveGatewayAddresses(router, node string) {
	for _, b := range a.Blocks() {
		if b.Spec.Gateway == router+"/"+node {
			a.remove(blocks, b.Name)
		}
	}
}
