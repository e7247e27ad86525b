// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/hostnet"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/unixctl"
	"coelan.io/coelan/openflow"
)

// watchNodes makes intent of the nodes and remembers them.
func (a *Agent) watchNodes(ctx context.Context) error {
	return a.opts.Cluster.WatchNodes(ctx, func(nodes []*corev1.Node) {
		translated := a.keepOwn(a.translate(nodes))
		_, err := a.intent.Update(func(tx *intent.Tx) error { tx.ReplaceNodes(translated); return nil })
		if err != nil {
			a.log.Error("nodes", "err", err)
			return
		}
		a.nodesHeard.Store(true)
		a.tellServices()
		a.view.Touch()
		a.kick()
		a.checkRanges()
		if err := saveNodes(a.store, nodes); err != nil {
			// The agent works on; only a start without the API server would miss this change.
			a.log.Error("nodes are not remembered", "err", err)
		}
	})
}

// keepOwn adds what was known of this node when its object has vanished or has become useless: the pods that run here
// still need their gateway. New pods are refused, see ownProblem.
func (a *Agent) keepOwn(nodes []intent.Node) []intent.Node {
	last, ok := a.intent.State().Nodes().Get(a.opts.NodeName)
	i := slices.IndexFunc(nodes, func(n intent.Node) bool { return n.Name == a.opts.NodeName })
	vanished := i < 0 || len(nodes[i].Addresses) == 0 || len(nodes[i].Subnets) == 0
	a.mu.Lock()
	a.vanished = ok && vanished
	a.mu.Unlock()
	switch {
	case !ok || !vanished:
		return nodes
	case i < 0:
		return append(nodes, last)
	}
	if len(nodes[i].Addresses) == 0 {
		nodes[i].Addresses = last.Addresses
	}
	if len(nodes[i].Subnets) == 0 {
		nodes[i].Subnets = last.Subnets
	}
	return nodes
}

// watchHost follows the condition of the host's kernel.
func (a *Agent) watchHost(ctx context.Context) error {
	return a.host.Watch(ctx, func(s hostnet.Status) {
		var err error
		if !s.Synced {
			err = errors.New(cmp.Or(s.Error, "not configured yet"))
		}
		a.conditions.set(condHost, err)
	})
}

// dbConnected and dbLost follow the connection to the database.
func (a *Agent) dbConnected() {
	a.metrics.connected("database")
	a.bridgeAsked.Store(false)
	a.checked.Store(false)
	a.kick()
}

func (a *Agent) dbLost(err error) {
	if a.ending.Load() {
		return
	}
	a.checked.Store(false)
	a.conditions.set(condOVS, err)
	a.kick()
}

// switchReports takes what the switch says unasked: a port is open some time before the database says so, and a policy has
// denied a packet.
func (a *Agent) switchReports(m openflow.Message) {
	switch m := m.(type) {
	case *openflow.PortStatus:
		if m.Reason == openflow.PortAdded {
			a.db.PortAdded(m.Port.Name, int(m.Port.No))
		}
	case *openflow.PacketIn2:
		a.noteDenied(m)
	}
}

// switchConnected and switchLost follow the connection to the bridge. A new one means that ovs-vswitchd has restarted:
// its flows are gone, and so may be interfaces that it made.
func (a *Agent) switchConnected() {
	a.metrics.connected("switch")
	a.checked.Store(false)
	a.flows.kick()
	a.kick()
}

func (a *Agent) switchLost(err error) {
	if a.ending.Load() {
		return
	}
	a.checked.Store(false)
	a.flows.lost(fmt.Errorf("bridge %s does not answer: %w", a.cfg.Bridge, err))
	a.kick()
}

// translate makes intent of nodes, and tells once about what cannot be used.
func (a *Agent) translate(objects []*corev1.Node) []intent.Node {
	nodes, problems := translate.Nodes(objects)
	a.mu.Lock()
	old := a.problems
	a.problems, a.nodes = problems, objects
	for _, o := range objects {
		if o.Name == a.opts.NodeName {
			a.nodeUID = string(o.UID)
		}
	}
	a.mu.Unlock()
	for _, p := range problems {
		if !slices.Contains(old, p) {
			a.log.Warn("a value of a Node object is left out", "err", p)
		}
	}
	return nodes
}

// ownProblem is what is wrong with this node's own object.
func (a *Agent) ownProblem() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.problems {
		if p.Object == "node "+a.opts.NodeName {
			return p
		}
	}
	if a.vanished {
		return fmt.Errorf("node %s has vanished from the API; its pods stay connected, new ones are refused", a.opts.NodeName)
	}
	return nil
}

// checkRanges tells when pods have addresses from ranges that their node no longer has: other nodes have lost the way.
func (a *Agent) checkRanges() {
	node, ok := a.intent.State().Nodes().Get(a.opts.NodeName)
	if !ok || len(node.Subnets) == 0 {
		return
	}
	var strangers []string
	for _, at := range a.store.List() {
		fromNode := at.NodeAddresses
		if !at.BlockSpace {
			fromNode = slices.Concat(fromNode, at.Addresses)
		}
		if slices.ContainsFunc(fromNode, func(p netip.Prefix) bool { return !slices.Contains(podCIDRs(node), p.Masked()) }) {
			strangers = append(strangers, at.PodRef())
		}
	}
	if len(strangers) == 0 {
		return
	}
	err := fmt.Errorf("%d pods have addresses outside of the node's podCIDRs %v, which were changed: delete these pods, so"+
		" that they start anew; the first is %s", len(strangers), podCIDRs(node), strangers[0])
	a.log.Error("podCIDRs were changed", "err", err)
	a.nodeEvent("PodCIDRChanged", err)
}

// nodeEvent tells by an Event what is wrong with this node; the same only once. Before the node's object was seen there
// is nothing to attach an Event to.
func (a *Agent) nodeEvent(reason string, err error) {
	a.mu.Lock()
	uid, again := a.nodeUID, a.warned == err.Error()
	if uid != "" {
		a.warned = err.Error()
	}
	a.mu.Unlock()
	if uid != "" && !again {
		a.opts.Events.NodeWarning(a.opts.NodeName, uid, reason, err.Error())
	}
}

// neighbourSetter writes ovs-vswitchd's tunnel neighbours and routes. While it does not run there is nothing to write:
// everything is written again when it is back.
type neighbourSetter struct{ vswitchd *unixctl.Client }

// SetNeighbour implements hostnet.TunnelTables.
func (s neighbourSetter) SetNeighbour(ctx context.Context, bridge string, ip netip.Addr, mac net.HardwareAddr) error {
	_, err := s.vswitchd.Call(ctx, "tnl/neigh/set", bridge, ip.String(), mac.String())
	return ifRunning(err)
}

// HostRoutes implements hostnet.TunnelTables. Between two calls ovs-vswitchd's main loop goes round, in which it takes
// notice of the kernel's changes.
func (s neighbourSetter) HostRoutes(ctx context.Context) ([]hostnet.TunnelRoute, error) {
	found, err := s.vswitchd.HostRoutes(ctx)
	routes := make([]hostnet.TunnelRoute, 0, len(found))
	for _, r := range found {
		routes = append(routes, hostnet.TunnelRoute(r))
	}
	return routes, ifRunning(err)
}

// SetRoute implements hostnet.TunnelTables.
func (s neighbourSetter) SetRoute(ctx context.Context, r hostnet.TunnelRoute) error {
	return ifRunning(s.vswitchd.SetRoute(ctx, unixctl.Route(r)))
}

// DeleteRoute implements hostnet.TunnelTables.
func (s neighbourSetter) DeleteRoute(ctx context.Context, dst netip.Addr) error {
	return ifRunning(s.vswitchd.DeleteRoute(ctx, dst))
}

func ifRunning(err error) error {
	if errors.Is(err, unixctl.ErrNotRunning) {
		return nil
	}
	return err
}
