// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"encoding/json"
	"net/netip"
	"testing"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
)

// tenants are agents with pods on Networks of the Routers red and blue.
type tenants struct{ Agents }

func (tenants) Nodes(context.Context) ([]string, error) { return []string{"n1"}, nil }

func (tenants) Query(_ context.Context, _, path string, _, out any) error {
	pod := func(name, network, own, node string) agentapi.PortInfo {
		return agentapi.PortInfo{Attachment: attachment.Attachment{
			Spec:      attachment.Spec{Key: attachment.Key{IfName: "eth0"}, PodNamespace: "shop", PodName: name, NetworkName: network, Primary: true},
			Addresses: []netip.Prefix{netip.MustParsePrefix(own)}, NodeAddresses: []netip.Prefix{netip.MustParsePrefix(node)},
		}}
	}
	var answer any = []agentapi.PortInfo{
		pod("r0", "red", "10.50.0.2/24", "10.244.1.5/24"), pod("r1", "red-too", "10.51.0.2/24", "10.244.1.6/24"),
		pod("b0", "blue", "10.50.0.2/24", "10.244.1.7/24"),
	}
	if path == "/v1/networks" {
		answer = []agentapi.NetworkInfo{{Name: "red", Router: "red"}, {Name: "red-too", Router: "red"}, {Name: "blue", Router: "blue"}}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// TestPacketsOfTenants leave with the pod's own address, and are meant for the receiver's own one
// in the same Router only.
func TestPacketsOfTenants(t *testing.T) {
	located := func(pod, address string) Endpoint {
		e, err := Locate(t.Context(), tenants{}, Endpoint{Pod: "shop/" + pod, Node: "n1", Addresses: []netip.Addr{netip.MustParseAddr(address)}})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	r0, r1, b0 := located("r0", "10.244.1.5"), located("r1", "10.244.1.6"), located("b0", "10.244.1.7")
	outside := Endpoint{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	for name, tc := range map[string]struct {
		to       Endpoint
		src, dst string
	}{
		"same router":    {r1, "10.50.0.2", "10.51.0.2"},
		"another router": {b0, "10.50.0.2", "10.244.1.7"},
		"outside":        {outside, "10.50.0.2", "192.0.2.1"},
	} {
		p, err := NewPacket(r0, tc.to, false)
		if err != nil || p.Source.String() != tc.src || p.Destination.String() != tc.dst {
			t.Errorf("%s: from %s to %s, %v; want from %s to %s", name, p.Source, p.Destination, err, tc.src, tc.dst)
		}
	}
}

// machines are agents of two nodes, of which the second has a virtual machine's Port and a
// pod with two interfaces.
type machines struct{ Agents }

func (machines) Nodes(context.Context) ([]string, error) { return []string{"n1", "n2"}, nil }

func (machines) Query(_ context.Context, node, path string, _, out any) error {
	answer := any([]agentapi.PortInfo{})
	if node == "n2" {
		answer = []agentapi.PortInfo{
			{Attachment: attachment.Attachment{
				Spec:      attachment.Spec{Key: attachment.PortKey("shop", "vm"), PodNamespace: "shop", PortName: "vm", NetworkName: "red"},
				Addresses: []netip.Prefix{netip.MustParsePrefix("10.50.0.9/24")},
			}},
			{Attachment: attachment.Attachment{
				Spec:      attachment.Spec{Key: attachment.Key{ContainerID: "c", IfName: "net1"}, PodNamespace: "shop", PodName: "router", PortName: "router.net1", NetworkName: "red"},
				Addresses: []netip.Prefix{netip.MustParsePrefix("10.50.0.8/24")}, NodeAddresses: []netip.Prefix{netip.MustParsePrefix("10.244.2.8/24")},
			}},
		}
	}
	if path == "/v1/networks" {
		answer = []agentapi.NetworkInfo{{Name: "red", Router: "red"}}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// What is no pod may be a Port: of a virtual machine, or a pod's further interface.
func TestPacketsOfPorts(t *testing.T) {
	located := func(name string) Endpoint {
		e, err := findPort(t.Context(), machines{}, Endpoint{Pod: name})
		if err == nil {
			e, err = Locate(t.Context(), machines{}, e)
		}
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	vm, router := located("shop/vm"), located("shop/router.net1")
	for name, tc := range map[string]struct {
		from, to       Endpoint
		who, src, dest string
	}{
		"from a virtual machine": {vm, router, "shop/vm", "10.50.0.9", "10.50.0.8"},
		"to a virtual machine":   {router, vm, "shop/router/net1", "10.50.0.8", "10.50.0.9"},
		"from outside of the Router": {
			Endpoint{Pod: "shop/web", Node: "n1", Router: "blue", Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.5")}}, router,
			"shop/web", "10.244.1.5", "10.244.2.8",
		},
	} {
		p, err := NewPacket(tc.from, tc.to, false)
		if err != nil || p.Node != tc.from.Node || p.From != tc.who || p.Source.String() != tc.src || p.Destination.String() != tc.dest {
			t.Errorf("%s: %+v, %v; want one of %s from %s to %s", name, p, err, tc.who, tc.src, tc.dest)
		}
	}
	if _, err := findPort(t.Context(), machines{}, Endpoint{Pod: "shop/gone"}); err == nil || err.Error() != "no pod is called shop/gone, and no node has a Port of this name" {
		t.Errorf("a name that nobody has: %v", err)
	}
}
