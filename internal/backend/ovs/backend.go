// SPDX-License-Identifier: Apache-2.0

// Package ovs is the backend that brings about a node's intent by Open vSwitch and the node's
// kernel: the flows of the integration bridge, its ports, the wires to physical networks, and what
// the kernel does for pods and Services.
//
// Everything is level-triggered. Whatever restarts, the backend compares what is with
// what should be and writes the difference: after a restart of the agent with nothing
// changed, it writes nothing.
package ovs

import (
	"context"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/kernelview"
	"coelan.io/coelan/internal/backend/ovs/appctl"
	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/backend/ovs/cards"
	"coelan.io/coelan/internal/backend/ovs/foreignbridge"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/conditions"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/trigger"
	"coelan.io/coelan/openflow"
)

// The names of the conditions.
const (
	condOVS    = "ovs"    // Open vSwitch runs and can be used
	condBridge = "bridge" // bridge, tunnel and gateway exist
	condFlows  = "flows"  // the flows on the bridge are those of the newest intent
	condHost   = "host"   // the host's kernel is configured
)

// Conditions are those that a Backend sets, in the order in which they come true at a start.
func Conditions() []conditions.Condition {
	return []conditions.Condition{
		{Name: condOVS, Limits: true}, {Name: condBridge, Limits: true}, {Name: condFlows, Limits: true},
		{Name: condHost, Limits: true},
	}
}

// uplinkFile, in the state directory, holds the addresses and routes of the uplink's bridge.
const uplinkFile = "uplink.json"

// Backend is one node's. New makes it, Open connects it, and Run lets it work. It has a part for
// each concern, and what belongs to none.
type Backend struct {
	backend.Options

	// What works without a connection.
	metrics  *metrics
	numbers  *numbers
	flows    *flows
	uplinks  *uplinks
	refusals *refusalReports
	packets  packets
	external *external
	dhcp     *dhcpServer
	tracking *tracking
	asked    asked
	wake     trigger.Trigger // starts a reconciliation

	// What Open makes.
	clients    clients
	vswitch    *vswitch
	host       *host
	attacher   *attacher
	reconciler *reconciler
	foreign    *foreignbridge.Bridges
}

// clients are the connections to Open vSwitch. They come back by themselves.
type clients struct {
	db          *ovsdb.Client
	sw          *bridge.Client
	vswitchd    *appctl.Client
	connections *connections
}

// send has the switch execute messages.
func (c *clients) send(ctx context.Context, messages []openflow.Message) error {
	conn, err := c.sw.Conn(ctx)
	if err != nil {
		return err
	}
	return conn.Do(ctx, messages)
}

// post is send without waiting for the switch, which may refuse a message unnoticed.
func (c *clients) post(ctx context.Context, messages []openflow.Message) error {
	conn, err := c.sw.Conn(ctx)
	if err != nil {
		return err
	}
	return conn.Send(ctx, messages...)
}

// dump asks the switch for flows with their counters.
func (c *clients) dump(ctx context.Context, r *openflow.FlowDescRequest) ([]openflow.FlowDesc, error) {
	conn, err := c.sw.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return conn.FlowsOf(ctx, r)
}

// New makes a Backend that is not connected. It gives physical networks their numbers, which it
// remembers in the attachments' store.
func New(o backend.Options) (*Backend, error) {
	numbers, err := numberUplinks(o.Attachments, o.Intent.State().Uplinks())
	if err != nil {
		return nil, err
	}
	b := &Backend{
		Options: o, wake: trigger.New(), metrics: newMetrics(o.Metrics),
		numbers: newNumbers(o.Attachments.List(), numbers),
		uplinks: &uplinks{
			bridge: o.Config.Bridge, numbers: numbers, intent: o.Intent, hooks: o.Hooks,
			cards: cards.New(o.Attachments),
		},
	}
	b.uplinks.cards.Want(o.Intent.State().Uplinks().All(), numbers)
	b.clients.vswitchd = appctl.Vswitchd(o.Config.OVSRunDir)
	b.flows = newFlows(o, b.numbers, b.metrics)
	b.refusals = &refusalReports{
		node: o.Node, intent: o.Intent, quarantine: b.flows.quarantine, events: o.Events, hooks: o.Hooks,
		count: b.metrics.refusals,
	}
	b.flows.synced, b.flows.refused, b.flows.leftOut = b.synced, b.refusals.added, b.refusals.changed
	b.tracking = newTracking(o, tracker{
		intent: o.Intent, vswitchd: b.clients.vswitchd, sysctlDir: o.Config.SysctlDir,
		conn: func(ctx context.Context) (*openflow.Conn, error) { return b.clients.sw.Conn(ctx) },
	}, b.flows)
	b.flows.relearn = b.tracking.relearn
	b.external = newExternal(o, b.numbers, b.flows, b.metrics.tooBig, b.clients.send)
	b.dhcp = &dhcpServer{
		log: o.Log, intent: o.Intent, numbers: b.numbers, count: b.metrics.dhcp, wait: b.flows.wait,
		send: b.clients.send, reply: b.clients.post, leased: o.Hooks.Leased, asked: o.Hooks.Asked,
	}
	b.handlePackets()
	return b, nil
}

// handlePackets names what is done with packets that flows send to the agent.
func (b *Backend) handlePackets() {
	b.packets.log = b.Log
	tooBig := &tooBigPackets{
		log: b.Log, intent: b.Intent, numbers: b.numbers, count: b.metrics.tooBig, send: b.clients.send,
	}
	b.packets.on(pipeline.TooBigUserdata, tooBig.answer, tooBig.lost)
	b.packets.on(pipeline.NeighbourUserdata, b.external.heard, nil)
	b.packets.on(pipeline.NextHopUserdata, b.external.answered, nil)
	b.packets.on(pipeline.UnresolvedUserdata, b.external.unresolved, nil)
	b.packets.on(pipeline.OversizeUserdata, b.external.oversize, tooBig.lost)
	b.packets.on(pipeline.QuoteUserdata, b.external.quote, nil)
	b.packets.on(pipeline.LeaseUserdata, b.replied, nil)
	b.packets.on(pipeline.DHCPUserdata, b.dhcp.answer, b.dhcp.lost)
	if b.policed() {
		log := &auditLog{log: b.Log, intent: b.Intent, flows: b.flows}
		b.packets.on(pipeline.AuditUserdata, log.denied, nil)
	}
}

// policed says whether policies are enforced.
func (b *Backend) policed() bool { return b.Config.Policy.Mode == config.EnforcedPolicies }

// Uplinks are the OpenFlow ports that lead to physical networks, by their names.
func (b *Backend) Uplinks() map[string]uint32 { return b.uplinks.numbers }

// Open starts the connections to the kernel and to Open vSwitch, which come back by themselves.
// Call it once the intent knows the node's own Ports.
func (b *Backend) Open() (err error) {
	kernel, err := hostnet.New(b.Log, b.Config.SysctlDir)
	if err != nil {
		return err
	}
	b.host = b.newHost(kernel)
	if err := b.host.ports.Set(); err != nil {
		kernel.Close()
		return err
	}
	b.openClients()
	b.connect(b.clients.db, hostnet.KernelLinks{}, cards.NewHost(b.Log, b.Config, b.uplinks.cards.Wanted()...))
	b.foreign = foreignbridge.New(b.clients.db, foreignLinks{sysctlDir: b.Config.SysctlDir},
		func() string { return string(b.Intent.State().Local().Datapath) })
	b.registerViews()
	return nil
}

// newHost makes what works on a kernel.
func (b *Backend) newHost(k kernel) *host {
	return &host{
		log: b.Log, config: b.Config, intent: b.Intent, conditions: b.Conditions, kernel: k,
		ports:      &kernelview.HostPorts{Attachments: b.Attachments, Kernel: k},
		services:   kernelview.NewServices(),
		keeper:     hostnet.NewKeeper(b.Log, b.Config.StateFile(uplinkFile), b.Config.SysctlDir),
		neighbours: hostnet.NewNeighbours(b.Log, neighbourSetter{b.clients.vswitchd}),
		reconcile:  b.wake,
	}
}

// openClients starts the connections to Open vSwitch.
func (b *Backend) openClients() {
	c := &connections{
		bridge: b.Config.Bridge, conditions: b.Conditions, metrics: b.metrics, asked: &b.asked, flows: b.flows,
		packets: &b.packets, limiter: b.tracking.limiter, doubt: b.external.egress.doubt, reconcile: b.wake,
	}
	b.clients.connections = c
	b.clients.db = ovsdb.Open(ovsdb.Options{
		Socket: filepath.Join(b.Config.OVSRunDir, "db.sock"), Logger: b.Log,
		OnConnect: c.dbConnected, OnDisconnect: c.dbLost,
	})
	c.portAdded = b.clients.db.PortAdded
	b.clients.sw = bridge.NewClient(bridge.ClientOptions{
		Address: "unix:" + filepath.Join(b.Config.OVSRunDir, b.Config.Bridge+".mgmt"),
		Conn: openflow.ConnOptions{
			Logger: b.Log, Async: true, Handler: c.switchReports, Pack: true, FragmentPorts: b.policed(),
		},
		OnConnect: func(*openflow.Conn) { c.switchConnected() }, OnDisconnect: c.switchLost,
	})
	b.flows.bridge = bridge.New(bridge.Options{Connect: bridge.Via(b.clients.sw), Learned: pipeline.Learned})
}

// database is what the backend needs of Open vSwitch's database. *ovsdb.Client is one.
type database interface {
	vswitchDatabase
	portDatabase
	uplinkDatabase
	sessionDatabase
	Watch() (changes <-chan struct{}, stop func())
}

// connect makes the parts that work on a database and on the host's interfaces.
func (b *Backend) connect(db database, l links, k cards.Kernel) {
	o := b.Options
	b.uplinks.db = db
	b.uplinks.cards.Connect(db, k)
	b.external.egress.db, b.external.egress.watch, b.external.egress.sessions = db, db.Watch, b.wake.Fire
	b.vswitch = &vswitch{
		log: o.Log, config: o.Config, intent: o.Intent, db: db, vswitchd: b.clients.vswitchd, send: b.clients.send,
		asked: &b.asked,
	}
	ports := &ports{
		log: o.Log, bridge: o.Config.Bridge, intent: o.Intent, attachments: o.Attachments, interfaces: o.Interfaces,
		hooks: o.Hooks, links: l, db: db,
		settled: b.tracking.Settled, repaired: map[attachment.Key]<-chan struct{}{},
	}
	b.attacher = &attacher{ports: ports, flows: b.flows, numbers: b.numbers, hostPorts: b.host.ports}
	b.reconciler = &reconciler{
		node: o.Node, log: o.Log, config: o.Config, intent: o.Intent, attachments: o.Attachments,
		conditions: o.Conditions,
		hooks:      o.Hooks, loop: o.Monitor.Loop("reconcile"), wake: b.wake,
		vswitch: b.vswitch, ports: ports, uplinks: b.uplinks, sessions: db, host: b.host,
		changes: db.Watch, findUplink: hostnet.FindUplink,
	}
}

// synced follows each Sync on a new connection: a switch that has just started may be holding its
// flows back, and knows no tunnel neighbors.
func (b *Backend) synced(ctx context.Context) error {
	if err := b.vswitch.release(ctx); err != nil {
		return err
	}
	b.host.connected()
	b.wake.Fire()
	return nil
}

// Run works until ctx ends, or until something fails that a restart may mend. It leaves ports,
// flows and the host's state as they are.
func (b *Backend) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	parts := []func(context.Context) error{b.flows.run, b.reconciler.run, b.packets.run, b.external.run,
		b.dhcp.advertise, b.uplinks.cards.Run}
	for _, part := range slices.Concat(parts, b.host.parts(), b.tracking.parts()) {
		g.Go(func() error { return part(ctx) })
	}
	return g.Wait()
}

// Close ends the connections that Open has made.
func (b *Backend) Close() {
	b.clients.connections.ending.Store(true)
	b.clients.db.Close()
	b.clients.sw.Close()
	b.host.kernel.Close()
}
