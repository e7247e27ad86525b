// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/intent"
)

const portID = "a28c7404-7495-4557-b7fc-3e293508dbc6"

// What CNI_ARGS say of a port has to fit: an ADD that does not gets an error that names the pair,
// and leaves nothing.
func TestBadPortArgs(t *testing.T) {
	const foreign = `{"cniVersion":"1.1.0","name":"odl-cni","type":"odlovs-cni","ovsBridge":"ovsbrk8s","controller":"192.0.2.1",` +
		`"ctlrActive":true,"ipam":{"type":"host-local","subnet":"10.99.1.0/24"}}`
	for _, tt := range []struct {
		name, args, config string
		code               uint
		want               string
	}{
		{"no UUID", "PORT_UUID=web", "", 4, `PORT_UUID "web" in CNI_ARGS`},
		{"an empty UUID", "PORT_UUID=", "", 4, `PORT_UUID "" in CNI_ARGS`},
		{"a UUID in capitals", "PORT_UUID=" + strings.ToUpper(portID), "", 4, "is not a UUID as Neutron writes it"},
		{"a comma between pairs", "PORT_UUID=" + portID + ",", "", 4, "a semicolon is between pairs"},
		{"a path for a UUID", "PORT_UUID=../" + portID[3:], "", 4, "is not a UUID"},
		{"bridge", "PORT_TYPE=bridge", "", 4, "without a Linux bridge"},
		{"vhostuser", "PORT_TYPE=vhostuser", "", 4, "none of a virtual machine"},
		{"vlan", "PORT_UUID=" + portID + ";PORT_TYPE=vlan", "", 4, "coelan.io/trunk-port): ask for ovs"},
		{"macvlan", "PORT_TYPE=macvlan", "", 4, "an address pair of its node's"},
		{"a type of another system", "PORT_TYPE=midonet", "", 4, "it is no type that Coelan knows: ask for ovs, or"},
		{"no type", "PORT_TYPE=", "", 4, `PORT_TYPE "" in CNI_ARGS`},
		{"no address", "IPV4=", "", 4, `IPV4 "" in CNI_ARGS`},
		{"no IPv4 address", "IPV4=10.244.1", "", 4, `IPV4 "10.244.1" in CNI_ARGS`},
		{"two addresses", "IPV4=10.244.1.9,10.244.1.10", "", 4, "is not one address of the family"},
		{"IPv6 for IPv4", "IPV4=fd00:10:244:1::9", "", 4, "is not one address of the family"},
		{"IPv4 for IPv6", "IPV6=10.244.1.9", "", 4, "is not one address of the family"},
		{"IPv4 in IPv6", "IPV6=::ffff:10.244.1.9", "", 4, "is not one address of the family"},
		{"a zone", "IPV6=fe80::1%eth0", "", 4, "is not one address of the family"},
		{"IP as well", "IP=10.244.1.9;IPV4=10.244.1.9", "", 4, "give them by one of the two"},
		{"another length", "IPV4=10.244.1.9/16", "", 103, "IPV4 in CNI_ARGS is 10.244.1.9/16, and the subnet has the length 24"},
		{"outside of the subnet", "IPV4=10.9.0.9", "", 103, "outside of its subnets"},
		{"the gateway's address", "IPV4=10.244.1.1", "", 103, "is the gateway of 10.244.1.0/24"},
		{"no gateway", "GW=", "", 4, `GW "" in CNI_ARGS`},
		{"a gateway with a length", "GW=10.244.1.1/24", "", 4, "is not one address of the family"},
		{"an IPv4 gateway for IPv6", "GW6=10.244.1.1", "", 4, "is not one address of the family"},
		{"another gateway", "GW=10.244.1.254", "", 103, "GW in CNI_ARGS is 10.244.1.254, and a gateway of its subnets is 10.244.1.1"},
		{"another IPv6 gateway", "IPV6=fd00:10:244:1::9;GW6=fd00:10:244:1::2", "", 103, "GW6 in CNI_ARGS is fd00:10:244:1::2"},
		{"a gateway of a family without address", "IPV6=fd00:10:244:1::9;GW=10.244.1.1", "", 103, "it has no gateway of the family"},
		{"an address that the configuration overrides", "IPV4=10.244.1.9",
			`{"cniVersion":"1.0.0","name":"coelan","type":"coelan-cni","runtimeConfig":{"ips":["10.244.1.10"]}}`, 103,
			"IPV4 in CNI_ARGS is 10.244.1.9, and its addresses are [10.244.1.10/24]"},
		{"a controller's bridge", "PORT_UUID=" + portID, foreign, 4, "bridge ovsbrk8s is an external controller's"},
		{"an unknown key", "PORT_NAME=web", "", 4, "CNI_ARGS has the unknown key PORT_NAME"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			r := addRequest("a")
			r.Args = strings.Replace(r.Args, "IgnoreUnknown=1;", "", 1) + ";" + tt.args
			if tt.config != "" {
				r.Config = []byte(tt.config)
			}
			before := w.snapshot()
			_, err := w.Handle(t.Context(), r)
			if err == nil || err.Code != tt.code || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v\nwant  %d %s", err, tt.code, tt.want)
			}
			if diff := cmp.Diff(before, w.snapshot()); diff != "" {
				t.Errorf("the state changed:\n%s", diff)
			}
			w.must(as("DEL", r))
		})
	}
}

// Addresses and gateways that fit are what the pod gets, on any backend.
func TestPortArgs(t *testing.T) {
	for args, want := range map[string]string{
		"PORT_TYPE=ovs":                      "[10.244.1.2/24 fd00:10:244:1::2/64]",
		"IPV4=10.244.1.9":                    "[10.244.1.9/24]",
		"IPV4=10.244.1.9/24;GW=10.244.1.1":   "[10.244.1.9/24]",
		"GW=10.244.1.1;GW6=fd00:10:244:1::1": "[10.244.1.2/24 fd00:10:244:1::2/64]",
		"IPV6=fd00:10:244:1::9/64;GW=10.244.1.1;IPV4=10.244.1.9;GW6=fd00:10:244:1::1;PORT_TYPE=ovs": "[10.244.1.9/24 fd00:10:244:1::9/64]",
	} {
		w := newWorld(t)
		r := addRequest("a")
		r.Args += ";" + args
		first := w.must(r)
		if got := fmt.Sprint(w.store.List()[0].Addresses); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
		if again := w.must(r); string(again) != string(first) {
			t.Errorf("%s: %s, and again %s", args, first, again)
		}
	}
}

// On a node that is a machine of OpenStack ports are in VLANs, and of no other type: also those of
// pods that have their interface already.
func TestPortTypeOfMachine(t *testing.T) {
	w := newWorld(t)
	w.node.node.Trunk = true
	r := addRequest("a")
	typed := func(kind string) wire.Request {
		other := r
		other.Args += ";PORT_TYPE=" + kind
		return other
	}
	for range 2 {
		before := w.snapshot()
		_, err := w.Handle(t.Context(), typed("ovs"))
		if err == nil || err.Code != 4 || !strings.Contains(err.Error(), "on its trunk: ask for vlan") {
			t.Errorf("ovs: %v", err)
		}
		if diff := cmp.Diff(before, w.snapshot()); diff != "" {
			t.Errorf("the state changed:\n%s", diff)
		}
		w.must(typed("vlan"))
		w.must(r)
	}
}

// A port that CNI_ARGS name is the one that the Planner is asked for. What it has is compared with
// what the caller expects, and with what is there already.
func TestNamedPort(t *testing.T) {
	mac := intent.MAC{0xfa, 0x16, 0x3e, 0, 0, 9}
	named := func(t *testing.T) (*world, *planner, wire.Request) {
		w, p := newPlanned(t)
		p.primary["pod-a"] = p.on("blue", "eth0", func(i *attachment.Plan) {
			i.NeutronPort, i.Addresses, i.MAC = portID, []netip.Addr{netip.MustParseAddr("10.9.0.9")}, &mac
		})
		r := addRequest("a")
		r.Args += ";PORT_UUID=" + portID
		return w, p, r
	}
	t.Run("plugged", func(t *testing.T) {
		w, p, r := named(t)
		r.Args += ";IPV4=10.9.0.9/24;GW=10.9.0.1;PORT_TYPE=ovs"
		w.must(r)
		w.must(r)
		if a := w.store.List()[0]; a.NeutronPort != portID || a.MAC != mac || fmt.Sprint(a.Addresses) != "[10.9.0.9/24]" {
			t.Errorf("%+v", a)
		}
		if len(p.asks) != 1 || p.asks[0].NeutronPort != portID {
			t.Errorf("%+v", p.asks)
		}
		for args, want := range map[string]string{
			strings.Replace(r.Args, portID, "0"+portID[1:], 1):   `by the port "` + portID + `" already`,
			strings.Replace(r.Args, "PORT_UUID="+portID, "", 1):  `PORT_UUID "" in CNI_ARGS`,
			strings.Replace(r.Args, "10.9.0.9", "10.9.0.8", 1):   "IPV4 in CNI_ARGS is 10.9.0.8",
			strings.Replace(r.Args, "10.9.0.1;", "10.9.0.2;", 1): "GW in CNI_ARGS is 10.9.0.2",
		} {
			other := r
			other.Args = args
			if _, err := w.Handle(t.Context(), other); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", args, err, want)
			}
		}
		if w.store.List()[0].NeutronPort != portID {
			t.Error("an ADD that does not fit has taken the interface away")
		}
	})
	for name, tt := range map[string]struct {
		change func(*world, *planner, *wire.Request)
		want   string
	}{
		"not of the port": {
			func(_ *world, _ *planner, r *wire.Request) { r.Args += ";IPV4=10.9.0.10" },
			"IPV4 in CNI_ARGS is 10.9.0.10, and its addresses are [10.9.0.9/24]",
		},
		"another gateway": {func(_ *world, _ *planner, r *wire.Request) { r.Args += ";GW=10.9.0.2" }, "a gateway of its subnets is 10.9.0.1"},
		"refused": {func(_ *world, p *planner, _ *wire.Request) {
			p.fails["Plan"] = &PlanError{Reason: v1alpha1.ReasonNotAllowed, Message: "PORT_UUID " + portID + ": device_id is b, and not a"}
		}, "device_id is b, and not a"},
		"taken": {func(_ *world, p *planner, _ *wire.Request) { p.claimed["blue 10.9.0.9"] = "shop/vm" }, "belongs to shop/vm"},
	} {
		t.Run(name, func(t *testing.T) {
			w, p, r := named(t)
			tt.change(w, p, &r)
			before := w.snapshot()
			_, err := w.Handle(t.Context(), r)
			if err == nil || err.Code != wire.CodeRefused || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
			if diff := cmp.Diff(before, w.snapshot()); diff != "" {
				t.Errorf("the state changed:\n%s", diff)
			}
			if !slices.Contains(p.unclaimed, "default/pod-a.eth0") {
				t.Errorf("the port is not given up: %v", p.unclaimed)
			}
		})
	}
}

// Another plugin's addresses are checked in the same way, and come without a port.
func TestLeaseArgs(t *testing.T) {
	for args, want := range map[string]string{
		"PORT_UUID=" + portID:              "ipam-odl gives addresses alone",
		"PORT_TYPE=vhostuser":              "none of a virtual machine",
		"PORT_TYPE=vlan":                   "ask for ovs",
		"IPV4=10.244.1.9;GW=10.244.1.9":    "GW in CNI_ARGS is 10.244.1.9",
		"IPV4=10.244.1.9/24;GW=10.244.1.1": "",
	} {
		w := newWorld(t)
		r := addRequest("a")
		r.Config = []byte(`{"cniVersion":"1.0.0","name":"side","type":"bridge","ipam":{"type":"ipam-odl"}}`)
		r.Args += ";" + args
		_, err := w.HandleIPAM(t.Context(), r)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
		if leases := w.store.Leases(); want != "" && len(leases) > 0 {
			t.Errorf("%s: %v is left", args, leases)
		}
	}
}
