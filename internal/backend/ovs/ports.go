// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// tunnelPort is the name of the port to all other nodes.
const tunnelPort = "coelan-tun0"

// The external_ids of a pod's port, beside the owner's mark. iface-id and attached-mac are what
// other OVS tools read.
const (
	idInterface = "iface-id"
	idMAC       = "attached-mac"
	idContainer = "coelan-container-id"
	idIfName    = "coelan-interface"
	idPodUID    = "coelan-pod-uid"
)

// idServiceGateway marks the port that leads to kube-proxy, while that balances Services.
const idServiceGateway = "is-service-gateway"

// infrastructure are the ports of the bridge that are there without any pod.
func infrastructure(c config.Config, l intent.Local) []ovsdb.Port {
	gateway := ovsdb.Internal(c.GatewayInterface, int(datapath.GatewayPort), datapath.GatewayMAC.HardwareAddr(), l.MTU)
	if c.Services.Mode == config.KubeProxy {
		gateway.ExternalIDs = map[string]string{idServiceGateway: "true"}
	}
	ports := []ovsdb.Port{gateway}
	if l.Encapsulation.Tunneled() {
		ports = append(ports,
			ovsdb.Tunnel(tunnelPort, string(l.Encapsulation), int(datapath.TunnelPort), tunnelMark(l)))
	}
	return ports
}

// tunnelMark is the mark of tunnel packets that pass the node's kernel; 0: they have none. In
// userspace, Open vSwitch sends them past it.
func tunnelMark(l intent.Local) uint32 {
	if l.Datapath != intent.DatapathSystem || !l.Encapsulation.Tunneled() {
		return 0
	}
	return reserved.TunnelMark
}
