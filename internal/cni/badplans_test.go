// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/reserved"
)

// Whatever a pod asks for that it cannot have: an error and an Event that name it,
// and nothing is changed.
func TestBadPlans(t *testing.T) {
	further := func(change func(p *planner) []attachment.Plan) func(*world, *planner) {
		return func(_ *world, p *planner) { p.pods["pod-a"] = change(p) }
	}
	one := func(network, ifName string, changes ...func(*attachment.Plan)) func(*world, *planner) {
		return further(func(p *planner) []attachment.Plan { return []attachment.Plan{p.on(network, ifName, changes...)} })
	}
	for _, tt := range []struct {
		name   string
		change func(*world, *planner)
		code   uint
		reason string
		want   string
	}{
		{"unknown Network", func(_ *world, p *planner) {
			p.fails["Plan"] = &PlanError{Reason: v1alpha1.ReasonNetworkNotFound, Message: "annotation x, element 2: Network green is not known"}
		}, wire.CodeRefused, "NetworkNotFound", "annotation x, element 2: Network green is not known"},
		{"too early", func(_ *world, p *planner) {
			p.fails["Plan"] = &PlanError{Reason: "PodNotSeen", Message: "pod default/pod-a was not seen yet", Retry: true}
		}, wire.CodeTryAgainLater, "PodNotSeen", "was not seen yet"},
		{"another failure", func(_ *world, p *planner) { p.fails["Plan"] = errors.New("no idea") }, wire.CodeFailed, "NetworkSetupFailed", "no idea"},
		{"the same interface twice", further(func(p *planner) []attachment.Plan {
			return []attachment.Plan{p.on("red", "net1"), p.on("blue", "net1")}
		}),
			wire.CodeRefused, "Invalid", "interface net1 on Network blue: the pod has an interface of this name already, for Network red"},
		{"eth0 again", one("red", "eth0"), wire.CodeRefused, "Invalid", "interface eth0 on Network red: the pod has an interface of this name already, for Network default"},
		{"lo", one("red", "lo"), wire.CodeRefused, "Invalid", "for the loopback interface"},
		{"name too long", one("red", "sixteencharacter"), wire.CodeRefused, "Invalid", "interface sixteencharacter on Network red: its name cannot be used"},
		{"no name", one("red", ""), wire.CodeRefused, "Invalid", "its name cannot be used"},
		{"name with a slash", one("red", "a/b"), wire.CodeRefused, "Invalid", "its name cannot be used"},
		{"name is taken in the pod", func(w *world, p *planner) {
			w.kernel.pods["/run/netns/a"]["net1"] = bare("other")
			p.pods["pod-a"] = []attachment.Plan{p.on("red", "net1")}
		}, 4, "NetworkSetupFailed", `interface "net1" exists already`},
		{"address outside", one("blue", "net1", addresses("10.8.0.5")), wire.CodeRefused, "AddressOutside",
			"interface net1 on Network blue: address 10.8.0.5 is outside of its subnets [10.9.0.0/24]"},
		{"address of a family that is not there", one("blue", "net1", addresses("fd09::5")), wire.CodeRefused, "AddressOutside", "address fd09::5 is outside"},
		{"address on a Network without subnets", one("wire", "net1", addresses("10.9.0.5")), wire.CodeRefused, "AddressOutside", "outside of its subnets []"},
		{"the gateway's address", one("blue", "net1", addresses("10.9.0.1")), wire.CodeRefused, "AddressTaken", "address 10.9.0.1 is the gateway of 10.9.0.0/24"},
		{"the network address", one("blue", "net1", addresses("10.9.0.0")), wire.CodeRefused, "Invalid", "address 10.9.0.0 is no interface's address in 10.9.0.0/24"},
		{"the broadcast address", one("blue", "net1", addresses("10.9.0.255")), wire.CodeRefused, "Invalid", "address 10.9.0.255 is no interface's address"},
		{"an address twice", one("blue", "net1", addresses("10.9.0.5", "10.9.0.5")), wire.CodeRefused, "Invalid", "address 10.9.0.5 is asked for twice"},
		{"address of another pod", func(w *world, p *planner) {
			p.claimed["blue 10.9.0.5"] = "shop/vm"
			p.pods["pod-a"] = []attachment.Plan{p.on("blue", "net1", addresses("10.9.0.5"))}
		}, wire.CodeRefused, "AddressTaken", "blue 10.9.0.5 belongs to shop/vm"},
		{"two interfaces with one address", further(func(p *planner) []attachment.Plan {
			return []attachment.Plan{p.on("blue", "net1", addresses("10.9.0.5")), p.on("blue", "net2", addresses("10.9.0.5"))}
		}), wire.CodeRefused, "AddressTaken", "address 10.9.0.5 on Network blue belongs to"},
		{"MAC of another pod", func(w *world, p *planner) {
			p.claimed["blue 02:00:00:00:00:07"] = "shop/vm"
			p.pods["pod-a"] = []attachment.Plan{p.on("blue", "net1", hardware("02:00:00:00:00:07"))}
		}, wire.CodeRefused, "MACTaken", "blue 02:00:00:00:00:07 belongs to shop/vm"},
		{"two interfaces with one MAC", further(func(p *planner) []attachment.Plan {
			return []attachment.Plan{p.on("blue", "net1", hardware("02:00:00:00:00:07")), p.on("blue", "net2", hardware("02:00:00:00:00:07"))}
		}), wire.CodeRefused, "MACTaken", "MAC 02:00:00:00:00:07 on Network blue belongs to"},
		{"MAC of a group", one("blue", "net1", hardware("03:00:00:00:00:07")), wire.CodeRefused, "Invalid", "MAC 03:00:00:00:00:07 is not the address of one interface"},
		{"MAC of nobody", one("blue", "net1", hardware("00:00:00:00:00:00")), wire.CodeRefused, "Invalid", "is not the address of one interface"},
		{"MAC of the router", one("blue", "net1", hardware(reserved.RouterMAC(1).String())), wire.CodeRefused, "MACTaken", "belongs to the Network's router"},
		{"MAC of the router's range", one("blue", "net1", hardware("0a:c0:e1:00:00:09")), wire.CodeRefused, "MACTaken", "belongs to the Network's router"},
		{"MAC of another address", one("blue", "net1", hardware("0a:ce:0a:09:00:06")), wire.CodeRefused, "MACTaken", "MAC 0a:ce:0a:09:00:06 is of the range"},
		{"MAC of another address than the own", one("blue", "net1", func(i *attachment.Plan) {
			addresses("10.9.0.5")(i)
			hardware("0a:ce:0a:09:00:06")(i)
		}), wire.CodeRefused, "MACTaken", "MAC 0a:ce:0a:09:00:06 is of the range"},
		{"gateway outside", one("blue", "net1", func(i *attachment.Plan) { i.Gateways = []netip.Addr{netip.MustParseAddr("10.8.0.1")} }),
			wire.CodeRefused, "Invalid", "gateway 10.8.0.1 is outside of its subnets [10.9.0.0/24]"},
		{"next hop outside", one("blue", "net1", func(i *attachment.Plan) {
			i.Routes = []attachment.Route{{Destination: netip.MustParsePrefix("10.50.0.0/16"), NextHop: netip.MustParseAddr("10.8.0.1")}}
		}), wire.CodeRefused, "Invalid", "route to 10.50.0.0/16 has the next hop 10.8.0.1 outside of its subnets"},
		{"next hop of the other family", one("blue", "net1", func(i *attachment.Plan) {
			i.Routes = []attachment.Route{{Destination: netip.MustParsePrefix("fd50::/16"), NextHop: netip.MustParseAddr("10.9.0.1")}}
		}), wire.CodeRefused, "Invalid", "route to fd50::/16 has the next hop 10.9.0.1 of the other family"},
		{"exhausted", func(_ *world, p *planner) {
			p.networks["blue"].free = nil
			p.pods["pod-a"] = []attachment.Plan{p.on("blue", "net1")}
		}, wire.CodeExhausted, "AddressesExhausted", "Network blue has no free address left"},
		{"no family in common with the node", func(w *world, p *planner) {
			w.node.node.PodCIDRs = prefixes("fd00:10:244:1::/64")
			p.primary["pod-a"] = p.on("blue", "eth0", func(i *attachment.Plan) { i.NodeAddresses = true })
		}, wire.CodeRefused, "Invalid", "interface eth0 on Network blue: it has no address of a family of the node's podCIDRs [fd00:10:244:1::/64]"},
		{"claim is not answered", func(_ *world, p *planner) {
			p.fails["Claim"] = &PlanError{Reason: v1alpha1.ReasonNotBound, Message: "node n2 has not answered", Retry: true}
			p.pods["pod-a"] = []attachment.Plan{p.on("blue", "net1", addresses("10.9.0.5"))}
		}, wire.CodeTryAgainLater, "NotBound", "node n2 has not answered"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, p := newPlanned(t)
			tt.change(w, p)
			before, claimed := w.snapshot(), len(p.claimed)
			out, err := w.Handle(t.Context(), addRequest("a"))
			if err == nil {
				t.Fatalf("succeeded with %s", out)
			}
			if err.Code != tt.code || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %d %q\nwant  %d %q", err.Code, err.Error(), tt.code, tt.want)
			}
			if diff := cmp.Diff(before, w.snapshot()); diff != "" {
				t.Errorf("the state changed:\n%s", diff)
			}
			if len(p.claimed) != claimed {
				t.Errorf("claimed: %v", p.claimed)
			}
			if want := "default/pod-a uid-a " + tt.reason + ": " + err.Error(); !slices.Equal(w.events.list, []string{want}) {
				t.Errorf("Events %q\nwant   %q", w.events.list, want)
			}
		})
	}
}
