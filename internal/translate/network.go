// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/intent"
)

// Default is the network that all pods join, and its router.
func Default() (intent.Network, intent.Router) {
	network := intent.Network{
		Name: intent.DefaultNetworkName, ID: intent.DefaultNetwork, VNI: uint32(intent.DefaultNetwork),
		Router: intent.DefaultRouterName,
	}
	return network, intent.Router{Name: intent.DefaultRouterName, ID: intent.DefaultRouter}
}

// Port is the port that an attachment on the named node stands for.
func Port(at attachment.Attachment, node string) intent.Port {
	p := intent.Port{
		ID: at.Key.String(), Namespace: at.PodNamespace, Pod: at.PodName, Interface: at.IfName, UID: at.PodUID,
		Network: intent.DefaultNetworkName, Node: node, MAC: at.MAC, OFPort: at.OFPort,
	}
	for _, a := range at.Addresses {
		p.Addresses = append(p.Addresses, a.Addr())
	}
	return p
}
