// SPDX-License-Identifier: Apache-2.0

// Package agent is one node's part of Coelan: it turns Kubernetes objects and the node's own attachments into intent,
// and keeps Open vSwitch and the host's kernel in the state that the intent asks for.
//
// Everything is level-triggered. Whatever restarts, the agent compares what is with what should be and writes the
// difference: after its own restart with nothing changed, it writes nothing.
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/agent/bind"
	"coelan.io/coelan/internal/agent/blocks"
	"coelan.io/coelan/internal/agent/policies"
	"coelan.io/coelan/internal/agent/publish"
	"coelan.io/coelan/internal/agent/services"
	"coelan.io/coelan/internal/agent/view"
	"coelan.io/coelan/internal/announce"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/bridge"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/compile"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/hostnet"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovsdb"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/unixctl"
	"coelan.io/coelan/openflow"
)

// Files of the state directory.
const (
	// stateFile holds attachments and nodes.
	stateFile = "state.db"
	// uplinkFile holds the addresses and routes of the uplink's bridge.
	uplinkFile = "uplink.json"
)

// Agent is the whole of a node's agent. New makes it, Run lets it work.
type Agent struct {
	opts  Options
	cfg   config.Config
	log   *slog.Logger
	since time.Time

	store      *attachment.Store
	intent     *intent.Store
	db         *ovsdb.Client
	vswitchd   *unixctl.Client
	flows      *flows
	sw         *openflow.Client
	host       *hostnet.Host
	keeper     *hostnet.Keeper
	neighbours *hostnet.Neighbours
	plumber    *podnet.Plumber
	cni        *cni.Server
	view       *view.View
	blocks     *blocks.Blocks
	publisher  *publish.Publisher
	binder     *bind.Binder
	services   *services.Services
	policies   *policies.Policies // nil: they are not enforced
	conditions *conditions
	metrics    *metrics

	// hostServices is what the host's kernel does for Services.
	hostServices *hostServices
	// announcer is there once this node may answer for load balancers' addresses; announceWake has it look again.
	announcer    atomic.Pointer[announce.Announcer]
	announceWake chan struct{}

	// names are the interfaces that somebody is working on.
	names *keyed
	// wake starts a reconciliation.
	wake chan struct{}
	// denied are packets to be logged.
	denied chan *openflow.PacketIn2
	// collect starts a comparison of attachments and interfaces.
	collect chan struct{}
	// checked says that Open vSwitch was asked what it is since the switch was connected or lost.
	checked atomic.Bool
	// nodesHeard says that the API has told of the nodes since the start.
	nodesHeard atomic.Bool
	// ending says that the agent itself closes its connections.
	ending atomic.Bool
	// bridgeAsked says that the bridge was asked for since the database was connected.
	bridgeAsked atomic.Bool
	// uplinks are the OpenFlow ports that lead to physical networks, by their names. They do not change.
	uplinks map[string]uint32
	// translating is held while intent is made of what the view knows.
	translating sync.Mutex

	mu      sync.Mutex
	info    ovsdb.Info
	uplink  string
	nodeUID string
	// nodes are the newest Node objects.
	nodes []*corev1.Node
	// warned is the newest Event on the node, left what of the ports is not right.
	warned, left string
	problems     []translate.Problem
	// networkProblems are values in objects of coelan.io that were left out.
	networkProblems []translate.Problem
	// unconnected says why this node is not connected to a physical network, by its name.
	unconnected map[string]error
	// vanished says that this node's object is gone or useless, and what was known of it is used on.
	vanished bool
}

// New checks the options. It opens nothing.
func New(opts Options) (*Agent, error) {
	if opts.NodeName == "" {
		return nil, fmt.Errorf("the node's name is not set")
	}
	if err := opts.Config.Validate(); err != nil {
		return nil, err
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	a := &Agent{
		opts: opts, cfg: opts.Config, log: opts.Log, since: time.Now(),
		intent: intent.NewStore(), names: newKeyed(), wake: make(chan struct{}, 1), collect: make(chan struct{}, 1),
		hostServices: newHostServices(opts.Config.Services), announceWake: make(chan struct{}, 1), denied: make(chan *openflow.PacketIn2, maxDenied),
		conditions: newConditions(opts.Log), vswitchd: unixctl.Vswitchd(opts.Config.OVSRunDir),
	}
	a.metrics = newMetrics(a)
	return a, nil
}

// Run works until ctx ends, or until something fails that a restart may mend. It leaves ports, flows and the host's
// state as they are.
func (a *Agent) Run(ctx context.Context) (err error) {
	if a.store, err = attachment.Open(a.cfg.StateFile(stateFile)); err != nil {
		return err
	}
	defer func() { _ = a.store.Close() }()
	a.policies = a.newPolicies(ctx)
	if err := a.load(); err != nil {
		return err
	}
	a.makeParts()
	if a.host, err = hostnet.New(a.log, a.cfg.SysctlDir); err != nil {
		return err
	}
	defer a.host.Close()
	a.keeper = hostnet.NewKeeper(a.log, a.cfg.StateFile(uplinkFile))
	a.neighbours = hostnet.NewNeighbours(a.log, neighbourSetter{a.vswitchd})
	if a.plumber, err = podnet.New(a.cfg.SysctlDir); err != nil {
		return err
	}
	defer a.plumber.Close()
	a.cni = a.newCNI()
	a.connect()
	defer a.sw.Close()
	defer a.db.Close()
	defer a.ending.Store(true)
	return a.work(ctx)
}

// connect starts the connections to Open vSwitch; they come back by themselves.
func (a *Agent) connect() {
	a.flows = newFlows(a)
	a.db = ovsdb.Open(ovsdb.Options{
		Socket: filepath.Join(a.cfg.OVSRunDir, "db.sock"), Logger: a.log,
		OnConnect: a.dbConnected, OnDisconnect: a.dbLost,
	})
	a.sw = openflow.NewClient(openflow.ClientOptions{
		Address: "unix:" + filepath.Join(a.cfg.OVSRunDir, a.cfg.Bridge+".mgmt"),
		Conn: openflow.ConnOptions{
			Logger: a.log, Async: true, Handler: a.switchReports, Pack: true, FragmentPorts: a.cfg.Policy.Mode == config.EnforcedPolicies,
		},
		OnConnect: func(*openflow.Conn) { a.switchConnected() }, OnDisconnect: a.switchLost,
	})
	a.flows.bridge = bridge.New(bridge.Options{Connect: bridge.Via(a.sw), Learned: compile.Learned})
}

// work runs all parts; the first that fails ends the others.
func (a *Agent) work(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, part := range []func(context.Context) error{
		a.flows.run, a.reconcileLoop, a.host.Run, a.keeper.Run, a.neighbours.Run, a.watchHost, a.watchUplink,
		a.watchNodes, a.watchPods, a.watchObjects, a.watchServices, a.services.Run, a.services.ServeHealthz, a.announceAddresses,
		a.followPolicies,
		a.logDenied,
		a.view.Run, a.blocks.Run, a.publisher.Run, a.binder.Run,
		a.serveCNI, a.collectLoop, a.serveHealth, a.serveDiagnostics, a.installCNI,
	} {
		g.Go(func() error { return part(ctx) })
	}
	return g.Wait()
}

// load makes intent of what the agent knew when it ran last. Only together is it enough for a first comparison with the
// switch: nodes, networks or ports that came later would lose their flows in between.
func (a *Agent) load() error {
	nodes, err := loadNodes(a.store)
	if err != nil {
		return err
	}
	if a.view, err = view.New(a.log, a.store); err != nil {
		return err
	}
	if a.uplinks, err = numberUplinks(a.store, a.cfg.BridgeMappings); err != nil {
		return err
	}
	networks := a.translateNetworks(a.view.State())
	_, err = a.intent.Update(func(tx *intent.Tx) error {
		networks.apply(tx, a.intent.State(), a.opts.NodeName)
		tx.ReplaceNodes(a.translate(nodes))
		a.loadServices(tx)
		a.loadPolicies(tx)
		for _, at := range a.store.List() {
			tx.SetPort(a.port(at))
		}
		return nil
	})
	return err
}
