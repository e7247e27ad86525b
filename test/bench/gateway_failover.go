// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// Power cuts of the active node, and how often the pod sends meanwhile.
const (
	failoverRounds   = 10
	failoverInterval = 10 * time.Millisecond
	// failoverWatch is for how long answers may be missing, and failoverPause how long the nodes
	// agree before a power cut: the one that was cut off needs its sessions again.
	failoverWatch = 20 * time.Second
	failoverPause = 5 * time.Second
	// settled is how many answers come before a power cut, and after it.
	settled = 100
)

// gatewayFailover cuts the power of the node that is active for the address of a centralized
// gateway, by turns of two. A pod on a third node, which has the host outside but is not connected
// to its network, asks that host all the time.
func gatewayFailover(ctx context.Context) ([]Result, error) {
	e, err := startExternalBy(ctx, 3, 1, func(node int) string {
		if node == 0 {
			return "br-lan" // of no physical network
		}
		return externalBridge
	})
	defer e.Close()
	if err != nil {
		return nil, err
	}
	gateway := v1alpha1.RouterGateway{Network: externalNetwork, SNAT: v1alpha1.CentralizedSNAT}
	if err := e.API.SetRouterGateway(intent.DefaultRouterName, gateway, firstFloating.String()); err != nil {
		return nil, err
	}
	var silences []float64
	for range failoverRounds {
		active, err := e.awaitActive(ctx)
		if err != nil {
			return nil, err
		}
		gap, err := e.silence(ctx, active.Unplug)
		if err != nil {
			return nil, fmt.Errorf("power cut of %s: %w", active.Name, err)
		}
		silences = append(silences, milliseconds(gap))
		if err := active.Plug(); err != nil {
			return nil, err
		}
	}
	return []Result{
		absolute("gateway-failover-p50", "ms", percentile(silences, 0.5)),
		absolute("gateway-failover", "ms", slices.Max(silences)).atMost(1500, 1000),
	}, nil
}

// awaitActive is the active node, once both that may be agree on it: then the other one can take
// over.
func (e *external) awaitActive(ctx context.Context) (*lab.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, balanceTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	began := time.Time{}
	for {
		agreed := e.agreed(ctx)
		switch {
		case agreed == nil:
			began = time.Time{}
		case began.IsZero():
			began = time.Now()
		case time.Since(began) > failoverPause:
			return agreed, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.New("the nodes do not agree on an active one")
		case <-tick.C:
		}
	}
}

// agreed is the node that both others take for the active one; nil: they do not agree.
func (e *external) agreed(ctx context.Context) *lab.Node {
	name := ""
	for _, n := range e.Nodes {
		var list []agentapi.EgressInfo
		if err := n.Query(ctx, "/v1/egress", &list); err != nil || len(list) != 1 || list[0].Active == "" {
			return nil
		}
		if name != "" && list[0].Active != name {
			return nil
		}
		name = list[0].Active
	}
	i := slices.IndexFunc(e.Nodes, func(n *lab.Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return e.Nodes[i]
}

// silence is how long answers to the pod are missing around a change.
func (e *external) silence(ctx context.Context, change func() error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, failoverWatch)
	defer cancel()
	to := netip.AddrPortFrom(externalHost.Addr(), namePort)
	stream, err := probe.StartUDP(e.pods[0], e.host, to, to, failoverInterval)
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	if err := stream.Wait(ctx, settled); err != nil {
		return 0, err
	}
	if err := change(); err != nil {
		return 0, err
	}
	// Those that are on their way as the links are cut are few.
	if err := stream.Wait(ctx, settled); err != nil {
		return 0, err
	}
	report := stream.Stop()
	return report.Gap, errors.Join(report.Errors...)
}
