// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/hostnet"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovsdb"
)

// datapath is the one to use: what is configured; else what the bridge has already; else the kernel's if it is there.
func (a *Agent) datapath(ctx context.Context, info ovsdb.Info) (intent.Datapath, error) {
	want := intent.Datapath(a.cfg.Datapath)
	if a.cfg.Datapath == config.DatapathAuto {
		bridges, err := a.db.Bridges(ctx)
		if err != nil {
			return "", err
		}
		i := slices.IndexFunc(bridges, func(b ovsdb.BridgeState) bool { return b.Name == a.cfg.Bridge })
		switch {
		case i >= 0:
			want = intent.Datapath(bridges[i].Datapath)
		case slices.Contains(info.DatapathTypes, string(intent.DatapathSystem)):
			want = intent.DatapathSystem
		default:
			want = intent.DatapathNetdev
		}
	}
	if !slices.Contains(info.DatapathTypes, string(want)) {
		return "", fmt.Errorf("datapath %q cannot be used here, Open vSwitch %s offers %v; is the kernel module openvswitch there?",
			want, info.Version, info.DatapathTypes)
	}
	return want, nil
}

// local works out how this node takes part, from its Node object and its interfaces.
func (a *Agent) local(node intent.Node, datapath intent.Datapath) (intent.Local, hostnet.Uplink, error) {
	l := intent.Local{
		Node: node.Name, Datapath: datapath, Encapsulation: intent.Encapsulation(a.cfg.Encapsulation), MTU: a.cfg.MTU,
		ServiceMode: a.serviceMode(), PolicyMode: intent.PolicyMode(a.cfg.Policy.Mode),
	}
	address := node.Addresses[0]
	uplink, err := hostnet.FindUplink(address)
	if err != nil {
		return l, uplink, fmt.Errorf("node %s: %w; does the Node object name another host?", node.Name, err)
	}
	if l.Encapsulation.Tunnelled() {
		l.TunnelIP = address
	}
	largest := hostnet.PodMTU(uplink.MTU, l.Encapsulation.Tunnelled(), address)
	switch {
	case l.MTU == 0:
		l.MTU = largest
	case l.MTU > largest:
		return l, uplink, fmt.Errorf("mtu: %d is too large, interface %s with MTU %d carries pods' packets of at most %d bytes",
			l.MTU, uplink.Name, uplink.MTU, largest)
	}
	if v6 := slices.ContainsFunc(node.Subnets, func(s intent.Subnet) bool { return s.Prefix.Addr().Is6() }); v6 && l.MTU < minIPv6MTU {
		return l, uplink, fmt.Errorf("interface %s with MTU %d leaves pods %d bytes, but IPv6 needs %d", uplink.Name, uplink.MTU, l.MTU, minIPv6MTU)
	}
	return l, uplink, nil
}

// minIPv6MTU is what every IPv6 link must carry (RFC 8200, section 5).
const minIPv6MTU = 1280

// uplinkBridge returns the bridge whose local port has the node's address; nil if it is on an ordinary interface. The
// userspace datapath can send tunnel packets from such a port only.
func (a *Agent) uplinkBridge(ctx context.Context, l intent.Local, uplink hostnet.Uplink) (*ovsdb.BridgeState, error) {
	bridges, err := a.db.Bridges(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(bridges, func(b ovsdb.BridgeState) bool { return b.Name == uplink.Name }); i >= 0 {
		return &bridges[i], nil
	}
	if l.Datapath == intent.DatapathNetdev && l.Encapsulation.Tunnelled() {
		return nil, fmt.Errorf("node address %s is on interface %s, which is no Open vSwitch bridge: with datapath netdev and"+
			" encapsulation %s it has to be on the local port of a bridge with datapath_type=netdev that holds the network card",
			l.TunnelIP, uplink.Name, l.Encapsulation)
	}
	return nil, nil
}

// ownNode returns this node's intent, or why it cannot be used yet.
func ownNode(s *intent.State, name string) (intent.Node, error) {
	n, ok := s.Nodes().Get(name)
	switch {
	case !ok:
		return n, fmt.Errorf("node %s is not known: has the API server been reached, and is --node-name right?", name)
	case len(n.Addresses) == 0:
		return n, fmt.Errorf("node %s has no InternalIP in its status", name)
	case len(n.Subnets) == 0:
		return n, fmt.Errorf("node %s has no podCIDR: does the controller manager run with --allocate-node-cidrs?", name)
	}
	return n, nil
}

// podCIDRs are the node's ranges in order.
func podCIDRs(n intent.Node) []netip.Prefix {
	ps := make([]netip.Prefix, len(n.Subnets))
	for i, s := range n.Subnets {
		ps[i] = s.Prefix
	}
	return ps
}
