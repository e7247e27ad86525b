// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovs/failover"
	"coelan.io/coelan/internal/backend/ovs/neighbours"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/intent"
)

// FloatingIPs are those of this node's Ports, and those of Services that the node has been chosen
// to answer for, with what has become of them.
func (b *Backend) FloatingIPs() []agentapi.FloatingIPInfo {
	infos, v, seen := []agentapi.FloatingIPInfo{}, b.external.view(), map[string]bool{}
	add := func(f intent.FloatingIP) {
		if seen[f.Name] {
			return
		}
		seen[f.Name] = true
		_, problem := pipeline.InboundOf(v.in, f)
		_, accepted := v.accepted.FloatingIPs().Get(f.Name)
		namespace, name, _ := strings.Cut(f.Name, "/")
		infos = append(infos, agentapi.FloatingIPInfo{
			Namespace: namespace, Name: name, Port: f.Port, Service: f.Service,
			ExternalAddress: v.address(f.Network, f.Address, accepted, problem),
		})
	}
	for p := range v.in.State.PortsAt(b.Node) {
		for f := range v.in.State.FloatingIPsOf(p.ObjectKey()) {
			add(f)
		}
	}
	for f := range v.in.State.ChosenFloatingIPs() {
		add(f)
	}
	return infos
}

// Gateways are the addresses that this node has as a gateway of Routers, with what has become of
// them, and how much is translated.
func (b *Backend) Gateways(ctx context.Context) ([]agentapi.GatewayInfo, error) {
	translations, err := b.tracking.translations(ctx)
	if err != nil {
		return nil, err
	}
	infos, v, accepted := []agentapi.GatewayInfo{}, b.external.view(), map[intent.GatewayAddress]bool{}
	for g := range v.accepted.GatewayAddressesAt(b.Node) {
		accepted[g] = true
	}
	for g := range v.in.State.GatewayAddressesAt(b.Node) {
		_, problem := pipeline.InboundOfGateway(v.in, g)
		info := agentapi.GatewayInfo{
			Router: g.Router, Routed: g.Routed,
			ExternalAddress: v.address(g.Network, g.Address, accepted[g], problem),
		}
		if t, known := translations[g.Router]; known && !g.Routed {
			info.Translations = &t
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// EgressAddresses are all of the cluster, with what this node knows and does of them. One that the
// node is not active for is not in effect here, which is no problem.
func (b *Backend) EgressAddresses() []agentapi.EgressInfo {
	infos, v := []agentapi.EgressInfo{}, b.external.view()
	for e := range v.in.State.EgressAddresses().All() {
		seen := b.external.egress.state(failover.Key{Network: e.Network, Address: e.Address})
		info := agentapi.EgressInfo{
			Egress: e.Egress, Router: e.Router, Nodes: append([]string{}, e.Nodes...), Leaving: e.Leaving,
			Active: seen.Active, Reported: e.Active, Failback: e.Failback,
			ExternalAddress: agentapi.ExternalAddress{Network: e.Network, Address: e.Address},
		}
		if seen.Active == b.Node {
			_, problem := pipeline.InboundOfEgress(v.in, e)
			if problem == nil && seen.Silent {
				problem = errSilent
			}
			_, accepted := v.accepted.EgressAddress(e.Network, e.Address)
			info.ExternalAddress = v.address(e.Network, e.Address, accepted, problem)
		}
		infos = append(infos, info)
	}
	return infos
}

// errSilent is why an active node does not answer.
var errSilent = errors.New("another node is to become active")

// NextHops are those that this node knows, or looks for, on external Networks.
func (b *Backend) NextHops() []agentapi.NextHop {
	infos := []agentapi.NextHop{}
	down := map[neighbours.Key]bool{}
	for k := range b.external.nextHops.Down() {
		down[neighbours.Key{Network: k.Network, Address: k.NextHop}] = true
	}
	for _, n := range b.external.resolver.Neighbours() {
		info := nextHopInfo(n)
		info.Down = down[n.Key]
		infos = append(infos, info)
	}
	return infos
}

func nextHopInfo(n neighbours.Neighbour) agentapi.NextHop {
	info := agentapi.NextHop{Network: n.Network, Address: n.Address, Gateway: n.Gateway, Silent: n.Silent}
	if n.MAC != (intent.MAC{}) {
		info.MAC = n.MAC.String()
	}
	return info
}

// externalView is what a node has and knows of external Networks at one time.
type externalView struct {
	in pipeline.Input
	// accepted is the State without what the switch refuses.
	accepted *intent.State
	// lost is why there are no flows on the switch; empty: there are.
	lost     string
	sources  map[neighbours.Key]intent.MAC // that the node answers for
	nextHops map[neighbours.Key]agentapi.NextHop
}

func (e *external) view() externalView {
	v := externalView{
		in: e.input(), accepted: e.flows.effective(), sources: e.resolver.Sources(),
		nextHops: map[neighbours.Key]agentapi.NextHop{},
	}
	if !e.flows.connected() {
		v.lost = cmp.Or(e.flows.status().Error, "the flows are not on the bridge yet")
	}
	for _, n := range e.resolver.Neighbours() {
		v.nextHops[n.Key] = nextHopInfo(n)
	}
	return v
}

// answers reports whether the node's bridge answers for an address of an external Network.
func (v externalView) answers(network string, a netip.Addr) bool {
	_, ok := v.sources[neighbours.Key{Network: network, Address: a}]
	return ok && v.lost == ""
}

// address is what has become of an address that the node should answer for. The problem is that of
// compiling it; nil: there is none.
func (v externalView) address(network string, a netip.Addr, accepted bool, problem error) agentapi.ExternalAddress {
	info := agentapi.ExternalAddress{Network: network, Address: a}
	switch {
	case v.lost != "":
		info.Problem = v.lost
	case !accepted:
		info.Problem = "the switch refuses it; coelan status says why"
	case problem != nil:
		info.Problem = problem.Error()
	case !v.answers(network, a):
		info.Problem = "its flows are being written"
	default:
		info.InEffect, info.MAC = true, v.sources[neighbours.Key{Network: network, Address: a}].String()
	}
	hop := pipeline.NextHop(v.in, network, a, netip.Addr{})
	if known, ok := v.nextHops[neighbours.Key{Network: network, Address: hop.Address}]; ok {
		info.NextHop = &known
	}
	return info
}

// externalCollector shows how many addresses of external Networks this node answers for.
type externalCollector struct{ external *external }

var externalAddressesDesc = prometheus.NewDesc("coelan_external_addresses",
	"Addresses of external Networks that this node answers for, by kind: floating_ip, gateway or egress.",
	[]string{"network", "kind"}, nil)

// Describe implements prometheus.Collector.
func (c *externalCollector) Describe(ch chan<- *prometheus.Desc) { ch <- externalAddressesDesc }

// Collect implements prometheus.Collector. While the switch is away there is nothing to show.
func (c *externalCollector) Collect(ch chan<- prometheus.Metric) {
	if !c.external.flows.connected() {
		return
	}
	type series struct{ network, kind string }
	count, state := map[series]int{}, c.external.intent.State()
	for key := range c.external.resolver.Sources() {
		count[series{key.Network, kindOfAddress(state, key)}]++
	}
	for s, n := range count {
		ch <- prometheus.MustNewConstMetric(externalAddressesDesc, prometheus.GaugeValue, float64(n), s.network, s.kind)
	}
}

// kindOfAddress is what an address of an external Network is for.
func kindOfAddress(s *intent.State, key neighbours.Key) string {
	if _, ok := s.EgressAddress(key.Network, key.Address); ok {
		return "egress"
	}
	for f := range s.FloatingIPsAt(key.Address) {
		if f.Network == key.Network {
			return "floating_ip"
		}
	}
	return "gateway"
}
