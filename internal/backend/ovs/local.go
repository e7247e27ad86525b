// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"fmt"
	"slices"

	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

// local computes how this node takes part with a configuration, from its Node object and its
// interfaces.
func (r *reconciler) local(c config.Config, node intent.Node, datapath intent.Datapath) (
	intent.Local, hostnet.Uplink, error,
) {
	l := intent.Local{
		Node: node.Name, Datapath: datapath, Encapsulation: intent.Encapsulation(c.Encapsulation),
		MTU:         c.MTU,
		ServiceMode: intent.ServiceMode(c.Services.Mode), PolicyMode: intent.PolicyMode(c.Policy.Mode),
		Gateway: c.GatewayInterface,
	}
	address := node.Addresses[0]
	uplink, err := r.findUplink(address)
	if err != nil {
		return l, uplink, fmt.Errorf("node %s: %w; does the Node object name another host?", node.Name, err)
	}
	if l.Encapsulation.Tunneled() {
		l.TunnelIP = address
	}
	largest := hostnet.PodMTU(uplink.MTU, l.Encapsulation.Tunneled(), address)
	switch {
	case l.MTU == 0:
		l.MTU = largest
	case l.MTU > largest:
		return l, uplink, fmt.Errorf("mtu: %d is too large, interface %s with MTU %d carries pods' packets of at most %d bytes",
			l.MTU, uplink.Name, uplink.MTU, largest)
	}
	if v6 := slices.ContainsFunc(node.Subnets, func(s intent.Subnet) bool {
		return s.Prefix.Addr().Is6()
	}); v6 && l.MTU < minIPv6MTU {
		return l, uplink, fmt.Errorf("interface %s with MTU %d leaves pods %d bytes, but IPv6 needs %d", uplink.Name,
			uplink.MTU, l.MTU, minIPv6MTU)
	}
	networks := r.intent.State().Networks()
	for _, at := range r.attachments.List() {
		n, _ := networks.Get(at.NetworkName)
		if at.MTU > l.MTU && n.Physical == "" {
			l.PortMTU = max(l.PortMTU, at.MTU)
		}
	}
	return l, uplink, nil
}

// minIPv6MTU is what every IPv6 link must carry (RFC 8200, section 5).
const minIPv6MTU = 1280
