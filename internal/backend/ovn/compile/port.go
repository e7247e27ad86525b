// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"slices"
	"strconv"
	"strings"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// portKind are Ports, by namespace/name of the object: a Logical_Switch_Port each.
type portKind struct{ cluster names.Cluster }

// Name implements Kind.
func (portKind) Name() string { return "Port" }

// Affected implements Kind.
func (portKind) Affected(from, to *intent.State, d intent.Delta, yield func(string)) {
	for _, s := range states(from, to) {
		for _, id := range d.Ports {
			if p, ok := s.Ports().Get(id); ok && p.ObjectKey() != "" {
				yield(p.ObjectKey())
			}
		}
		for _, name := range d.Networks {
			for p := range s.PortsOf(name) {
				yield(p.ObjectKey())
			}
		}
		for _, name := range d.Routers {
			portsOfRouter(from, to, s, name, yield)
		}
		if !hasName(d.Networks, intent.DefaultNetworkName) && len(d.Nodes) > 0 {
			portsOfNodes(from, to, s, d.Nodes, yield)
		}
	}
}

// portsOfRouter yields the Ports in a State that a change of a Router concerns: those that its
// routes lead to, and all if it is new, gone, or shared now.
func portsOfRouter(from, to, s *intent.State, name string, yield func(string)) {
	r, _ := s.Routers().Get(name)
	for _, route := range r.Routes {
		for p := range s.PortsWith(route.NextHop) {
			yield(p.ObjectKey())
		}
	}
	if from == nil {
		return // all Ports are affected by themselves
	}
	was, old := from.Routers().Get(name)
	is, now := to.Routers().Get(name)
	if old == now && was.Private() == is.Private() {
		return
	}
	for n := range s.NetworksOf(name) {
		for p := range s.PortsOf(n.Name) {
			yield(p.ObjectKey())
		}
	}
}

// portsOfNodes yields the Ports in a State on nodes that have, or have no longer, a switch.
func portsOfNodes(from, to, s *intent.State, nodes []string, yield func(string)) {
	if from == nil {
		return
	}
	changed := map[string]bool{}
	for _, name := range nodes {
		if (len(nodeSubnets(from, name)) > 0) != (len(nodeSubnets(to, name)) > 0) {
			changed[name] = true
		}
	}
	if len(changed) == 0 {
		return
	}
	for p := range s.Ports().All() {
		if changed[p.Node] {
			yield(p.ObjectKey())
		}
	}
}

// Compile implements Kind.
func (k portKind) Compile(s *intent.State, object string, u *nb.Unit) {
	for p := range s.PortsNamed(object) {
		k.port(s, p, u)
		return // a second one of the name is of a pod that is being replaced
	}
}

func (k portKind) port(s *intent.State, p intent.Port, u *nb.Unit) {
	n, ok := s.Networks().Get(p.Network)
	if !ok || len(p.Addresses) == 0 {
		return
	}
	r, ok := s.Routers().Get(n.Router)
	if !ok && n.Physical == "" {
		return
	}
	if n.FromNodes() {
		if r.Private() {
			u.Problem("Port "+p.ObjectKey(), "IsolatedNamespaceUnsupported",
				"the isolated namespace of Network "+n.Name+" shares its node's subnet with others, which OVN cannot "+
					"keep apart: use a Network with subnets of its own")
			return
		}
		if len(nodeSubnets(s, p.Node)) == 0 {
			return
		}
	}
	if r.Private() && len(p.NodeAddresses) > 0 && n.LogicalSwitch != "" {
		// Once for all of the Router's Ports.
		u.Problem("Router "+r.Name, "NodeAddressesUnsupported", "nodes do not reach Ports on another system's switch: use "+
			"no probes by the network")
	}
	row := &nb.LogicalSwitchPort{
		Name: k.cluster.Port(p.ObjectKey()), Addresses: []string{addressesOf(p.MAC, p.Addresses)},
		PortSecurity:  []string{security(r, p)},
		DHCPv4Options: dhcpOf(n, p.Addresses, false), DHCPv6Options: dhcpOf(n, p.Addresses, true),
	}
	if host := hostName(p); row.DHCPv4Options != nil && host != "" {
		row.Options = map[string]string{"hostname": strconv.Quote(host)}
	}
	u.AddTo(switchOf(n, p.Node), "ports", portRef(p.ObjectKey()).Key, row)
}

// security is what a Port may send from: its addresses, and the destinations of routes that lead to
// it; all addresses if that is a default route.
func security(r intent.Router, p intent.Port) string {
	allowed := addressesOf(p.MAC, p.Addresses)
	for _, route := range effective(r) {
		if !slices.Contains(p.Addresses, route.NextHop) {
			continue
		}
		if route.Destination.Bits() == 0 {
			return p.MAC.String()
		}
		allowed += " " + route.Destination.String()
	}
	return allowed
}

// maxLabel is the length of a label of DNS.
const maxLabel = 63

// hostName is what a Port's machine is told to be called: the first label of its name.
func hostName(p intent.Port) string {
	label, _, _ := strings.Cut(p.Pod, ".")
	if len(label) > maxLabel {
		return ""
	}
	return label
}
