// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"slices"
	"testing"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// The meters of all Ports' requests have numbers of their own.
func TestDHCPMeters(t *testing.T) {
	const first, last = 16, 65279 // the OpenFlow ports of Ports
	lastUplink := uplinkMeter(15, icmpErrors)
	if lowest := uint32(dhcpMeter + first); lowest <= lastUplink || lowest <= questionMeter+last {
		t.Errorf("the first meter is %d, an uplink's %d, a port's for questions %d", lowest, lastUplink, questionMeter+last)
	}
	leased := func(uplink uint32, vlan uint16) uint32 { return leaseMeter(intent.Network{VLAN: vlan}, uplink) }
	if lowest := leased(datapath.FirstUplinkPort, 0); lowest <= dhcpMeter+last {
		t.Errorf("the first meter of a Network is %d, the last of a port %d", lowest, dhcpMeter+last)
	}
	const most = 1 << 18 // as many as a userspace datapath has
	if highest := leased(datapath.LastUplinkPort, 4094); highest >= most {
		t.Errorf("the last meter is %d", highest)
	}
}

// A Network that begins to answer, or ceases to, changes the flows of its own Ports and no others.
func TestDHCPBegins(t *testing.T) {
	world := func(on bool) intent.Objects {
		port := portForm(1, 2, "red")
		port.Node = "o1"
		return intent.Objects{
			Local: localForm(0), Routers: []intent.Router{{Name: "red", ID: 20, VNI: 20}},
			Networks: []intent.Network{{Name: "red", ID: 10, VNI: 10, Router: "red", DHCP: intent.DHCP{Enabled: on}}},
			Ports:    []intent.Port{port, portForm(2, 1, "default")},
		}
	}
	given := func(flows []openflow.Flow) (n int) {
		for _, f := range flows {
			for _, a := range f.Actions {
				if c, ok := a.(openflow.Controller); ok && c.Userdata == DHCPUserdata {
					n++
				}
			}
		}
		return n
	}
	c := New()
	for _, on := range []bool{false, true, false} {
		flows := flowsOf(c.Compile(inputOf(stateOf(t, world(on)))), c)
		want := 0
		if on {
			// By broadcast, DHCPv6 and router solicitation; the Network has no gateway here.
			want = 3
		}
		for owner, list := range flows {
			n := given(list)
			if own := owner == "port/default/web-1/eth0#o1/eth0"; own && n != want || !own && n != 0 {
				t.Errorf("answers %v: %s has %d flows that give requests to the agent", on, owner, n)
			}
		}
	}
	trusted := world(true)
	trusted.Ports[0].Trusted = true
	flows := flowsOf(New().Compile(inputOf(stateOf(t, trusted))), c)["port/default/web-1/eth0#o1/eth0"]
	if slices.ContainsFunc(flows, func(f openflow.Flow) bool { return f.Table == spoofguard.ID && f.Priority == 305 && f.Goto == 0 }) {
		t.Error("what a trusted Port sends as a server is dropped")
	}
}
