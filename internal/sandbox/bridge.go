// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/sandbox/machine"
)

// bridgeNetwork is the reference pod network: on each node the bridge plugin with the node's pod
// subnets, and static routes to those of the others.
func (s *Sandbox) bridgeNetwork(ctx context.Context) error {
	nodes, err := s.waitNodes(ctx, s.Nodes(), "get their pod subnets", func(n *corev1.Node) bool {
		return len(n.Spec.PodCIDRs) > 0
	})
	if err != nil {
		return err
	}
	return each(ctx, s.Nodes(), func(ctx context.Context, node string) error {
		routes, err := s.podRoutes(node, nodes)
		if err != nil {
			return err
		}
		config, err := machine.Read(s.machineDir(node))
		if err != nil {
			return err
		}
		config.Uplink.Routes = routes
		if err := config.Write(s.machineDir(node)); err != nil {
			return err
		}
		if err := s.client(node).SetRoutes(ctx, routes); err != nil {
			return err
		}
		conflist, err := bridgeConflist(nodes[node].Spec.PodCIDRs)
		if err != nil {
			return err
		}
		return s.writeFile(node, "/etc/cni/net.d/10-bridge.conflist", conflist)
	})
}

// podRoutes lead to the pods of all other nodes.
func (s *Sandbox) podRoutes(node string, nodes map[string]*corev1.Node) ([]machine.Route, error) {
	var routes []machine.Route
	for _, other := range s.Nodes() {
		if other == node {
			continue
		}
		for _, cidr := range nodes[other].Spec.PodCIDRs {
			to, err := netip.ParsePrefix(cidr)
			if err != nil {
				return nil, fmt.Errorf("node %s: pod subnet: %w", other, err)
			}
			for _, via := range s.addresses(other) {
				if via.Is4() == to.Addr().Is4() {
					routes = append(routes, machine.Route{To: to, Via: via})
				}
			}
		}
	}
	return routes, nil
}

// bridgeConflist is the plugins' configuration for a node with these pod subnets.
func bridgeConflist(cidrs []string) (string, error) {
	type object = map[string]any
	var ranges [][]object
	var routes []object
	for _, cidr := range cidrs {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return "", err
		}
		ranges = append(ranges, []object{{"subnet": cidr}})
		everything := "0.0.0.0/0"
		if p.Addr().Is6() {
			everything = "::/0"
		}
		routes = append(routes, object{"dst": everything})
	}
	data, err := json.MarshalIndent(object{
		"cniVersion": "0.4.0", "name": "bridge",
		"plugins": []object{
			{
				// A pod reaches itself by way of its Service, too.
				"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
				"ipam": object{"type": "host-local", "ranges": ranges, "routes": routes},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}, "", "  ")
	return string(data) + "\n", err
}

// masqueradeRules hide the pods from all but pods and nodes.
func (s *Sandbox) masqueradeRules() string {
	var b strings.Builder
	b.WriteString("table inet coelan-sandbox {\n  chain postrouting {\n    type nat hook postrouting priority srcnat;\n")
	rule := func(family string, pods, nodes netip.Prefix, gateway netip.Addr) {
		fmt.Fprintf(&b, "    %[1]s saddr %[2]s %[1]s daddr != %[2]s %[1]s daddr != %[3]s masquerade\n", family, pods,
			nodes)
		fmt.Fprintf(&b, "    %[1]s saddr %[2]s %[1]s daddr %[3]s masquerade\n", family, pods, gateway)
	}
	if s.Family != IPv6 {
		rule("ip", podNets.v4, nodeNets.v4, host(fabricHost).v4)
	}
	if s.Family != IPv4 {
		rule("ip6", podNets.v6, nodeNets.v6, host(fabricHost).v6)
	}
	b.WriteString("  }\n}\n")
	return b.String()
}
