// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// layout is what accessKind has to know of the switches and routers that its ways lead by.
type layout interface {
	// hasNode says whether a node is on a switch of the Network default, and hasRouter whether
	// there is a row of a Router.
	hasNode(node string) bool
	hasRouter(router string) bool
	// nodeSwitch is the switch of the Network default that a node is on.
	nodeSwitch(node string) nb.Ref
	// portName is the name of a Logical_Router_Port with this one.
	portName(name string) string
	// gate is the key and the name of a Router's Logical_Router_Port on a node's switch, and
	// common says whether that is one for all nodes, and at no chassis.
	gate(p accessPlace) (key, name string)
	common() bool
	// resident is the name of a port that is on a node's chassis alone.
	resident(p accessPlace) string
	// translate has the NAT of a node address take effect at the node, where the gate does not.
	translate(p accessPlace, a netip.Addr, nat *nb.NAT)
	// priorities are those of the Router default's policies to a node, and to its own switch.
	priorities() (toNode, toOwn int)
	// atNode fits what is at a node of what comes to the Router default.
	atNode(node string) string
	// leaves fits what a Router sends by a port that has this name where Coelan has made it, and
	// its default route of a family.
	leaves(s *intent.State, r intent.Router, port string, like netip.Addr) string
	// floats says whether Routers have ports for FloatingIPs alone.
	floats() bool
}

// ownLayout is of switches and routers that Coelan makes: each node has a switch.
type ownLayout struct{ cluster names.Cluster }

func (ownLayout) hasNode(string) bool { return true }

func (ownLayout) hasRouter(string) bool { return true }

func (ownLayout) nodeSwitch(node string) nb.Ref { return switchRef(intent.DefaultNetworkName, node) }

func (ownLayout) portName(name string) string { return name }

func (l ownLayout) gate(p accessPlace) (key, name string) {
	return "Access/" + accessAt + p.String(), l.cluster.AccessPort(p.node, p.router)
}

func (ownLayout) common() bool { return false }

func (l ownLayout) resident(p accessPlace) string {
	_, name := l.gate(p)
	return "cr-" + name
}

func (ownLayout) translate(accessPlace, netip.Addr, *nb.NAT) {}

func (ownLayout) priorities() (toNode, toOwn int) { return accessPriority, ownAccessPriority }

func (l ownLayout) atNode(node string) string {
	return fmt.Sprintf("inport == %q", l.cluster.RouterPort(intent.DefaultNetworkName, node))
}

func (ownLayout) leaves(_ *intent.State, _ intent.Router, port string, _ netip.Addr) string {
	return fmt.Sprintf("outport == %q", port)
}

func (ownLayout) floats() bool { return true }

// othersLayout is of switches and routers that another system has made: one switch has all nodes.
type othersLayout struct {
	cluster names.Cluster
	others  *Others
}

func (l othersLayout) hasNode(node string) bool {
	return l.others.network(intent.DefaultNetworkName) != "" && l.others.node(node) != ""
}

func (l othersLayout) hasRouter(router string) bool { return l.others.router(router) != "" }

func (othersLayout) nodeSwitch(string) nb.Ref { return switchRef(intent.DefaultNetworkName, "") }

// portName makes names as all ports of ML2/OVN's routers have them: its neutron-ovn-db-sync-util
// ends with an error at another one, and removes ports that are not Neutron's, which the next
// comparison makes again.
func (othersLayout) portName(name string) string { return "lrp-" + name }

func (l othersLayout) gate(p accessPlace) (key, name string) {
	return nb.Key("Access/"+accessRouter+p.router, "gate"), l.portName(l.cluster.AccessPort("all", p.router))
}

func (othersLayout) common() bool { return true }

func (l othersLayout) resident(p accessPlace) string { return l.others.node(p.node) }

// neutronMAC is the key of external_ids by which Neutron knows the Ethernet address of a NAT, which
// it takes away for a while. Without it Neutron fails to see that a NAT's port is up.
const neutronMAC = "neutron:fip_external_mac"

// translate goes by the node's own port: Neutron takes the first NAT of another port for that of a
// floating IP, and has it translate elsewhere.
func (l othersLayout) translate(p accessPlace, a netip.Addr, nat *nb.NAT) {
	mac := ownMAC("Access/" + accessPort + a.String()).String()
	nat.LogicalPort, nat.ExternalMAC = ptr(l.resident(p)), &mac
	nat.ExternalIDs = map[string]string{neutronMAC: mac}
}

func (othersLayout) priorities() (toNode, toOwn int) { return staysPriority + 1, staysPriority + 2 }

func (l othersLayout) atNode(node string) string {
	return fmt.Sprintf("is_chassis_resident(%q)", l.others.node(node))
}

// leaves fits what a Router has no other way for, since the other system has named the port.
func (l othersLayout) leaves(s *intent.State, r intent.Router, _ string, like netip.Addr) string {
	var within []string
	for n := range s.NetworksOf(r.Name) {
		for _, sn := range n.Subnets {
			if sn.Prefix.Addr().Is4() == like.Is4() {
				within = append(within, sn.Prefix.String())
			}
		}
	}
	for _, route := range effective(r) {
		if route.Destination.Addr().Is4() == like.Is4() && route.Destination.Bits() > 0 {
			within = append(within, route.Destination.String())
		}
	}
	match := family(like)
	for _, p := range l.others.Foreign[r.Name] {
		if p.Addr().Is4() == like.Is4() {
			within = append(within, p.String())
		}
	}
	if len(within) > 0 {
		slices.Sort(within)
		match += fmt.Sprintf(" && !(%s.dst == {%s})", family(like), strings.Join(within, ", "))
	}
	return match
}

func (othersLayout) floats() bool { return false }
