// SPDX-License-Identifier: Apache-2.0

package kernelview

import (
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/intent"
)

// Guard names the ports that nodes serve for each other.
func Guard(s *intent.State) hostnet.Guard {
	local := s.Local()
	g := hostnet.Guard{
		Tunnel: datapath.TunnelUDPPort(local.Encapsulation), TunnelToKernel: local.Datapath == intent.DatapathSystem,
	}
	for p := range s.GuardedPorts().All() {
		g.Ports = append(g.Ports, hostnet.NodePort{Protocol: p.Protocol, Port: p.Port})
	}
	for n := range s.Nodes().All() {
		g.Nodes = append(g.Nodes, n.Addresses...)
	}
	return g
}

// SharedSubnets are those of a Network with addresses that all nodes know: they lead into the
// bridge, where the virtual router answers for their gateway.
func SharedSubnets(s *intent.State, n intent.Network) []intent.NetworkSubnet {
	if n.Physical != "" || !Shared(s, n.Router) {
		return nil
	}
	return n.Subnets
}

// Shared says whether there is a Router of that name with addresses that all nodes know.
func Shared(s *intent.State, name string) bool {
	r, ok := s.Routers().Get(name)
	return ok && !r.Private()
}
