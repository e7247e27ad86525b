// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/test/lab"
)

// floor is a plain switch with the fewest flows that ask conntrack once for each packet: the least
// that any pipeline costs that depends on a packet's connection. It checks no sources, has no
// networks, and routes nothing.
type floor struct {
	name  string
	flows []string
}

// podFloors are those between two pods. The first only looks each packet up, the second also has
// conntrack translate what it has a translation for, as Services need, and the third commits all
// connections, as policies need.
var podFloors = []floor{
	{"floor-lookup", []string{
		"table=0,priority=1,ip,actions=ct(table=1)",
		"table=1,priority=0,actions=NORMAL",
	}},
	{"floor-nat", []string{
		"table=0,priority=1,ip,actions=ct(nat,table=1)",
		"table=1,priority=0,actions=NORMAL",
	}},
	{"floor-commit", []string{
		"table=0,priority=1,ip,actions=ct(table=1)",
		"table=1,priority=1,ct_state=+new+trk,ip,actions=ct(commit),NORMAL",
		"table=1,priority=0,actions=NORMAL",
	}},
}

// byFloor is the name of the one with a Service.
const byFloor = "floor"

// serviceFloor translates the Service's address to the server's, and commits only connections to
// it.
func serviceFloor(server netip.Addr) floor {
	balance := fmt.Sprintf("table=1,priority=1,ct_state=+new+trk,tcp,nw_dst=%s,tp_dst=%d,"+
		"actions=ct(commit,nat(dst=%s:%d)),NORMAL",
		serviceAddress.Addr(), serviceAddress.Port(), server, serverPort)
	return floor{byFloor, []string{
		"table=0,priority=1,ip,actions=ct(nat,table=1)",
		balance,
		"table=1,priority=0,actions=NORMAL",
	}}
}

// install adds the flows to a bridge.
func (f floor) install(ctx context.Context, n *lab.Node, bridge string) error {
	for _, flow := range f.flows {
		if _, err := n.OVS.Ofctl(ctx, "add-flow", bridge, flow); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

// floorContender has two hosts on a plain switch, on a node of its own, so that flows of other
// contenders are not in its datapath.
func floorContender(ctx context.Context) (*contender, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1, NoAgents: true})
	c := &contender{lab: l}
	if err != nil {
		return c, err
	}
	return c, c.addReferenceHosts(ctx, l.Nodes[0])
}

// podFloorContenders are the floors between two pods. There are none unless instructions are
// counted: the differences are smaller than those between two runs of a clock.
func podFloorContenders(ctx context.Context) ([]*contender, error) {
	if _, ok := counting(); !ok {
		return nil, nil
	}
	var all []*contender
	for _, f := range podFloors {
		c, err := floorContender(ctx)
		c.name = f.name
		if all = append(all, c); err != nil {
			return all, fmt.Errorf("%s: %w", f.name, err)
		}
		if err := f.install(ctx, c.lab.Nodes[0], lab.ReferenceBridge); err != nil {
			return all, err
		}
	}
	return all, nil
}

// serviceFloors starts the floor with a Service, if instructions are counted.
func serviceFloors() []starter {
	if _, ok := counting(); !ok {
		return nil
	}
	return []starter{{byFloor, serviceFloorContender}}
}

// serviceFloorContender is the floor with a Service. As with OVN, the client knows the server's MAC
// for the Service's address.
func serviceFloorContender(ctx context.Context) (*contender, error) {
	c, err := floorContender(ctx)
	if err != nil {
		return c, err
	}
	mac := net.HardwareAddr{0x0a, 0, 0, 0, 0, 1}
	if _, err := c.server.Run(ctx, "ip", "link", "set", "eth0", "address", mac.String()); err != nil {
		return c, err
	}
	if err := neighborOfService(ctx, c.client, mac); err != nil {
		return c, err
	}
	return c, serviceFloor(c.server.Address(lab.IPv4)).install(ctx, c.lab.Nodes[0], lab.ReferenceBridge)
}

// crossNodeFloor is two of Coelan's nodes, of which the agents have ended: between the two pods
// there are the fewest flows in place of Coelan's own. The kernels' rules for tunnels stay.
func crossNodeFloor(ctx context.Context) (*contender, error) {
	c, err := crossNodeCoelan(ctx)
	if err != nil {
		return c, err
	}
	pods := []*lab.Host{c.client, c.server}
	for i, n := range c.lab.Nodes {
		n.StopAgent()
		// Greater numbers are Open vSwitch's own.
		port, err := n.OVS.Vsctl(ctx, "--bare", "--columns=ofport", "find", "interface",
			fmt.Sprintf("ofport>=%d", datapath.FirstPodPort), "ofport<65280")
		if err != nil {
			return c, err
		}
		f := tunnelFloor(port, pods[i], c.lab.Nodes[1-i])
		if err := f.install(ctx, n, n.Config().Bridge); err != nil {
			return c, err
		}
	}
	return c, nil
}

// tunnelFloor leads what the pod at a port sends into the tunnel to the other node, and what comes
// out of it to the pod. Both ask conntrack, as Services need.
func tunnelFloor(port string, pod *lab.Host, other *lab.Node) floor {
	const tunnel = datapath.TunnelPort
	return floor{byFloor, []string{
		fmt.Sprintf("table=0,priority=65535,ip,in_port=%s,actions=ct(nat,zone=1,table=251)", port),
		fmt.Sprintf("table=0,priority=65535,ip,in_port=%d,actions=ct(nat,zone=1,table=251)", tunnel),
		fmt.Sprintf("table=251,in_port=%s,actions=set_field:%s->tun_dst,set_field:1->tun_id,output:%d", port,
			other.Address(lab.IPv4), tunnel),
		fmt.Sprintf("table=251,in_port=%d,actions=set_field:%s->eth_dst,output:%s", tunnel,
			reserved.PodMAC(pod.Address(lab.IPv4)).HardwareAddr(), port),
	}}
}
