// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/backend/ovs/cards/cardsfake"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/backend/ovs/ovsfake"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/conditions"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/keymutex"
	"coelan.io/coelan/internal/nodeview"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/openflow"
)

// fakeKernel keeps what it is told. It has everything that it is told to have, unless fails.
type fakeKernel struct {
	mu        sync.Mutex
	changed   *broadcast.Broadcast
	desired   *hostnet.Desired
	ports     []hostnet.HostPort
	fails     error
	confirmed int
	status    chan hostnet.Status
}

func (k *fakeKernel) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (k *fakeKernel) Close()                        {}

func (k *fakeKernel) Set(d hostnet.Desired) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.desired = &d
	k.changed.Send()
}

func (k *fakeKernel) holds() *hostnet.Desired {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.desired
}

func (k *fakeKernel) Status() hostnet.Status { return hostnet.Status{Synced: true, Changes: 3} }

func (k *fakeKernel) Watch(ctx context.Context, update func(hostnet.Status)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-k.status:
			update(s)
		}
	}
}

func (k *fakeKernel) SetHostPorts(list []hostnet.HostPort) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ports = list
	return k.fails
}

func (k *fakeKernel) CheckHostPorts() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fails
}

// fail has the kernel not have its host ports; nil: it has them.
func (k *fakeKernel) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fails = err
}

func (k *fakeKernel) hostPorts() []hostnet.HostPort {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ports
}

func (k *fakeKernel) Reserves(_ intent.Protocol, port uint16) bool { return port == 4789 }

func (k *fakeKernel) Confirm(string, func(netip.Addr) (net.HardwareAddr, bool)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.confirmed++
	return errors.New("no interface")
}

// fakeLinks are the host's interfaces: all that are not gone.
type fakeLinks struct {
	mu   sync.Mutex
	gone map[string]bool
	up   map[string]bool
}

func (l *fakeLinks) Exists(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.gone[name]
}

func (l *fakeLinks) remove(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone[name] = true
}

func (l *fakeLinks) SetUp(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone[name] {
		return errors.New("interface " + name + ": not found")
	}
	l.up[name] = true
	return nil
}

// reports keeps what a backend says by its hooks.
type reports struct {
	mu      sync.Mutex
	changed *broadcast.Broadcast
	list    []string
}

func (r *reports) add(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, text)
	r.changed.Send()
}

func (r *reports) has(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.list, func(have string) bool { return strings.Contains(have, text) })
}

// forget drops what was said so far.
func (r *reports) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = nil
}

// machine is a node that outlives its backends: Open vSwitch, a kernel, interfaces, and a disk.
type machine struct {
	*testing.T
	// changed is sent after anything has changed that a test may wait for.
	changed  *broadcast.Broadcast
	ovs      *ovsfake.OVS
	sw       *bridge.Fake
	kernel   *fakeKernel
	links    *fakeLinks
	cards    *cardsfake.Cards
	said     *reports
	store    *attachment.Store
	intent   *intent.Store
	stateDir string
	uplink   hostnet.Uplink
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	changed := &broadcast.Broadcast{}
	m := &machine{
		T: t, changed: changed, ovs: ovsfake.New(t), sw: bridge.NewFake(),
		kernel: &fakeKernel{changed: changed, status: make(chan hostnet.Status)},
		links:  &fakeLinks{gone: map[string]bool{}, up: map[string]bool{}},
		cards:  cardsfake.New(),
		said:   &reports{changed: changed}, intent: intent.NewStore(nodeview.Services("n1")),
		stateDir: t.TempDir(), uplink: hostnet.Uplink{Name: "eth0", MTU: 1500},
	}
	var err error
	m.store, err = attachment.Open(filepath.Join(m.stateDir, "state.db"))
	m.must(err)
	t.Cleanup(func() { _ = m.store.Close() })
	m.update(func(tx *intent.Tx) {
		tx.ReplaceNodes([]intent.Node{
			testNodeAt("n1", "192.0.2.1", "10.244.1.0/24"), testNodeAt("n2", "192.0.2.2", "10.244.2.0/24"),
		})
		network, router := translate.Default()
		tx.ReplaceNetworks([]intent.Router{router}, []intent.Network{network}, nil)
	})
	return m
}

func testNodeAt(name, address, subnet string) intent.Node {
	p := netip.MustParsePrefix(subnet)
	return intent.Node{
		Name: name, Addresses: []netip.Addr{addr(address)},
		Subnets: []intent.Subnet{{Network: intent.DefaultNetworkName, Prefix: p, Gateway: p.Addr().Next()}},
	}
}

// connectedTo has the node be meant to be connected to physical networks, each by a bridge of its
// own. Call it before start.
func (m *machine) connectedTo(physical ...string) {
	m.Helper()
	m.update(func(tx *intent.Tx) { tx.ReplaceUplinks(uplinksTo(physical...)) })
}

func uplinksTo(physical ...string) (list []intent.Uplink) {
	for _, name := range physical {
		list = append(list, intent.Uplink{Physical: name, Bridge: "br-" + name})
	}
	return list
}

func (m *machine) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// says fails unless an error has a text.
func (m *machine) says(err error, text string) {
	m.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		m.Errorf("error %v, want one that says %q", err, text)
	}
}

func (m *machine) update(change func(tx *intent.Tx)) uint64 {
	m.Helper()
	s, err := m.intent.Update(func(tx *intent.Tx) error { change(tx); return nil })
	m.must(err)
	return s.Revision()
}

func (m *machine) bound() context.Context {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), time.Minute)
	m.Cleanup(cancel)
	return ctx
}

// until waits for what comes to be by itself. It looks again after each change.
func (m *machine) until(what string, ok func() bool) {
	m.Helper()
	bound := time.After(time.Minute)
	for {
		changed := m.changed.Changed()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-bound:
			m.Fatalf("not so: %s", what)
		}
	}
}

// testConfig is for a node without tunnels on the userspace datapath.
func (m *machine) testConfig() config.Config {
	c := config.Default()
	c.StateDir, c.OVSRunDir = m.stateDir, m.ovs.RunDir
	c.Datapath, c.Encapsulation, c.Policy.Mode = config.DatapathNetdev, config.NoEncap, config.PoliciesOff
	return c
}

// testNode is a backend on a machine.
type testNode struct {
	*machine
	*Backend
}

// start makes a backend that is connected, and does nothing by itself.
func (m *machine) start(c config.Config) *testNode {
	m.Helper()
	log := slog.New(slog.DiscardHandler)
	hooks := backend.Hooks{
		Begin: func(context.Context) {}, Refused: func([]policy.Refusal) {},
		Warn:           func(reason string, err error) { m.said.add(reason + ": " + err.Error()) },
		Reconciled:     func(err error) { m.said.add(fmt.Sprint("reconciled: ", err)) },
		InterfaceGone:  func() { m.said.add("interface gone") },
		UplinksChanged: func() { m.said.add("uplinks changed") },
		Repaired:       func(int) { m.said.add("repaired") },
		Swept:          func(kind string, _ int) { m.said.add("swept " + kind) },
	}
	b, err := New(backend.Options{
		Config: c, Node: "n1", Log: log, Intent: m.intent, Attachments: m.store,
		Interfaces: &keymutex.Mutex{}, Conditions: conditions.New(log, Conditions()...),
		Monitor: heartbeat.New(heartbeat.Bound), Metrics: prometheus.NewRegistry(), Events: &eventList{}, Hooks: hooks,
	})
	m.must(err)
	n := &testNode{machine: m, Backend: b}
	b.host = b.newHost(m.kernel)
	m.must(b.host.ports.Set())
	b.openClients()
	m.Cleanup(b.Close)
	b.flows.bridge = m.newBridge()
	b.connect(b.clients.db, m.links, m.cards)
	b.vswitch.send = func(context.Context, []openflow.Message) error { return nil }
	b.reconciler.findUplink = func(address netip.Addr) (hostnet.Uplink, error) {
		if m.uplink.Name == "" {
			return m.uplink, errors.New("no interface of this host has the node's address " + address.String())
		}
		u := m.uplink
		u.Address = netip.PrefixFrom(address, 24)
		return u, nil
	}
	b.registerViews()
	n.follow()
	select {
	case <-b.wake: // the last that a new connection to the database does
	case <-m.bound().Done():
		m.Fatal("the database is not connected")
	}
	return n
}

// follow sends the machine's changed after changes of what a backend knows.
func (n *testNode) follow() {
	ctx := n.Context()
	database, stop := n.clients.db.Watch()
	n.Cleanup(stop)
	go func() {
		for {
			// The channels are taken before the tests look.
			conditions, flows := n.Conditions.Changed(), n.flows.changed.Changed()
			n.changed.Send()
			select {
			case <-conditions:
			case <-flows:
			case <-database:
			case <-ctx.Done():
				return
			}
		}
	}()
}

// newBridge is a connection to the machine's switch.
func (m *machine) newBridge() *bridge.Bridge {
	sw := m.sw
	return bridge.New(bridge.Options{
		Connect: func(context.Context) (bridge.Switch, error) { return sw, nil }, Learned: pipeline.Learned,
	})
}

// run lets a backend work until the function that it returns is called.
func (n *testNode) run() (stop func()) {
	n.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, part := range []func(context.Context) error{
		n.flows.run, n.reconciler.run, n.packets.run, n.host.watch, n.host.followIntent,
	} {
		running.Go(func() {
			if err := part(ctx); err != nil {
				n.Error(err)
			}
		})
	}
	stop = func() { cancel(); running.Wait() }
	n.Cleanup(stop)
	return stop
}

// ready waits until pods can be attached.
func (n *testNode) ready() {
	n.Helper()
	n.until("pods can be attached", func() bool {
		all := n.Conditions.All()
		return all[condOVS] == "" && all[condBridge] == "" && all[condFlows] == ""
	})
}

// reconciled compares once, and syncs flows.
func (n *testNode) reconciled() {
	n.Helper()
	n.must(n.reconciler.reconcile(n.bound()))
	n.must(n.flows.sync(n.bound(), n.intent.State()))
}

// portNames are the ports that a bridge has, whatever the backend knows of them.
func (m *machine) portNames(bridge string) []string {
	m.Helper()
	names, err := m.ovs.Ports(bridge)
	m.must(err)
	return names
}

// addBridge adds a bridge that is not Coelan's, and waits until the backend knows it.
func (n *testNode) addBridge(name, datapath string, ports ...string) {
	n.Helper()
	n.must(n.ovs.AddBridge(name, datapath, ports...))
	n.until("bridge "+name+" is known", func() bool {
		bridges, err := n.clients.db.Bridges(n.bound())
		n.must(err)
		return slices.ContainsFunc(bridges, func(b ovsdb.BridgeState) bool { return b.Name == name })
	})
}

// attached is a pod that was attached. Nothing else works on the node meanwhile.
func (n *testNode) attached(name string, ports ...attachment.HostPort) attachment.Attachment {
	n.Helper()
	at, revision := n.pod(name, ports...)
	n.must(n.flows.sync(n.bound(), n.intent.State()))
	n.must(n.Attach(n.bound(), at, revision))
	return at
}

// pod allocates an attachment and makes its Port intent. It returns the revision.
func (n *testNode) pod(name string, ports ...attachment.HostPort) (attachment.Attachment, uint64) {
	n.Helper()
	return n.podOn("", name, ports...)
}

// podOn is pod for an interface on a bridge that its network configuration names.
func (n *testNode) podOn(bridge, name string, ports ...attachment.HostPort) (attachment.Attachment, uint64) {
	n.Helper()
	address := netip.AddrFrom4([4]byte{10, 244, 1, byte(10 + len(n.store.List()))})
	at, err := n.store.Allocate(attachment.Plan{
		Spec: attachment.Spec{
			Key: attachment.Key{ContainerID: "container-" + name, IfName: "eth0"}, PodNamespace: "default", PodName: name,
			PodUID: "uid-" + name, NetworkID: intent.DefaultNetwork, MTU: 1500, Primary: true, HostPorts: ports,
			Bridge: bridge,
		},
		Requested: attachment.Requested{Addresses: []netip.Addr{address}},
		Subnets:   []intent.NetworkSubnet{{Prefix: netip.MustParsePrefix("10.244.1.0/24"), Gateway: addr("10.244.1.1")}},
	})
	n.must(err)
	n.Expect(at)
	return at, n.update(func(tx *intent.Tx) {
		tx.SetPort(intent.Port{
			ID: at.Key.String(), Namespace: "default", Pod: name, Interface: "eth0", UID: at.PodUID, Node: "n1",
			Network: intent.DefaultNetworkName, MAC: at.MAC, Addresses: []netip.Addr{address},
		})
	})
}

// wants fails unless the switch has the flows of the intent.
func (n *testNode) wants() {
	n.Helper()
	want := bridge.NewFake()
	b := bridge.New(bridge.Options{Connect: func(context.Context) (bridge.Switch, error) { return want, nil }})
	desired := bridge.NewDesired()
	n.flows.compile(n.intent.State(), desired)
	_, err := b.Sync(n.bound(), desired)
	n.must(err)
	if diff := cmp.Diff(want.Text(), n.sw.Text()); diff != "" {
		n.Errorf("flows (-want +got):\n%s", diff)
	}
}

// over is a context for what cannot be done: it has ended.
func (n *testNode) over() context.Context {
	ctx, cancel := context.WithCancel(n.Context())
	cancel()
	return ctx
}

func (n *testNode) bridge() ovsdb.BridgeState {
	n.Helper()
	bridges, err := n.clients.db.Bridges(n.bound())
	n.must(err)
	i := slices.IndexFunc(bridges, func(b ovsdb.BridgeState) bool { return b.Name == n.Config.Bridge })
	if i < 0 {
		n.Fatalf("no bridge %s", n.Config.Bridge)
	}
	return bridges[i]
}
