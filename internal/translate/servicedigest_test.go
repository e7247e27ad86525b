// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"coelan.io/coelan/internal/intent"
)

// Each field of a Service, changed in any way, gives another number.
func TestDigestSeesEveryField(t *testing.T) {
	make := func() *intent.Service {
		return &intent.Service{
			SourceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
			Ports: []intent.ServicePort{{
				ExternalIPs: []netip.Addr{netip.IPv6Loopback()}, LoadBalancerIPs: []netip.Addr{netip.IPv6Loopback()},
				Endpoints: []intent.ServiceEndpoint{{Address: netip.IPv6Loopback()}},
			}},
		}
	}
	d := newServiceDigest()
	seen := map[uint64]string{d.sum(make()): "nothing"}
	changes := 0
	var visit func(path string, at func(*intent.Service) reflect.Value)
	visit = func(path string, at func(*intent.Service) reflect.Value) {
		try := func(what string, change func(reflect.Value)) {
			v := make()
			change(at(v))
			if other, ok := seen[d.sum(v)]; ok {
				t.Errorf("%s%s gives the same as %s", path, what, other)
			}
			seen[d.sum(v)] = path + what
			changes++
		}
		switch v := at(make()); {
		case v.Type() == reflect.TypeFor[netip.Addr]():
			try("", func(v reflect.Value) { v.Set(reflect.ValueOf(netip.MustParseAddr("192.0.2.1"))) })
			if v.Interface() != (netip.Addr{}) {
				try(" cleared", func(v reflect.Value) { v.SetZero() })
			}
		case v.Type() == reflect.TypeFor[netip.Prefix]():
			try(" address", func(v reflect.Value) { v.Set(reflect.ValueOf(netip.MustParsePrefix("11.0.0.0/8"))) })
			try(" bits", func(v reflect.Value) { v.Set(reflect.ValueOf(netip.MustParsePrefix("10.0.0.0/9"))) })
		case v.Type() == reflect.TypeFor[intent.Topology]():
			try(" node", func(v reflect.Value) { v.Set(reflect.ValueOf(intent.NewTopology("a", nil, nil))) })
			try(" zones", func(v reflect.Value) { v.Set(reflect.ValueOf(intent.NewTopology("", []string{"a"}, nil))) })
			try(" nodes", func(v reflect.Value) { v.Set(reflect.ValueOf(intent.NewTopology("", nil, []string{"a"}))) })
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				visit(path+"."+v.Type().Field(i).Name, func(s *intent.Service) reflect.Value { return at(s).Field(i) })
			}
		case v.Kind() == reflect.Slice:
			try(" cut", func(v reflect.Value) { v.SetLen(0) })
			try(" twice", func(v reflect.Value) { v.Set(reflect.AppendSlice(v, v)) })
			visit(path+"[0]", func(s *intent.Service) reflect.Value { return at(s).Index(0) })
		case v.Kind() == reflect.Bool:
			try("", func(v reflect.Value) { v.SetBool(true) })
		case v.Kind() == reflect.String:
			try("", func(v reflect.Value) { v.SetString(v.String() + "x") })
		case v.CanUint():
			try("", func(v reflect.Value) { v.SetUint(1) })
		case v.CanInt():
			try("", func(v reflect.Value) { v.SetInt(1) })
		default:
			t.Fatalf("%s is a %s", path, v.Type())
		}
	}
	visit("", func(s *intent.Service) reflect.Value { return reflect.ValueOf(s).Elem() })
	if changes < 35 {
		t.Errorf("%d changes are not all fields", changes)
	}
}

// What ends one list and what begins the next are told apart, and which endpoints are in a place.
func TestDigestSeesWhereListsEnd(t *testing.T) {
	ips := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
	places := []intent.Topology{intent.NewTopology("a", nil, nil), intent.NewTopology("b", nil, nil)}
	d := newServiceDigest()
	seen := map[uint64]string{}
	for i := range 3 {
		for j := range 4 {
			endpoints := []intent.ServiceEndpoint{
				{Address: ips[0], Port: 1, Topology: places[j%2]}, {Address: ips[1], Port: 2, Topology: places[j/2]},
			}
			v := intent.Service{Ports: []intent.ServicePort{
				{ExternalIPs: ips[:i], LoadBalancerIPs: ips[i:], Endpoints: endpoints},
			}}
			sum := d.sum(&v)
			if other, ok := seen[sum]; ok {
				t.Errorf("%d/%d is as %s", i, j, other)
			}
			seen[sum] = fmt.Sprintf("%d/%d", i, j)
		}
	}
}
