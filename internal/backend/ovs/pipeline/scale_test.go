// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"net/netip"
	"testing"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// manyNetworks has dual-stack networks with the same subnets, each with a private
// router, on 100 nodes. Some have two ports on this node, with node addresses if
// these are to have any, and a block on each of two nodes.
func manyNetworks(all, used int) intent.Objects {
	o := intent.Objects{
		Local:    intent.Local{Node: "n0", Encapsulation: intent.VXLAN, TunnelIP: netip.MustParseAddr("192.168.0.1")},
		Routers:  []intent.Router{{Name: "default", ID: 1, VNI: 1, Shared: true}},
		Networks: []intent.Network{{Name: "default", ID: 1, VNI: 1, Router: "default"}},
	}
	for i := range 100 {
		n := intent.Node{Name: fmt.Sprint("n", i), Addresses: []netip.Addr{address4(192, 168, 0, 1+i)}}
		for _, p := range []netip.Prefix{netip.PrefixFrom(address4(10, 244, i, 0), 24), netip.PrefixFrom(address6(244, i, 0), 64)} {
			n.Subnets = append(n.Subnets, intent.Subnet{Network: "default", Prefix: p, Gateway: p.Addr().Next()})
		}
		o.Nodes = append(o.Nodes, n)
	}
	for i := range all {
		o.Routers, o.Networks = append(o.Routers, oneOfMany(i).router), append(o.Networks, oneOfMany(i).network)
		if i >= used {
			continue
		}
		for _, s := range oneOfMany(i).network.Subnets {
			for n := range 2 {
				o.Blocks = append(o.Blocks, intent.Block{
					Network: oneOfMany(i).network.Name, Node: fmt.Sprint("n", n*(1+i%99)), Prefix: netip.PrefixFrom(at(s.Prefix, 16*(n+1)), s.Prefix.Addr().BitLen()-4),
				})
			}
		}
		o.Ports = append(o.Ports, portOfMany(i, 0), portOfMany(i, 1))
	}
	return o
}

type numberedNetwork struct {
	network intent.Network
	router  intent.Router
}

func oneOfMany(i int) numberedNetwork {
	name := fmt.Sprint("net", i)
	v4, v6 := netip.PrefixFrom(address4(10, 60, 0, 0), 24), netip.PrefixFrom(address6(60, 0, 0), 64)
	return numberedNetwork{
		intent.Network{Name: name, ID: intent.NetworkID(10 + i), VNI: uint32(70000 + 2*i), Router: name, Subnets: []intent.NetworkSubnet{
			{Prefix: v4, Gateway: v4.Addr().Next()}, {Prefix: v6, Gateway: v6.Addr().Next()},
		}},
		intent.Router{Name: name, ID: intent.RouterID(10 + i), VNI: uint32(70001 + 2*i)},
	}
}

// portOfMany is a port of network i on this node, with node addresses.
func portOfMany(i, port int) intent.Port {
	p := intent.Port{
		ID: fmt.Sprintf("c%d/eth0", 2*i+port), Namespace: "default", Pod: fmt.Sprintf("web-%d-%d", i, port), Interface: "eth0",
		Network: fmt.Sprint("net", i), Node: "n0",
		Addresses:     []netip.Addr{address4(10, 60, 0, 18+port), address6(60, 0, 18+port)},
		NodeAddresses: []netip.Addr{address4(10, 244, 0, 2+port), address6(244, i, 2+port)},
	}
	p.NodeAddresses[0] = netip.AddrFrom4([4]byte{10, 244, byte(128 + i/100), byte(2*(i%100) + port)})
	p.MAC = reserved.PodMAC(p.Addresses[0])
	return p
}

// Networks without a port on the node cost it next to nothing, and a change of one
// network compiles that alone.
func TestNetworksWithoutPorts(t *testing.T) {
	flows := func(o intent.Objects) int {
		total := 0
		c := New()
		for _, f := range flowsOf(c.Compile(inputOf(stateFrom(t, o))), c) {
			total += len(f)
		}
		return total
	}
	few, many := flows(manyNetworks(1, 1)), flows(manyNetworks(1001, 1))
	// Of the router: its VNI, what it has no route for, and the end of two subnets.
	if perNetwork := (many - few) / 1000; perNetwork > 4 {
		t.Errorf("%d flows for each network without ports: %d with 1, %d with 1001", perNetwork, few, many)
	}
	store := storeOf(t, manyNetworks(20, 20))
	c := New()
	c.Compile(inputOf(store.State()))
	before := map[unitKey]*unit{}
	for key, u := range c.units {
		before[key] = u
	}
	if _, err := store.Update(func(tx *intent.Tx) error { tx.DeletePort(portOfMany(7, 0).ID); return nil }); err != nil {
		t.Fatal(err)
	}
	c.Compile(inputOf(store.State()))
	for key, u := range c.units {
		if before[key] != u {
			t.Errorf("compiled again: %s", u.owner)
		}
	}
}

func BenchmarkManyNetworks(b *testing.B) {
	state := stateFrom(b, manyNetworks(1000, 200))
	b.ReportAllocs()
	flows := 0
	for b.Loop() {
		c := New()
		flows = 0
		for _, f := range flowsOf(c.Compile(inputOf(state)), c) {
			flows += len(f)
		}
	}
	b.ReportMetric(float64(flows), "flows")
}

func BenchmarkNetworkComes(b *testing.B) {
	o := manyNetworks(1000, 200)
	store := storeOf(b, o)
	c := New()
	c.Compile(inputOf(store.State()))
	with := o
	with.Networks, with.Routers = append(o.Networks[:len(o.Networks):len(o.Networks)], oneOfMany(1000).network), append(o.Routers[:len(o.Routers):len(o.Routers)], oneOfMany(1000).router)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		next := []intent.Objects{o, with}[i%2]
		b.StopTimer()
		state, err := store.Update(func(tx *intent.Tx) error { tx.Replace(next); return nil })
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		c.Compile(inputOf(state))
	}
}

func BenchmarkPortOfManyNetworks(b *testing.B) {
	store := storeOf(b, manyNetworks(1000, 200))
	c := New()
	c.Compile(inputOf(store.State()))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		state, err := store.Update(func(tx *intent.Tx) error {
			if i%2 == 1 {
				tx.DeletePort(portOfMany(7, 0).ID)
			} else {
				tx.SetPort(portOfMany(7, 0))
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		c.Compile(inputOf(state))
	}
}
