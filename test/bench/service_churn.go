// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
	"coelan.io/coelan/test/lab"
)

// How many endpoints the Service has, and how many of them come and go, one after the other.
const (
	churnEndpoints = 1000
	churnRounds    = 50
)

// measureServiceChurn takes endpoints from a Service that has very many, and gives them back, one
// by one, and compares how long the bridge takes with a rewrite of all of the Service's groups: for
// a Service that chooses by connection, and for one that chooses by client and has groups that
// change bucket by bucket.
func measureServiceChurn(ctx context.Context) ([]Result, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1, NoAgents: true})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	n := l.Nodes[0]
	if err := n.OVS.AddBridge(ctx, syncBridge); err != nil {
		return nil, err
	}
	conn, err := openflow.Dial(ctx, "unix:"+n.OVS.MgmtSocket(syncBridge), openflow.ConnOptions{})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	c := &churn{
		store: intent.NewStore(), compiler: pipeline.New(), conn: conn,
		bridge: bridge.New(bridge.Options{Connect: func(context.Context) (bridge.Switch, error) { return conn, nil }}),
	}
	var results []Result
	for _, kind := range []struct {
		name     string
		affinity int
	}{{"connection", 0}, {"client", 3600}} {
		ours, reference, err := c.rounds(ctx, kind.affinity)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind.name, err)
		}
		results = append(results, paired("service-churn-"+kind.name, "ms", ours, reference))
	}
	return results, nil
}

// churn is a bridge with one Service.
type churn struct {
	store    *intent.Store
	compiler *pipeline.Compiler
	bridge   *bridge.Bridge
	conn     *openflow.Conn
}

// rounds returns, by turns, the milliseconds of a change of one endpoint, and of a
// rewrite of all groups.
func (c *churn) rounds(ctx context.Context, affinity int) (ours, reference []float64, err error) {
	v := intent.NodeService{
		Namespace: serviceNamespace, Name: "churn", Router: intent.DefaultRouterName, AffinitySeconds: affinity,
		Ports: []intent.NodeServicePort{{Protocol: intent.TCP, Port: serviceAddress.Port(),
			ClusterIP: serviceAddress.Addr()}},
	}
	var all []intent.Endpoint
	for i := range churnEndpoints {
		all = append(all, intent.Endpoint{Address: nth(netip.MustParseAddr("10.128.0.0"), i), Port: serverPort})
	}
	if _, _, err := c.set(ctx, v, all); err != nil {
		return nil, nil, err
	}
	for i := range churnRounds {
		gone := i * len(all) / churnRounds
		for _, endpoints := range [][]intent.Endpoint{append(all[:gone:gone], all[gone+1:]...), all} {
			took, groups, err := c.set(ctx, v, endpoints)
			if err != nil {
				return nil, nil, err
			}
			var messages []openflow.Message
			for i := range groups {
				messages = append(messages, &openflow.GroupMod{Command: openflow.GroupModify, Group: groups[i]})
			}
			start := time.Now()
			if err := c.conn.Bundle(ctx, messages); err != nil {
				return nil, nil, err
			}
			ours, reference = append(ours, took), append(reference, milliseconds(time.Since(start)))
		}
	}
	return ours, reference, nil
}

// set gives the Service its endpoints and returns the milliseconds that the bridge took,
// and the Service's groups.
func (c *churn) set(ctx context.Context, v intent.NodeService,
	endpoints []intent.Endpoint,
) (float64, []openflow.Group, error) {
	v.Ports[0].Endpoints = endpoints
	state, err := c.store.Update(func(tx *intent.Tx) error {
		tx.Replace(intent.Objects{
			Local: intent.Local{
				Node: "n1", Datapath: intent.DatapathNetdev, Encapsulation: intent.VXLAN,
				TunnelIP: netip.MustParseAddr("192.168.33.11"), MTU: 1450, ServiceMode: intent.NativeServices,
			},
			Routers: []intent.Router{{Name: intent.DefaultRouterName, ID: intent.DefaultRouter}},
			Networks: []intent.Network{{
				Name: intent.DefaultNetworkName, ID: intent.DefaultNetwork, VNI: uint32(intent.DefaultNetwork),
				Router: intent.DefaultRouterName,
			}},
			NodeServices: []intent.NodeService{v},
		})
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	desired := c.compiler.Compile(pipeline.Input{State: state})
	if problems := c.compiler.Problems(); len(problems) > 0 {
		return 0, nil, problems[0]
	}
	start := time.Now()
	if _, err := c.bridge.Sync(ctx, desired); err != nil {
		return 0, nil, err
	}
	took := milliseconds(time.Since(start))
	return took, desired.Get("service/" + v.Namespace + "/" + v.Name).Groups, nil
}
