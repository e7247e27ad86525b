// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovs/cards"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/retry"
)

// Bounds of one reconciliation, and the pause after failed ones.
const (
	reconcileTimeout    = 15 * time.Second
	minReconcileBackoff = 100 * time.Millisecond
	maxReconcileBackoff = 5 * time.Second
)

// geneveOverhead is what OVN's tunnels add to what hostnet reckons with for tunnels: the option of
// Geneve that has the logical ports (RFC 8926, section 3.5; 8 bytes).
const geneveOverhead = 8

// minIPv6MTU is what every IPv6 link must carry (RFC 8200, section 5).
const minIPv6MTU = 1280

// The external_ids of the whole Open vSwitch by which ovn-controller is configured
// (ovn-controller(8)).
const (
	idSystem      = "system-id"
	idRemote      = "ovn-remote"
	idEncapType   = "ovn-encap-type"
	idEncapIP     = "ovn-encap-ip"
	idMappings    = "ovn-bridge-mappings"
	encapOfTunnel = "geneve"
)

// status is what the last reconciliations found.
type status struct {
	// asked is true once Open vSwitch was asked for its version since the database was connected.
	asked  atomic.Bool
	ending atomic.Bool

	mu   sync.Mutex
	info ovsdb.Info
	left string
	// mappings are the bridges of physical networks, by their names; nil: not known yet.
	mappings map[string]string
	bridges  []string
}

// reconcileLoop brings everything to what it should be, whenever something may have changed it.
func (b *Backend) reconcileLoop(ctx context.Context) error {
	b.Hooks.Begin(ctx)
	changes, stop := b.db.Watch()
	defer stop()
	loop := b.Monitor.Loop("reconcile")
	backoff := retry.New(minReconcileBackoff, maxReconcileBackoff)
	for {
		done := loop.Step()
		err := b.reconcile(ctx)
		done()
		again := backoff.After(err)
		select {
		case <-ctx.Done():
			return nil
		case <-b.wake:
		case <-changes:
		case <-again:
		}
	}
}

// reconcile goes through the conditions in order and stops at the first that cannot be met.
func (b *Backend) reconcile(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	node, err := backend.OwnNode(b.Intent.State(), b.Node)
	if err != nil || !b.logical.Known() {
		// Nothing to try again: the next change of the nodes comes by itself.
		return nil //nolint:nilerr // the agent has a condition of its own for it
	}
	err = b.ask(ctx)
	b.Conditions.Set(condOVS, err)
	if err != nil {
		b.Hooks.Warn("NetworkNotReady", err)
		return err
	}
	err = b.reconcileBridge(ctx, node)
	b.Conditions.Set(condBridge, err)
	if err != nil {
		b.Hooks.Warn("NetworkNotReady", err)
		return err
	}
	err = errors.Join(b.ports.ensure(ctx), b.ports.sweep(ctx, b.Config.GatewayInterface, machinePort))
	b.setLeft(err)
	b.Hooks.Reconciled(err)
	return err
}

// ask asks once for each connection whether Open vSwitch runs and is new enough.
func (b *Backend) ask(ctx context.Context) error {
	if b.status.asked.Load() {
		return nil
	}
	info, err := b.db.Info(ctx)
	if err != nil {
		return err
	}
	b.status.mu.Lock()
	b.status.info = info
	b.status.mu.Unlock()
	b.status.asked.Store(true)
	return nil
}

// reconcileBridge has ovn-controller configured where that is asked for, and the management port
// and the host's kernel as they should be.
func (b *Backend) reconcileBridge(ctx context.Context, node intent.Node) error {
	if err := b.configure(ctx, node); err != nil {
		return err
	}
	if err := b.ensureMachine(ctx, node); err != nil {
		return err
	}
	bridges, err := b.db.Bridges(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(bridges, func(s ovsdb.BridgeState) bool { return s.Name == b.Config.Bridge })
	if i < 0 && b.logical.Trunk() {
		return fmt.Errorf("bridge %s does not exist: "+machineBridge, b.Config.Bridge)
	}
	if i < 0 {
		return fmt.Errorf("bridge %s does not exist: ovn-controller makes it; does it run on this node, and has the database "+
			"of Open vSwitch the external_ids %s, %s and %s?", b.Config.Bridge, idRemote, idEncapType, idEncapIP)
	}
	if err := b.avoidAborts(ctx, bridges[i].Datapath); err != nil {
		return err
	}
	if err := b.followMappings(ctx, bridges); err != nil {
		return err
	}
	local, uplink, err := b.local(b.Config, node, intent.Datapath(bridges[i].Datapath))
	if err != nil {
		return err
	}
	state, err := b.Intent.Update(func(tx *intent.Tx) error { tx.SetLocal(local); return nil })
	if err != nil {
		return err
	}
	if err := b.Attachments.Withhold(names.ManagementAddresses(node)...); err != nil {
		return err
	}
	management := b.management(node)
	if management.ExternalIDs[idInterface] == "" {
		return fmt.Errorf("node %s has no annotation %s yet: does coelan-controller run, and does Neutron take the node's port?",
			node.Name, v1alpha1.AnnotationNeutronPort)
	}
	if err := b.ports.ensurePort(ctx, management); err != nil {
		return err
	}
	bridge, err := b.uplinkBridge(ctx, uplink.Name, bridges, local.Datapath)
	if err != nil {
		return err
	}
	return b.host.set(state, uplink, bridge)
}

// uplinkBridge is the one of the bridges with the name of the interface that has the node's
// address.
func (b *Backend) uplinkBridge(
	ctx context.Context, name string, bridges []ovsdb.BridgeState, datapath intent.Datapath,
) (uplinkBridge, error) {
	i := slices.IndexFunc(bridges, func(s ovsdb.BridgeState) bool { return s.Name == name })
	if i < 0 {
		return uplinkBridge{}, nil
	}
	own, err := b.db.Ports(ctx)
	if err != nil {
		return uplinkBridge{}, err
	}
	ports := slices.DeleteFunc(slices.Clone(bridges[i].Ports), func(p string) bool {
		return p == name || slices.ContainsFunc(own, func(s ovsdb.PortState) bool { return s.Name == p })
	})
	return uplinkBridge{
		exists: true, remembered: bridges[i].ExternalIDs[cards.ID] != "",
		cards: append(ports, b.cards.Names()...), switchOnly: b.cards.SwitchOnly(datapath),
	}, nil
}

// configure gives ovn-controller its configuration, if that is asked for. Keys of others stay.
func (b *Backend) configure(ctx context.Context, node intent.Node) error {
	if b.Config.Backend.Southbound == "" || b.logical.Trunk() {
		return nil
	}
	ids, err := b.db.ExternalIDs(ctx)
	if err != nil {
		return err
	}
	want := map[string]string{
		idRemote: b.Config.Backend.Southbound, idEncapType: encapOfTunnel, idEncapIP: node.Addresses[0].String(),
	}
	if ids[idSystem] == "" {
		want[idSystem] = node.Name
	}
	if b.Config.Datapath != config.DatapathAuto {
		want["ovn-bridge-datapath-type"] = string(b.Config.Datapath)
	}
	if len(b.Config.BridgeMappings) > 0 {
		want[idMappings] = mappingsText(b.Config.BridgeMappings)
	}
	return b.db.SetExternalIDs(ctx, want)
}

// local computes how this node takes part with a configuration, from its Node object and its
// interfaces.
func (b *Backend) local(c config.Config, node intent.Node, datapath intent.Datapath) (
	intent.Local, hostnet.Uplink, error,
) {
	address := node.Addresses[0]
	l := intent.Local{
		Node: node.Name, Datapath: datapath, Encapsulation: intent.Geneve, TunnelIP: address, MTU: c.MTU,
		ServiceMode: intent.ServiceMode(c.Services.Mode), PolicyMode: intent.PolicyMode(c.Policy.Mode),
		Gateway: c.GatewayInterface,
	}
	uplink, err := b.host.find(address)
	if err != nil {
		return l, uplink, fmt.Errorf("node %s: %w; does the Node object name another host?", node.Name, err)
	}
	largest := hostnet.PodMTU(uplink.MTU, true, address) - geneveOverhead
	if b.logical.Trunk() {
		largest = uplink.MTU // the tunnels are beyond the machine
	}
	switch {
	case b.logical.Trunk() && uplink.Name != c.Bridge:
		return l, uplink, fmt.Errorf("the node's address %s is on interface %s: "+machineBridge, address, uplink.Name)
	case l.MTU == 0:
		l.MTU = largest
	case l.MTU > largest:
		return l, uplink, fmt.Errorf("mtu: %d is too large, interface %s with MTU %d carries pods' packets of at most %d bytes",
			l.MTU, uplink.Name, uplink.MTU, largest)
	}
	if v6 := slices.ContainsFunc(node.Subnets, func(s intent.Subnet) bool {
		return s.Prefix.Addr().Is6()
	}); v6 && l.MTU < minIPv6MTU {
		return l, uplink, fmt.Errorf("interface %s with MTU %d leaves pods %d bytes, but IPv6 needs %d", uplink.Name,
			uplink.MTU, l.MTU, minIPv6MTU)
	}
	return l, uplink, nil
}

// management is the port by which the node's kernel reaches pods.
func (b *Backend) management(node intent.Node) ovsdb.Port {
	addresses := names.ManagementAddresses(node)
	p := ovsdb.Internal(b.Config.GatewayInterface, 0, names.ManagementMAC(addresses).HardwareAddr(),
		b.Intent.State().Local().MTU)
	p.AnyNumber = true
	logical, vlan := b.logical.Management(node.Name)
	p.ExternalIDs, p.VLAN = map[string]string{idInterface: logical}, vlan
	return p
}

// setLeft notes and logs what of the pods' ports could not be restored; it is tried again.
func (b *Backend) setLeft(err error) {
	var text string
	if err != nil {
		text = err.Error()
	}
	b.status.mu.Lock()
	news := text != b.status.left
	b.status.left = text
	b.status.mu.Unlock()
	if err != nil && news {
		b.Log.Error("cannot reconcile the ports of the bridge with the node's pods, retrying", "err", err)
	}
}

// zeroSNAT is the capability of translating a connection to itself, unless another one has its
// addresses and ports. ovn-controller has it done to all connections that it commits.
const zeroSNAT = "ct_zero_snat"

// zeroSNATMended is the first version of Open vSwitch of which all releases' userspace datapath has
// one entry for such a connection. Older ones have two, and ovs-vswitchd aborts when it finds the
// second one alone: if a client uses a port again just after the connection has timed out.
var zeroSNATMended = ovsdb.Version{3, 3, 0}

// avoidAborts has ovn-controller do without what ovs-vswitchd aborts by.
func (b *Backend) avoidAborts(ctx context.Context, datapath string) error {
	b.status.mu.Lock()
	version := b.status.info.Version
	b.status.mu.Unlock()
	if datapath != string(config.DatapathNetdev) || !version.Less(zeroSNATMended) {
		return nil
	}
	return b.db.HideCapability(ctx, datapath, zeroSNAT)
}

// followMappings reads which bridges lead to physical networks.
func (b *Backend) followMappings(ctx context.Context, bridges []ovsdb.BridgeState) error {
	ids, err := b.db.ExternalIDs(ctx)
	if err != nil {
		return err
	}
	mappings := parseMappings(ids[idMappings])
	var list []string
	for _, s := range bridges {
		list = append(list, s.Name)
	}
	b.status.mu.Lock()
	changed := b.status.mappings == nil || mappingsText(mappings) != mappingsText(b.status.mappings) ||
		!slices.Equal(list, b.status.bridges)
	b.status.mappings, b.status.bridges = mappings, list
	b.status.mu.Unlock()
	if changed {
		b.Hooks.UplinksChanged()
	}
	return nil
}

// parseMappings reads NETWORK:BRIDGE,… as ovn-controller does. What it cannot read is left out.
func parseMappings(text string) map[string]string {
	mappings := map[string]string{}
	for _, part := range strings.Split(text, ",") {
		if physical, bridge, ok := strings.Cut(part, ":"); ok && physical != "" && bridge != "" {
			mappings[physical] = bridge
		}
	}
	return mappings
}

func mappingsText(mappings map[string]string) string {
	var parts []string
	for physical, bridge := range mappings {
		parts = append(parts, physical+":"+bridge)
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
