// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/intent"
)

// floatingService is one of many floating IPs of Services.
func floatingService(i int) intent.FloatingIP {
	f := floatingTo(i, "")
	f.Port, f.Service = "", fmt.Sprint("default/web-", i)
	return f
}

func choose(o *intent.Objects, addresses ...netip.Addr) {
	for _, a := range addresses {
		o.ChosenAddresses = append(o.ChosenAddresses, intent.ChosenAddress{Address: a})
	}
}

// A floating IP of a Service has flows on the node that has been chosen to answer for it, where the
// bridge balances Services, and nowhere else.
func TestFlowsOfFloatingIPsOfServices(t *testing.T) {
	for _, tc := range []struct {
		name     string
		network  string // empty: office
		address  string
		vlan     uint16
		chosen   bool
		proxied  bool // kube-proxy balances
		attached bool // this node has a Port on the external Network
		flows    int
		problem  string
	}{
		{name: "chosen", address: "192.0.2.10", chosen: true, flows: 14},
		{name: "IPv6", address: "2001:db8:7::10", chosen: true, flows: 16},
		{name: "VLAN", address: "192.0.2.10", vlan: 70, chosen: true, flows: 14},
		{name: "beside Ports on the Network", address: "192.0.2.10", chosen: true, attached: true, flows: 15},
		{name: "not chosen", address: "192.0.2.10"},
		{name: "kube-proxy", address: "192.0.2.10", chosen: true, proxied: true},
		{name: "a Network that is not external", network: "net0", address: "192.0.2.10", chosen: true,
			problem: `network "net0" is not external, or has no subnet with 192.0.2.10`},
		{name: "no such Network", network: "gone", address: "192.0.2.10", chosen: true,
			problem: `network "gone" does not exist, or this node is not connected to it`},
		{name: "the gateway's address", address: "192.0.0.1", chosen: true,
			problem: `network "office" is not external, or has no subnet with 192.0.0.1`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := floatingCluster(tc.vlan)
			if !tc.proxied {
				o.Local.ServiceMode = intent.NativeServices
			}
			if tc.attached {
				o.Ports = append(o.Ports, intent.Port{
					ID: "c9/eth0", Namespace: "default", Pod: "wired", Interface: "eth0", Network: "office", Node: "n0",
					Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.99")}, MAC: intent.MAC{2, 0, 0, 0, 0, 9},
				})
			}
			// With another one, so that what all have in common is there.
			o.FloatingIPs = []intent.FloatingIP{floatingService(0)}
			choose(&o, floatingService(0).Address)
			before := New()
			without := count(before.Compile(inputOf(stateFrom(t, o))), before)
			f := intent.FloatingIP{Name: "default/f", Network: "office", Address: netip.MustParseAddr(tc.address), Service: "default/web"}
			if tc.network != "" {
				f.Network = tc.network
			}
			o.FloatingIPs = append(o.FloatingIPs, f)
			if tc.chosen {
				choose(&o, f.Address)
			}
			c := New()
			d := c.Compile(inputOf(stateFrom(t, o)))
			if r := d.Get("floating-ip/default/f"); !r.Empty() && len(r.Flows) != tc.flows || r.Empty() && tc.flows > 0 {
				t.Errorf("want %d flows, got %s", tc.flows, cmp.Diff(nil, r))
			}
			if more := count(d, c) - without; more != tc.flows {
				t.Errorf("%d flows more in all, want %d", more, tc.flows)
			}
			var problem string
			for _, p := range c.Problems() {
				problem = p.Text
			}
			if problem != tc.problem {
				t.Errorf("problem %q, want %q", problem, tc.problem)
			}
		})
	}
}

// Among 10,000 floating IPs of Services, of which the node answers for some, it is chosen for one
// more, which is given to another Service, and then to another node: that compiles it alone.
func TestManyFloatingIPsOfServices(t *testing.T) {
	const many = 10000
	o := floatingCluster(70)
	o.Local.ServiceMode = intent.NativeServices
	none := New()
	without := count(none.Compile(inputOf(stateFrom(t, o))), none)
	for i := range many {
		o.FloatingIPs = append(o.FloatingIPs, floatingService(i))
	}
	others := New()
	if with := count(others.Compile(inputOf(stateFrom(t, o))), others); with != without {
		t.Errorf("%d flows with %d floating IPs that other nodes answer for, %d without", with, many, without)
	}
	choose(&o, floatingService(1).Address, floatingService(2).Address)
	store, c := storeOf(t, o), New()
	c.Compile(inputOf(store.State()))
	f := floatingService(7)
	for _, step := range []struct {
		name   string
		change func(*intent.Tx)
		flows  bool // has it flows then?
	}{
		{"chosen", func(tx *intent.Tx) {
			o := o
			choose(&o, f.Address)
			tx.ReplaceChosenAddresses(o.ChosenAddresses)
		}, true},
		{"another Service", func(tx *intent.Tx) {
			other := f
			other.Service = "default/other"
			tx.SetFloatingIP(other)
		}, true},
		{"another node", func(tx *intent.Tx) { tx.ReplaceChosenAddresses(o.ChosenAddresses) }, false},
	} {
		before := maps.Clone(c.units)
		if _, err := store.Update(func(tx *intent.Tx) error { step.change(tx); return nil }); err != nil {
			t.Fatal(err)
		}
		c.Compile(inputOf(store.State()))
		var compiled []string
		for key, u := range c.units {
			if before[key] != u {
				compiled = append(compiled, u.owner)
			}
		}
		if want := []string{"floating-ip/" + f.Name}; !slices.Equal(compiled, want) {
			t.Errorf("%s: compiled %v, want %v", step.name, compiled, want)
		}
		if has := !c.desired.Get("floating-ip/" + f.Name).Empty(); has != step.flows {
			t.Errorf("%s: flows: %v, want %v", step.name, has, step.flows)
		}
	}
}
