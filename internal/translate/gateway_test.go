// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"net/netip"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
)

// gatewayBlock is the claim of an address in the Network office for the gateway of that key.
func gatewayBlock(address, key string) *v1alpha1.AddressBlock {
	b := claimOf(address, "")
	b.Spec.Gateway = key
	return b
}

// gatewayRouter is a Router with a gateway on a Network; without one: "".
func gatewayRouter(name, network string) *v1alpha1.Router {
	o := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if network != "" {
		o.Spec.Gateway = &v1alpha1.RouterGateway{Network: network}
	}
	return o
}

var sameAddress = gocmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// A block makes its node a gateway as long as the Router has a gateway on the block's Network.
func TestGatewayAddressesInEffect(t *testing.T) {
	const v4, v6 = "192.0.2.10", "2001:db8:70::10"
	changed := func(change func(*v1alpha1.AddressBlock)) *v1alpha1.AddressBlock {
		b := gatewayBlock(v4, "red/n1")
		change(b)
		return b
	}
	at := func(router, node, address string) []intent.GatewayAddress {
		return []intent.GatewayAddress{
			{Router: router, Node: node, Network: "office", Address: netip.MustParseAddr(address)},
		}
	}
	red := gatewayRouter("red", "office")
	routed := func(snat v1alpha1.SNAT, families ...v1alpha1.IPFamily) *v1alpha1.Router {
		o := gatewayRouter("red", "office")
		o.Spec.Gateway.SNAT, o.Spec.Gateway.SNATFamilies = snat, families
		return o
	}
	asRouted := func(list []intent.GatewayAddress) []intent.GatewayAddress {
		list[0].Routed = true
		return list
	}
	for _, tc := range []struct {
		name   string
		router *v1alpha1.Router
		block  *v1alpha1.AddressBlock
		want   []intent.GatewayAddress
	}{
		{"no Router", nil, gatewayBlock(v4, "red/n1"), nil},
		{"a Router without a gateway", gatewayRouter("red", ""), gatewayBlock(v4, "red/n1"), nil},
		{"a gateway on another Network", gatewayRouter("red", "lab"), gatewayBlock(v4, "red/n1"), nil},
		{"another Router's address", gatewayRouter("blue", "office"), gatewayBlock(v4, "red/n1"), nil},
		{"without a Router's name", gatewayRouter("", "office"), gatewayBlock(v4, "/n1"), nil},
		{"without a node", red, gatewayBlock(v4, "red/"), nil},
		{"without a slash", red, gatewayBlock(v4, "red"), nil},
		{"a Port's address", red, gatewayBlock(v4, ""), nil},
		{"a name that is not of the address", red, changed(func(b *v1alpha1.AddressBlock) { b.Name = "office-1" }), nil},
		{"an address of another Network", red, changed(func(b *v1alpha1.AddressBlock) { b.Spec.Network = "lab" }), nil},
		{"another address than the name's", red,
			changed(func(b *v1alpha1.AddressBlock) { b.Spec.CIDR = "192.0.2.11/32" }), nil},
		{"several addresses", red, changed(func(b *v1alpha1.AddressBlock) {
			b.Name, b.Spec.CIDR = "office-192-0-2-0-28", "192.0.2.0/28"
		}), nil},
		{"no address", red, changed(func(b *v1alpha1.AddressBlock) { b.Spec.CIDR = "office" }), nil},
		{"an IPv4 address in IPv6", red, changed(func(b *v1alpha1.AddressBlock) { b.Spec.CIDR = "::ffff:192.0.2.10/128" }), nil},
		{"of any node", red, gatewayBlock(v4, "red/*"), nil},
		{"of a node, and the gateway is centralized", centralizedRouter("red", v4), gatewayBlock(v4, "red/n1"), nil},
		{"whole", red, gatewayBlock(v4, "red/n1"), at("red", "n1", v4)},
		{"whole, of IPv6", red, gatewayBlock(v6, "red/n1"), at("red", "n1", v6)},
		{"routed", routed(v1alpha1.NoSNAT), gatewayBlock(v4, "red/n1"), asRouted(at("red", "n1", v4))},
		{"routed, of IPv6", routed(v1alpha1.NoSNAT), gatewayBlock(v6, "red/n1"), asRouted(at("red", "n1", v6))},
		{"of IPv4, where IPv6 is routed", routed(v1alpha1.DistributedSNAT, v1alpha1.IPv4), gatewayBlock(v4, "red/n1"), at("red", "n1", v4)},
		{"of IPv6, where that is routed", routed(v1alpha1.DistributedSNAT, v1alpha1.IPv4), gatewayBlock(v6, "red/n1"), asRouted(at("red", "n1", v6))},
		{"the Router default", gatewayRouter("default", "office"), gatewayBlock(v4, "default/n1.example"),
			at("default", "n1.example", v4)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, routerFirst := range []bool{true, false} {
				s := NewGatewaySet()
				router := func() {
					if tc.router != nil {
						s.SetRouter(tc.router.Name, tc.router)
					}
				}
				if routerFirst {
					router()
					s.Changes()
				}
				s.SetBlock(tc.block.Name, tc.block)
				got := s.Changes().Nodes.Set
				if !routerFirst {
					router()
					got = s.Changes().Nodes.Set
				}
				if diff := gocmp.Diff(tc.want, got, sameAddress); diff != "" {
					t.Errorf("with the Router first %t: %s", routerFirst, diff)
				}
			}
		})
	}
}

// What a change does not touch stays as it is, and is not translated again.
func TestGatewayAddressesChange(t *testing.T) {
	own, other, foreign := gatewayBlock("192.0.2.10", "red/n1"), gatewayBlock("192.0.2.11", "red/n2"),
		gatewayBlock("192.0.2.12", "blue/n1")
	for _, tc := range []struct {
		name      string
		change    func(*GatewaySet)
		set, gone []string // addresses
	}{
		{"nothing", func(*GatewaySet) {}, nil, nil},
		{"the Router goes", func(s *GatewaySet) { s.SetRouter("red", nil) }, nil, []string{"192.0.2.10", "192.0.2.11"}},
		{"its gateway goes", func(s *GatewaySet) { s.SetRouter("red", gatewayRouter("red", "")) }, nil,
			[]string{"192.0.2.10", "192.0.2.11"}},
		{"it moves to another Network", func(s *GatewaySet) { s.SetRouter("red", gatewayRouter("red", "lab")) }, nil,
			[]string{"192.0.2.10", "192.0.2.11"}},
		{"another field of the Router", func(s *GatewaySet) {
			o := gatewayRouter("red", "office")
			o.Spec.Routes = []v1alpha1.Route{{Destination: "203.0.113.0/24"}}
			s.SetRouter("red", o)
		}, nil, nil},
		{"a node leaves", func(s *GatewaySet) { s.SetBlock(own.Name, nil) }, nil, []string{"192.0.2.10"}},
		{"an address goes to another node", func(s *GatewaySet) {
			s.SetBlock(own.Name, gatewayBlock("192.0.2.10", "red/n3"))
		}, []string{"192.0.2.10"}, nil},
		{"an address goes to another Router", func(s *GatewaySet) {
			s.SetBlock(own.Name, gatewayBlock("192.0.2.10", "blue/n1"))
		}, []string{"192.0.2.10"}, nil},
		{"an address goes to a Port", func(s *GatewaySet) { s.SetBlock(own.Name, gatewayBlock("192.0.2.10", "")) }, nil,
			[]string{"192.0.2.10"}},
		{"a block and its Router at once", func(s *GatewaySet) {
			s.SetBlock(own.Name, nil)
			s.SetRouter("red", nil)
		}, nil, []string{"192.0.2.10", "192.0.2.11"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := NewGatewaySet()
			for _, name := range []string{"red", "blue"} {
				s.SetRouter(name, gatewayRouter(name, "office"))
			}
			for _, b := range []*v1alpha1.AddressBlock{own, other, foreign} {
				s.SetBlock(b.Name, b)
			}
			if c := s.Changes().Nodes; len(c.Set) != 3 {
				t.Fatalf("not all have effect: %+v", c)
			}
			tc.change(s)
			c := s.Changes().Nodes
			if diff := gocmp.Diff([][]string{tc.set, tc.gone}, [][]string{addresses(c.Set), addresses(c.Gone)}); diff != "" {
				t.Errorf("set, and gone (-want +got):\n%s", diff)
			}
			if c := s.Changes().Nodes; len(c.Set)+len(c.Gone) > 0 {
				t.Errorf("nothing was touched, and changes are %+v", c)
			}
		})
	}
}

func addresses(list []intent.GatewayAddress) (texts []string) {
	slices.SortFunc(list, func(a, b intent.GatewayAddress) int { return cmp.Compare(a.Address.String(), b.Address.String()) })
	for _, g := range list {
		texts = append(texts, g.Address.String())
	}
	return texts
}
