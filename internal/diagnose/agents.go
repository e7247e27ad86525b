// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"

	"coelan.io/coelan/internal/agentapi"
)

// Agents are the agents of a cluster.
type Agents interface {
	// Nodes are the names of the nodes that have an agent, sorted.
	Nodes(ctx context.Context) ([]string, error)
	// Query asks the agent of a node for path and decodes its answer into out. A body that is not
	// nil is posted as JSON.
	Query(ctx context.Context, node, path string, body, out any) error
	// Answering is the node that answers for a FloatingIP, of which another node's agent knows no
	// more than the address and the Port; empty if none does.
	Answering(ctx context.Context, f agentapi.TracedFloatingIP) (node string, err error)
}

// Status is what the agent of a node says of itself.
func Status(ctx context.Context, agents Agents, node string) (agentapi.Status, error) {
	var s agentapi.Status
	err := agents.Query(ctx, node, "/v1/status", nil, &s)
	return s, err
}

// Ports are the ports of a node's pods.
func Ports(ctx context.Context, agents Agents, node string) ([]agentapi.PortInfo, error) {
	var p []agentapi.PortInfo
	err := agents.Query(ctx, node, "/v1/ports", nil, &p)
	return p, err
}

// Networks are those in effect on a node.
func Networks(ctx context.Context, agents Agents, node string) ([]agentapi.NetworkInfo, error) {
	var n []agentapi.NetworkInfo
	err := agents.Query(ctx, node, "/v1/networks", nil, &n)
	return n, err
}

// Routers are those in effect on a node.
func Routers(ctx context.Context, agents Agents, node string) ([]agentapi.RouterInfo, error) {
	var r []agentapi.RouterInfo
	err := agents.Query(ctx, node, "/v1/routers", nil, &r)
	return r, err
}

// Services are what a node does for each Service.
func Services(ctx context.Context, agents Agents, node string) ([]agentapi.ServiceInfo, error) {
	var s []agentapi.ServiceInfo
	err := agents.Query(ctx, node, "/v1/services", nil, &s)
	return s, err
}

// PolicyStats are what the policies of a node's Ports have decided.
func PolicyStats(ctx context.Context, agents Agents, node string) ([]agentapi.PolicyStat, error) {
	var s []agentapi.PolicyStat
	err := agents.Query(ctx, node, "/v1/policystats", nil, &s)
	return s, err
}

// FloatingIPs are those of a node's Ports.
func FloatingIPs(ctx context.Context, agents Agents, node string) ([]agentapi.FloatingIPInfo, error) {
	var f []agentapi.FloatingIPInfo
	err := agents.Query(ctx, node, "/v1/floatingips", nil, &f)
	return f, err
}

// Gateways are the addresses that a node has as a gateway of Routers.
func Gateways(ctx context.Context, agents Agents, node string) ([]agentapi.GatewayInfo, error) {
	var g []agentapi.GatewayInfo
	err := agents.Query(ctx, node, "/v1/gateways", nil, &g)
	return g, err
}

// Egress are the addresses that Ports of several nodes are seen as, as a node knows them.
func Egress(ctx context.Context, agents Agents, node string) ([]agentapi.EgressInfo, error) {
	var e []agentapi.EgressInfo
	err := agents.Query(ctx, node, "/v1/egress", nil, &e)
	return e, err
}

// NextHops are the stations on external Networks that a node knows or looks for.
func NextHops(ctx context.Context, agents Agents, node string) ([]agentapi.NextHop, error) {
	var n []agentapi.NextHop
	err := agents.Query(ctx, node, "/v1/nexthops", nil, &n)
	return n, err
}

// Check compares what is on a node with what should be there.
func Check(ctx context.Context, agents Agents, node string) (agentapi.Check, error) {
	var c agentapi.Check
	err := agents.Query(ctx, node, "/v1/check", nil, &c)
	return c, err
}
