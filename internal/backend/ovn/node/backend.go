// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/kernelview"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/southbound"
	"coelan.io/coelan/internal/backend/ovs/appctl"
	"coelan.io/coelan/internal/backend/ovs/cards"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/conditions"
	"coelan.io/coelan/internal/trigger"
)

// The names of the conditions.
const (
	condOVS    = "ovs"    // Open vSwitch runs and can be used
	condBridge = "bridge" // ovn-controller's bridge and the management port exist
	condHost   = "host"   // the host's kernel is configured
)

// Conditions are those that a Backend sets, in the order in which they come true at a start.
func Conditions() []conditions.Condition {
	return []conditions.Condition{
		{Name: condOVS, Limits: true}, {Name: condBridge, Limits: true}, {Name: condHost, Limits: true},
	}
}

// uplinkFile, in the state directory, holds the addresses and routes of the uplink's bridge.
const uplinkFile = "uplink.json"

// Backend is one node's. New makes it, Open connects it, and Run lets it work.
type Backend struct {
	backend.Options
	logical LogicalPorts
	wake    trigger.Trigger // starts a reconciliation
	// patience is how long an attachment waits until OVN has connected it.
	patience time.Duration
	// spanning says that one switch has the pods of all nodes, and that another system chooses the
	// MAC of its router.
	spanning bool
	// owned says of rows of OVN's, by names.OwnerKey, whether this cluster's controller makes them.
	owned    func(owner string) bool
	bindings readBindings
	ethernet readEthernetAddress
	status   status

	// What Open makes.
	db       database
	vswitchd *appctl.Client
	close    func()
	host     *host
	cards    *cards.Bridges // that of a machine of OpenStack
	ports    *ports
	foreign  foreign
}

// New makes a Backend that is not connected, for the ports that the controller makes.
func New(o backend.Options) (*Backend, error) {
	cluster, err := names.ParseCluster(o.Config.Backend.Cluster)
	if err != nil {
		return nil, fmt.Errorf("backend.cluster: %w", err)
	}
	b := newBackend(o, clusterPorts{cluster}, installTimeout)
	b.owned = func(owner string) bool {
		_, ours := cluster.Owned(owner)
		return ours
	}
	return b, nil
}

// NewOfOthers is New for ports and switches that another system makes, such as OpenStack: one
// switch has the pods of all nodes. An attachment waits for patience until OVN has connected it.
func NewOfOthers(o backend.Options, ports LogicalPorts, patience time.Duration) *Backend {
	b := newBackend(o, ports, patience)
	b.spanning = true
	return b
}

func newBackend(o backend.Options, ports LogicalPorts, patience time.Duration) *Backend {
	return &Backend{
		Options: o, logical: ports, patience: patience, wake: trigger.New(), bindings: southbound.Read,
		ethernet: southbound.EthernetAddress,
		owned:    func(string) bool { return false }, cards: cards.New(o.Attachments),
	}
}

// database is what the backend needs of Open vSwitch's database. *ovsdb.Client is one.
type database interface {
	portDatabase
	cards.Database
	RequestMTU(ctx context.Context, bridge string, mtu int) error
	Info(ctx context.Context) (ovsdb.Info, error)
	Bridges(ctx context.Context) ([]ovsdb.BridgeState, error)
	ExternalIDs(ctx context.Context) (map[string]string, error)
	SetExternalIDs(ctx context.Context, ids map[string]string) error
	HideCapability(ctx context.Context, datapath, capability string) error
}

// Open starts the connections to the kernel and to Open vSwitch, which come back by themselves.
// Call it once the intent knows the node's own Ports.
func (b *Backend) Open() error {
	kernel, err := hostnet.New(b.Log, b.Config.SysctlDir)
	if err != nil {
		return err
	}
	b.vswitchd = appctl.Vswitchd(b.Config.OVSRunDir)
	db := ovsdb.Open(ovsdb.Options{
		Socket: filepath.Join(b.Config.OVSRunDir, "db.sock"), Logger: b.Log,
		OnConnect: b.databaseConnected, OnDisconnect: b.databaseLost,
	})
	b.close = func() {
		b.status.ending.Store(true)
		db.Close()
		kernel.Close()
	}
	keeper := hostnet.NewKeeper(b.Log, b.Config.StateFile(uplinkFile), b.Config.SysctlDir)
	b.connect(db, kernel, keeper, hostnet.KernelLinks{}, hostnet.FindUplink)
	b.cards.Connect(db, cards.NewHost(b.Log, b.Config, b.Config.Bridge))
	b.foreign = foreign{newForeign(db, b.Config.SysctlDir, b.datapath)}
	if err := b.host.ports.Set(); err != nil {
		b.close()
		return err
	}
	return nil
}

// connect makes the parts that work on a database and on the host's kernel.
func (b *Backend) connect(db database, k kernel, keeper keeper, l links, find findUplink) {
	b.db = db
	b.host = &host{
		conditions: b.Conditions, kernel: k, keeper: keeper, find: find,
		services: kernelview.NewServicesByAddress(b.spanning),
		ports:    &kernelview.HostPorts{Attachments: b.Attachments, Kernel: k},
		intent:   b.Intent, wake: b.wake, spanning: b.spanning,
	}
	b.ports = &ports{
		log: b.Log, bridge: b.Config.Bridge, logical: b.logical, intent: b.Intent, attachments: b.Attachments,
		interfaces: b.Interfaces, hooks: b.Hooks, links: l, db: db, patience: b.patience,
	}
}

// databaseConnected and databaseLost follow the connection to the database.
func (b *Backend) databaseConnected() {
	b.status.asked.Store(false)
	b.wake.Fire()
}

func (b *Backend) databaseLost(err error) {
	if b.status.ending.Load() {
		return
	}
	b.Conditions.Set(condOVS, err)
	b.wake.Fire()
}

// Run works until ctx ends, or until something fails that a restart may mend. It leaves ports and
// the host's state as they are.
func (b *Backend) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	parts := []func(context.Context) error{
		b.reconcileLoop, b.cards.Run, func(ctx context.Context) error { return b.logical.Run(ctx, b.wake.Fire) },
	}
	for _, part := range slices.Concat(parts, b.host.parts()) {
		g.Go(func() error { return part(ctx) })
	}
	return g.Wait()
}

// Close ends the connections that Open has made.
func (b *Backend) Close() { b.close() }

// datapath is that of the integration bridge.
func (b *Backend) datapath() string { return string(b.Intent.State().Local().Datapath) }
