// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"

	"coelan.io/coelan/internal/agent"
)

// Agents are the agents of a cluster.
type Agents interface {
	// Nodes are the names of the nodes that have an agent, sorted.
	Nodes(ctx context.Context) ([]string, error)
	// Query asks the agent of a node for path and decodes its answer into out. A body that is not nil is posted as JSON.
	Query(ctx context.Context, node, path string, body, out any) error
}

// Status is what the agent of a node says of itself.
func Status(ctx context.Context, agents Agents, node string) (agent.Status, error) {
	var s agent.Status
	err := agents.Query(ctx, node, "/v1/status", nil, &s)
	return s, err
}

// Ports are the ports of a node's pods.
func Ports(ctx context.Context, agents Agents, node string) ([]agent.PortInfo, error) {
	var p []agent.PortInfo
	err := agents.Query(ctx, node, "/v1/ports", nil, &p)
	return p, err
}

// Networks are those in effect on a node.
func Networks(ctx context.Context, agents Agents, node string) ([]agent.NetworkInfo, error) {
	var n []agent.NetworkInfo
	err := agents.Query(ctx, node, "/v1/networks", nil, &n)
	return n, err
}

// Routers are those in effect on a node.
func Routers(ctx context.Context, agents Agents, node string) ([]agent.RouterInfo, error) {
	var r []agent.RouterInfo
	err := agents.Query(ctx, node, "/v1/routers", nil, &r)
	return r, err
}

// Services are what a node does for each Service.
func Services(ctx context.Context, agents Agents, node string) ([]agent.ServiceInfo, error) {
	var s []agent.ServiceInfo
	err := agents.Query(ctx, node, "/v1/services", nil, &s)
	return s, err
}

// PolicyStats are what the policies of a node's Ports have decided.
func PolicyStats(ctx context.Context, agents Agents, node string) ([]agent.PolicyStat, error) {
	var s []agent.PolicyStat
	err := agents.Query(ctx, node, "/v1/policystats", nil, &s)
	return s, err
}

// Check compares what is on a node with what should be there.
func Check(ctx context.Context, agents Agents, node string) (agent.Check, error) {
	var c agent.Check
	err := agents.Query(ctx, node, "/v1/check", nil, &c)
	return c, err
}
