// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovsdb"
)

// dataplane is the agent as the CNI server sees it.
type dataplane struct{ *Agent }

var _ cni.Dataplane = dataplane{}

// readyTimeout is how long an ADD waits for an agent that has just started, or an Open vSwitch that comes back. The
// runtime tries again, so the wait is short.
const readyTimeout = 5 * time.Second

// Attach makes the port and its flows at the same time: the flows name the port's number, which is known before Open
// vSwitch has the port.
func (d dataplane) Attach(ctx context.Context, at attachment.Attachment) error {
	if err := d.awaitReady(ctx); err != nil {
		return err
	}
	if err := d.names.lock(ctx, at.HostInterface); err != nil {
		return fmt.Errorf("port %s: %w", at.HostInterface, err)
	}
	defer d.names.unlock(at.HostInterface)
	port := make(chan error, 1)
	go func() { port <- d.db.EnsurePorts(ctx, d.cfg.Bridge, podPort(at)) }()
	flows := d.attachFlows(ctx, at)
	if err := errors.Join(<-port, flows); err != nil {
		return fmt.Errorf("attach %s: %w", at.PodRef(), err)
	}
	if err := setUp(at.HostInterface); err != nil {
		return fmt.Errorf("attach %s: %w", at.PodRef(), err)
	}
	return nil
}

// setUp sets an interface up, again: ovs-vswitchd, when it turns promiscuous mode on or off, writes all flags as it
// remembers them by name, and of an interface that had the name before, it may remember that it was down.
func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("interface %s: set up: %w", name, err)
	}
	return nil
}

func (d dataplane) attachFlows(ctx context.Context, at attachment.Attachment) error {
	state, err := d.intent.Update(func(tx *intent.Tx) error {
		tx.SetPort(d.port(at))
		return nil
	})
	if err != nil {
		return err
	}
	return d.flows.wait(ctx, state.Revision())
}

// awaitReady waits a little for the conditions to be met.
func (d dataplane) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		changed := d.conditions.changes()
		err := d.conditions.unmet()
		if err == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("agent is not ready: %w", err)
		}
	}
}

// detachTimeout is how long a DEL waits for a database that is away.
const detachTimeout = 3 * time.Second

// Detach returns when port and flows are gone. It succeeds also while Open vSwitch is away: what is left of a port without
// an attachment is removed as soon as it is seen.
func (d dataplane) Detach(ctx context.Context, at attachment.Attachment) error {
	if err := d.names.lock(ctx, at.HostInterface); err != nil {
		return fmt.Errorf("port %s: %w", at.HostInterface, err)
	}
	defer d.names.unlock(at.HostInterface)
	state, err := d.intent.Update(func(tx *intent.Tx) error { tx.DeletePort(at.Key.String()); return nil })
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, detachTimeout)
	defer cancel()
	err = d.db.DelPorts(bounded, d.cfg.Bridge, at.HostInterface)
	if err != nil && !errors.Is(err, ovsdb.ErrNotConnected) {
		return fmt.Errorf("detach %s: %w", at.PodRef(), err)
	}
	if d.flows.connected() {
		// Flows that cannot be removed now are removed by a later sync: the port is gone from the intent.
		_ = d.flows.wait(bounded, state.Revision())
	}
	return nil
}

// Check looks at the database and at the intent, not at each flow: a difference between intent and switch is the
// agent's own condition.
func (d dataplane) Check(ctx context.Context, at attachment.Attachment) error {
	if err := d.conditions.unmet(); err != nil {
		return fmt.Errorf("agent is not ready: %w", err)
	}
	ports, err := d.db.Ports(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(ports, func(p ovsdb.PortState) bool { return p.Name == at.HostInterface })
	switch {
	case i < 0:
		return fmt.Errorf("port %s of %s is missing on bridge %s", at.HostInterface, at.PodRef(), d.cfg.Bridge)
	case broken(ports[i]):
		return fmt.Errorf("port %s of %s has OpenFlow port %d instead of %d: %s",
			at.HostInterface, at.PodRef(), ports[i].Actual, at.OFPort, ports[i].Error)
	}
	if _, ok := d.intent.State().Ports().Get(at.Key.String()); !ok {
		return fmt.Errorf("%s has no flows on bridge %s", at.PodRef(), d.cfg.Bridge)
	}
	return nil
}

// Ready says why pods cannot be attached now.
func (d dataplane) Ready(context.Context) error {
	err := d.conditions.unmet()
	var unmet *unmetError
	if errors.As(err, &unmet) && limiting[unmet.condition] {
		return fmt.Errorf("%w: %w", cni.ErrLimited, err)
	}
	return err
}

// Node tells the CNI server what pods get from their node.
func (d dataplane) Node() (cni.Node, error) {
	s := d.intent.State()
	n, err := ownNode(s, d.opts.NodeName)
	if err != nil {
		return cni.Node{}, err
	}
	local := s.Local()
	if local.Node == "" {
		err := d.conditions.unmet()
		return cni.Node{}, fmt.Errorf("agent is not ready: %w", err)
	}
	return cni.Node{
		PodCIDRs: podCIDRs(n), MTU: local.MTU, TXOffload: local.Datapath == intent.DatapathSystem,
		NetworkID: intent.DefaultNetwork, Cluster: func() []netip.Prefix { return clusterRanges(s) },
	}, nil
}

// clusterRanges are the nodes' podCIDRs and addresses, and the ClusterIPs.
func clusterRanges(s *intent.State) []netip.Prefix {
	var list []netip.Prefix
	for n := range s.Nodes().All() {
		list = append(list, podCIDRs(n)...)
		for _, a := range n.Addresses {
			list = append(list, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	for r := range s.ServiceRanges().All() {
		list = append(list, r.Prefix)
	}
	return list
}
