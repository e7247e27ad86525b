// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"coelan.io/coelan/internal/agent/neutronports"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovn/southbound"
	"coelan.io/coelan/internal/backend/ovs/cards/cardsfake"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/backend/ovs/ovsfake"
	"coelan.io/coelan/internal/conditions"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/keymutex"
	"coelan.io/coelan/internal/nodeview"
	"coelan.io/coelan/internal/translate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeKernel keeps what it is told, and has it at once.
type fakeKernel struct {
	mu      sync.Mutex
	desired hostnet.Desired
	ports   []hostnet.HostPort
}

func (k *fakeKernel) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (k *fakeKernel) Set(d hostnet.Desired) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.desired = d
}
func (k *fakeKernel) Status() hostnet.Status { return hostnet.Status{Synced: true} }
func (k *fakeKernel) Watch(ctx context.Context, update func(hostnet.Status)) error {
	update(k.Status())
	<-ctx.Done()
	return nil
}
func (k *fakeKernel) SetHostPorts(list []hostnet.HostPort) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ports = list
	return nil
}
func (k *fakeKernel) CheckHostPorts() error                        { return nil }
func (k *fakeKernel) Reserves(_ intent.Protocol, port uint16) bool { return port == 6081 }

// fakeKeeper remembers nothing.
type fakeKeeper struct{}

func (fakeKeeper) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (fakeKeeper) Set(string, netip.Addr) error  { return nil }

// anyLinks are the host's interfaces: all.
type anyLinks struct{}

func (anyLinks) Exists(string) bool { return true }
func (anyLinks) SetUp(string) error { return nil }

// node is a backend with an Open vSwitch of its own.
type node struct {
	*testing.T
	*Backend
	ovs    *ovsfake.OVS
	kernel *fakeKernel
	store  *attachment.Store
	deck   *cardsfake.Cards
}

// newNode starts a backend that is connected. OVN connects the management port.
func newNode(t *testing.T, change func(*config.Config)) *node {
	t.Helper()
	o := ovsfake.New(t)
	must(t, o.AddBridge("br-int", "netdev"))
	must(t, o.ConnectOVN("mgmt-n1"))
	store, err := attachment.Open(filepath.Join(t.TempDir(), "state.db"))
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return restart(t, o, store, change)
}

// restart starts another backend on the same node.
func restart(t *testing.T, o *ovsfake.OVS, store *attachment.Store, change func(*config.Config)) *node {
	t.Helper()
	states := intent.NewStore(nodeview.Services("n1"))
	_, err := states.Update(func(tx *intent.Tx) error {
		tx.ReplaceNodes([]intent.Node{nodeAt("n1", "192.0.2.1", "10.244.1.0/24", "fd44:1::/64"),
			nodeAt("n2", "192.0.2.2", "10.244.2.0/24", "fd44:2::/64")})
		network, router := translate.Default()
		router.SNAT.Enabled = true
		tx.ReplaceNetworks([]intent.Router{router}, []intent.Network{network}, nil)
		for _, at := range store.List() {
			tx.SetPort(translate.Port(at, "n1"))
		}
		return nil
	})
	must(t, err)
	c := config.Default()
	c.Backend.Type, c.OVSRunDir, c.StateDir = config.OVNBackend, o.RunDir, t.TempDir()
	if change != nil {
		change(&c)
	}
	log := slog.New(slog.DiscardHandler)
	b, err := New(backend.Options{
		Config: c, Node: "n1", Log: log, Intent: states, Attachments: store, Interfaces: &keymutex.Mutex{},
		Conditions: conditions.New(log, Conditions()...), Monitor: heartbeat.New(heartbeat.Bound),
		Metrics: prometheus.NewRegistry(),
		Hooks: backend.Hooks{
			Begin: func(context.Context) {}, Warn: func(string, error) {}, Reconciled: func(error) {},
			InterfaceGone: func() {}, UplinksChanged: func() {}, Repaired: func(int) {}, Swept: func(string, int) {},
		},
	})
	must(t, err)
	db := ovsdb.Open(ovsdb.Options{
		Socket: o.Socket(), Logger: log, OnConnect: b.databaseConnected, OnDisconnect: b.databaseLost,
	})
	b.close = func() { b.status.ending.Store(true); db.Close() }
	t.Cleanup(b.Close)
	n := &node{T: t, Backend: b, ovs: o, kernel: &fakeKernel{}, store: store}
	b.connect(db, n.kernel, fakeKeeper{}, anyLinks{}, func(a netip.Addr) (hostnet.Uplink, error) {
		return hostnet.Uplink{Name: "eth0", MTU: 1500, Address: netip.PrefixFrom(a, 24)}, nil
	})
	n.deck = cardsfake.New()
	b.cards.Connect(db, n.deck)
	must(t, db.WaitConnected(bound(t)))
	return n
}

func nodeAt(name, address string, subnets ...string) intent.Node {
	n := intent.Node{Name: name, Addresses: []netip.Addr{netip.MustParseAddr(address)}}
	for _, s := range subnets {
		p := netip.MustParsePrefix(s)
		n.Subnets = append(n.Subnets, intent.Subnet{Network: intent.DefaultNetworkName, Prefix: p, Gateway: p.Addr().Next()})
	}
	return n
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func bound(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// pod allocates an attachment of a pod and makes it intent.
func (n *node) pod(name string) attachment.Attachment {
	n.Helper()
	r, err := ipam.Block{
		Prefix: netip.MustParsePrefix("10.244.1.0/24"), Subnet: netip.MustParsePrefix("10.244.1.0/24"),
		Gateway: netip.MustParseAddr("10.244.1.1"),
	}.Range()
	must(n.T, err)
	at, err := n.store.Allocate(attachment.Plan{
		Spec: attachment.Spec{
			Key:          attachment.Key{ContainerID: "c-" + name, IfName: "eth0"},
			PodNamespace: "shop", PodName: name, PodUID: "uid-" + name,
		},
		Ranges: []ipam.Range{r},
	})
	must(n.T, err)
	_, err = n.Intent.Update(func(tx *intent.Tx) error { tx.SetPort(translate.Port(at, "n1")); return nil })
	must(n.T, err)
	return at
}

func (n *node) portNames() []string {
	n.Helper()
	names, err := n.ovs.Ports("br-int")
	must(n.T, err)
	return names
}

func (n *node) says(err error, text string) {
	n.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		n.Errorf("error %v, want one that says %q", err, text)
	}
}

// A pod is attached when ovn-controller has connected its interface under the name of its Port, and
// not before; a DEL leaves nothing, and may be repeated.
func TestAttach(t *testing.T) {
	n := newNode(t, nil)
	must(t, n.reconcile(bound(t)))
	at := n.pod("web")
	attached := make(chan error, 1)
	go func() { attached <- n.Attach(bound(t), at, 0) }()
	select {
	case err := <-attached:
		t.Fatalf("attached before OVN knows the port: %v", err)
	case <-n.plugged("shop/web.eth0"):
	}
	must(t, n.ovs.ConnectOVN("mgmt-n1", "shop/web.eth0"))
	must(t, <-attached)
	must(t, n.Check(bound(t), at))
	must(t, n.Attach(bound(t), at, 0)) // once more
	must(t, n.Forwards(bound(t), at, 0))
	if got := n.portNames(); !slices.Equal(got, []string{at.HostInterface, "coelan-gw0"}) {
		t.Errorf("ports %v", got)
	}
	infos, err := n.Ports(bound(t))
	must(t, err)
	if len(infos) != 1 || !infos[0].Ready {
		t.Errorf("ports: %+v", infos)
	}
	for range 2 {
		must(t, n.Detach(bound(t), at, 0))
	}
	if got := n.portNames(); !slices.Equal(got, []string{"coelan-gw0"}) {
		t.Errorf("ports %v after DEL", got)
	}
	n.says(n.Check(bound(t), at), "is missing on bridge br-int")
}

// plugged is closed when an interface works that is plugged as a logical port.
func (n *node) plugged(logical string) <-chan struct{} {
	return n.state(func(p ovsdb.PortState) bool { return p.Ready() && p.ExternalIDs[idInterface] == logical })
}

// state is closed when there is an interface as ok says.
func (n *node) state(ok func(ovsdb.PortState) bool) <-chan struct{} {
	done := make(chan struct{})
	changes, stop := n.db.Watch()
	n.Cleanup(stop)
	ctx := bound(n.T)
	go func() {
		for {
			if list, err := n.db.Ports(ctx); err == nil && slices.ContainsFunc(list, ok) {
				close(done)
				return
			}
			select {
			case <-changes:
			case <-ctx.Done():
				return
			}
		}
	}()
	return done
}

// An ADD of a port that OVN never connects fails, and says where to look.
func TestNeverConnected(t *testing.T) {
	n := newNode(t, nil)
	must(t, n.reconcile(bound(t)))
	at := n.pod("web")
	n.ports.patience = time.Millisecond
	err := n.Attach(bound(t), at, 0)
	n.says(err, "OVN has not connected the port shop/web.eth0")
	n.says(n.Check(bound(t), at), "OVN has not connected port "+at.HostInterface)
	n.configured(map[string]string{"system-id": "n1", "ovn-remote": "tcp:192.0.2.1:6642"})
	n.bindings = bindingsOf(southbound.View{HasChassis: true, Bindings: map[string]southbound.Binding{
		"mgmt-n1": {LogicalPort: "mgmt-n1", Chassis: "n1", Up: true},
	}})
	var c agentapi.Check
	must(t, n.Findings(bound(t), &c))
	if len(c.Findings) != 2 || c.Findings[0].Object != at.HostInterface || c.Findings[1].Object != "shop/web.eth0" {
		t.Errorf("findings: %+v", c.Findings)
	}
}

// An agent that starts again with nothing changed writes nothing, and what ovn-controller wrote of
// its interfaces stays.
func TestRestart(t *testing.T) {
	n := newNode(t, nil)
	must(t, n.reconcile(bound(t)))
	at := n.pod("web")
	must(t, n.ovs.ConnectOVN("mgmt-n1", "shop/web.eth0"))
	must(t, n.Attach(bound(t), at, 0))
	writes := n.ovs.Writes()
	again := restart(t, n.ovs, n.store, nil)
	must(t, again.reconcile(bound(t)))
	must(t, again.Attach(bound(t), at, 0))
	if got := n.ovs.Writes(); got != writes {
		t.Errorf("%d writes", got-writes)
	}
	must(t, again.Check(bound(t), at))
}

// Ports that vanish come back, those that belong to no pod go, and those of others stay.
func TestReconcile(t *testing.T) {
	n := newNode(t, nil)
	must(t, n.reconcile(bound(t)))
	at, gone := n.pod("web"), n.pod("gone")
	must(t, n.ovs.ConnectOVN("mgmt-n1", "shop/web.eth0", "shop/gone.eth0"))
	must(t, n.Attach(bound(t), at, 0))
	must(t, n.Attach(bound(t), gone, 0))
	must(t, n.ovs.AddPort("br-int", "vm0", map[string]string{"iface-id": "shop/vm"}))
	must(t, n.ovs.DeletePort("br-int", at.HostInterface))
	must(t, n.ovs.DeletePort("br-int", "coelan-gw0"))
	_, err := n.store.Release(gone.Key)
	must(t, err)
	again := restart(t, n.ovs, n.store, nil)
	must(t, again.reconcile(bound(t)))
	want := []string{"coelan-gw0", at.HostInterface, "vm0"}
	slices.Sort(want)
	if got := again.portNames(); !slices.Equal(got, want) {
		t.Errorf("ports %v, want %v", got, want)
	}
	guests, err := again.Guests(bound(t))
	must(t, err)
	if len(guests) != 1 || guests[0].ID != "shop/vm" || guests[0].Name != "vm0" {
		t.Errorf("guests: %+v", guests)
	}
}

// Of several clusters on one OVN, each plugs interfaces under its own prefix, and binds the
// machines that are plugged under it.
func TestCluster(t *testing.T) {
	n := newNode(t, func(c *config.Config) { c.Backend.Cluster = "east" })
	must(t, n.reconcile(bound(t)))
	at := n.pod("web")
	must(t, n.ovs.ConnectOVN("east:mgmt-n1", "east:shop/web.eth0"))
	must(t, n.Attach(bound(t), at, 0))
	for name, id := range map[string]string{"vm0": "east:shop/vm", "vm1": "shop/vm"} {
		must(t, n.ovs.AddPort("br-int", name, map[string]string{"iface-id": id}))
	}
	<-n.seen("vm0", "vm1")
	guests, err := n.Guests(bound(t))
	must(t, err)
	if len(guests) != 1 || guests[0].ID != "shop/vm" || guests[0].Name != "vm0" {
		t.Errorf("guests: %+v", guests)
	}
}

// seen is closed when the backend knows interfaces that say what they are plugged for.
func (n *node) seen(names ...string) <-chan struct{} {
	done := make(chan struct{})
	changes, stop := n.db.Watch()
	n.Cleanup(stop)
	ctx := bound(n.T)
	go func() {
		for {
			states, err := n.ports.states(ctx)
			if err == nil && !slices.ContainsFunc(names, func(name string) bool { _, ok := states[name]; return !ok }) {
				close(done)
				return
			}
			select {
			case <-changes:
			case <-ctx.Done():
				return
			}
		}
	}()
	return done
}

// The node's kernel reaches pods by the management port. No pod gets its addresses.
func TestManagement(t *testing.T) {
	n := newNode(t, nil)
	must(t, n.reconcile(bound(t)))
	d := n.kernel.desired
	prefixes := func(list ...string) (ps []netip.Prefix) {
		for _, p := range list {
			ps = append(ps, netip.MustParsePrefix(p))
		}
		return ps
	}
	if want := prefixes("10.244.1.254/24", "fd44:1::ffff:ffff:ffff:ffff/64"); !slices.Equal(d.Gateway.Addresses, want) {
		t.Errorf("addresses %v, want %v", d.Gateway.Addresses, want)
	}
	if d.Gateway.MTU != 1500-50-8 {
		t.Errorf("MTU %d", d.Gateway.MTU)
	}
	own, router := netip.MustParseAddr("10.244.1.254"), netip.MustParseAddr("10.244.1.1")
	for _, want := range []hostnet.Route{
		{Destination: prefixes("10.244.1.0/24")[0], Gateway: true, Source: own},
		{Destination: prefixes("10.244.2.0/24")[0], Via: router, Gateway: true, Source: own},
	} {
		if !slices.Contains(d.Routes, want) {
			t.Errorf("no route %+v in %+v", want, d.Routes)
		}
	}
	if !d.SNAT.Enabled || !slices.Equal(d.SNAT.Pods, prefixes("10.244.1.0/24", "fd44:1::/64")) || d.Guard.Tunnel != 6081 {
		t.Errorf("SNAT %+v, guard %+v", d.SNAT, d.Guard)
	}
	_, err := n.store.Allocate(attachment.Plan{
		Spec:      attachment.Spec{Key: attachment.Key{ContainerID: "c", IfName: "eth0"}, PodNamespace: "shop", PodName: "thief"},
		Requested: attachment.Requested{Addresses: []netip.Addr{own}},
	})
	n.says(err, "the node itself")
}

// A pod that has the management address from a time with another backend keeps the node from being
// ready, and is named.
func TestManagementTaken(t *testing.T) {
	n := newNode(t, nil)
	_, err := n.store.Allocate(attachment.Plan{
		Spec:      attachment.Spec{Key: attachment.Key{ContainerID: "c", IfName: "eth0"}, PodNamespace: "shop", PodName: "older"},
		Requested: attachment.Requested{Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.254")}},
	})
	must(t, err)
	n.says(n.reconcile(bound(t)), "shop/older")
	if got := n.Conditions.All()[condBridge]; !strings.Contains(got, "recreate that pod") {
		t.Errorf("condition %q", got)
	}
}

// ovn-controller does without what makes older releases of ovs-vswitchd abort on the userspace
// datapath, also after ovs-vswitchd has started anew. Nothing else is written.
func TestAvoidsAborts(t *testing.T) {
	for name, tc := range map[string]struct {
		version, datapath string
		want              string
	}{
		"userspace":                  {"3.1.0", "netdev", "false"},
		"userspace, mended":          {"3.3.0", "netdev", "true"},
		"another type than br-int's": {"3.1.0", "system", "true"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, nil)
			n.ovs.Answer("version", "ovs-vswitchd (Open vSwitch) "+tc.version+"\n")
			n.status.asked.Store(false)
			for _, start := range []string{"first", "second"} {
				must(t, n.ovs.StartDatapath(tc.datapath, map[string]string{"ct_zero_snat": "true", "ct_zone": "true"}))
				must(t, n.ovs.SetExternalIDs(map[string]string{"start": start}))
				<-n.ids("start", start) // then the backend knows the datapath as well
				must(t, n.reconcile(bound(t)))
				writes := n.ovs.Writes()
				must(t, n.reconcile(bound(t)))
				if n.ovs.Writes() != writes {
					t.Error("it is written again")
				}
				got, err := n.ovs.Capabilities(tc.datapath)
				must(t, err)
				if got["ct_zero_snat"] != tc.want || got["ct_zone"] != "true" {
					t.Errorf("capabilities %v, want %s", got, tc.want)
				}
			}
		})
	}
}

// ovn-controller is an administrator's, unless the configuration says where the southbound database
// is; keys of others stay as they are.
func TestConfigure(t *testing.T) {
	n := newNode(t, nil)
	theirs := map[string]string{"ovn-remote": "tcp:192.0.2.9:6642", "ovn-bridge-mappings": "office:br-office", "other": "1"}
	must(t, n.ovs.SetExternalIDs(theirs))
	<-n.ids("ovn-remote", "tcp:192.0.2.9:6642")
	must(t, n.reconcile(bound(t)))
	if err := n.Connected("office"); err == nil || !strings.Contains(err.Error(), "bridge br-office does not exist") {
		t.Errorf("connected: %v", err)
	}
	n.says(n.Connected("lab"), "ovn-bridge-mappings")
	must(t, n.ovs.AddBridge("br-office", "netdev"))
	changes, stop := n.db.Watch()
	defer stop()
	for n.Connected("office") != nil {
		must(t, n.reconcile(bound(t)))
		if n.Connected("office") != nil {
			<-changes
		}
	}
	if known := n.PhysicalNetworks(); len(known) != 1 || !known["office"] {
		t.Errorf("physical networks %v", known)
	}
	managed := restart(t, n.ovs, n.store, func(c *config.Config) {
		c.Backend.Southbound = "ssl:192.0.2.7:6642"
	})
	must(t, managed.reconcile(bound(t)))
	<-managed.ids("ovn-remote", "ssl:192.0.2.7:6642")
	ids, err := managed.db.ExternalIDs(bound(t))
	must(t, err)
	for key, want := range map[string]string{
		"ovn-encap-type": "geneve", "ovn-encap-ip": "192.0.2.1", "system-id": "n1", "other": "1",
		"ovn-bridge-mappings": "office:br-office",
	} {
		if ids[key] != want {
			t.Errorf("%s is %q, want %q", key, ids[key], want)
		}
	}
}

// ids is closed when the backend knows an external id of Open vSwitch.
func (n *node) ids(key, value string) <-chan struct{} {
	done := make(chan struct{})
	changes, stop := n.db.Watch()
	n.Cleanup(stop)
	ctx := bound(n.T)
	go func() {
		for {
			ids, err := n.db.ExternalIDs(ctx)
			if err == nil && ids[key] == value {
				close(done)
				return
			}
			select {
			case <-changes:
			case <-ctx.Done():
				return
			}
		}
	}()
	return done
}

// Without ovn-controller's bridge no pod can be attached, and the condition says what is missing.
func TestNoBridge(t *testing.T) {
	o := ovsfake.New(t)
	store, err := attachment.Open(filepath.Join(t.TempDir(), "state.db"))
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	n := restart(t, o, store, nil)
	n.says(n.reconcile(bound(t)), "bridge br-int does not exist")
	var unmet *conditions.UnmetError
	if err := n.Conditions.Attaching(); !errors.As(err, &unmet) || unmet.Condition.Name != condBridge {
		t.Errorf("condition %v", err)
	}
}

// A trace is answered with the logical port that the packet enters OVN by, and the command that OVN
// has for it. The packet is sent to the Ethernet address of the next hop, as OVN has it.
func TestTrace(t *testing.T) {
	n := newNode(t, nil)
	must(t, n.reconcile(bound(t)))
	n.pod("web")
	n.configured(map[string]string{"system-id": "n1", "ovn-remote": "tcp:192.0.2.1:6642"})
	var asked string
	var failure error
	n.ethernet = func(_ context.Context, o southbound.Options, port string, a netip.Addr) (string, error) {
		asked = fmt.Sprint(o.Remotes, " ", port, " ", a)
		return "0a:5c:00:f4:01:01", failure
	}
	n.traces("shop/web.eth0", "ovn-trace net-default@n1 ")
	if want := "[tcp:192.0.2.1:6642] shop/web.eth0 10.244.1.1"; asked != want {
		t.Errorf("asked for %s, want %s", asked, want)
	}
	failure = errors.New("connection refused")
	got, err := n.Trace(bound(t), traceOf("shop/web", "10.244.2.7"))
	const want = "eth.dst, the Ethernet address of 10.244.1.1, to it: connection refused"
	if err != nil || got.Outcome.Incomplete != want {
		t.Errorf("incomplete is %q, %v; want %q", got.Outcome.Incomplete, err, want)
	}
	_, err = n.Trace(bound(t), traceOf("shop/other", "10.244.2.7"))
	n.says(err, `"shop/other" is none`)
	_, err = n.Trace(bound(t), traceOf("shop/web", "fd00::7"))
	n.says(err, "shop/web/eth0 has no address of the family of fd00::7")
}

func TestNextHop(t *testing.T) {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	red := intent.Network{Name: "red", Subnets: []intent.NetworkSubnet{
		{Prefix: prefix("10.10.0.0/16"), Gateway: addr("10.10.0.1")}, {Prefix: prefix("fd10::/64"), Gateway: addr("fd10::1")},
		{Prefix: prefix("10.11.0.0/16")},
	}}
	s, err := intent.NewStore().Update(func(tx *intent.Tx) error {
		tx.SetNode(intent.Node{Name: "n1", Subnets: []intent.Subnet{
			{Network: "default", Prefix: prefix("10.244.1.0/24"), Gateway: addr("10.244.1.1")},
		}})
		return nil
	})
	must(t, err)
	for _, tc := range []struct {
		name                      string
		network                   intent.Network
		source, destination, want string
	}{
		{"on link", red, "10.10.0.5", "10.10.9.9", "10.10.9.9"},
		{"by the gateway", red, "10.10.0.5", "10.12.0.1", "10.10.0.1"},
		{"IPv6", red, "fd10::5", "fd11::1", "fd10::1"},
		{"without a gateway", red, "10.11.0.5", "10.12.0.1", "10.12.0.1"},
		{"node's addresses, on link", intent.Network{Name: "default"}, "10.244.1.5", "10.244.1.6", "10.244.1.6"},
		{"node's addresses, another node's", intent.Network{Name: "default"}, "10.244.1.5", "10.244.2.6", "10.244.1.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := nextHop(s, tc.network, "n1", addr(tc.source), addr(tc.destination)); got != addr(tc.want) {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// With the backend neutron that is the port's UUID in Neutron, by which OVN finds the switch, and
// which lists of ports have. One that is not known has no trace.
func TestTraceFromPortOfNeutron(t *testing.T) {
	const uuid = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"
	n := newNode(t, func(c *config.Config) { c.Backend.Type = config.NeutronBackend })
	must(t, n.reconcile(bound(t)))
	n.pod("web")
	n.named(uuids{neutronports.New(nil), uuid})
	n.configured(map[string]string{"system-id": "n1", "ovn-remote": "tcp:192.0.2.1:6642"})
	n.ethernet = func(context.Context, southbound.Options, string, netip.Addr) (string, error) {
		return "0a:5c:00:f4:01:01", nil
	}
	n.traces(uuid, "ovn-trace ")
	list, err := n.Ports(bound(t))
	if err != nil || len(list) != 1 || list[0].Neutron != uuid {
		t.Errorf("ports %+v, %v", list, err)
	}
	n.named(uuids{neutronports.New(nil), ""})
	_, err = n.Trace(bound(t), traceOf("shop/web", "10.244.2.7"))
	n.says(err, "the port of shop/web/eth0 in Neutron is not known")
}

// named has ports be named by others than Coelan.
func (n *node) named(ports LogicalPorts) { n.logical, n.ports.logical = ports, ports }

// uuids has one port of Neutron for each attachment.
type uuids struct {
	LogicalPorts
	uuid string
}

func (u uuids) Port(attachment.Attachment) (string, int) { return u.uuid, 0 }

// traces wants a trace from shop/web to begin at a logical port, with this command.
func (n *node) traces(logical, command string) {
	n.Helper()
	got, err := n.Trace(bound(n.T), traceOf("shop/web", "10.244.2.7"))
	must(n.T, err)
	o := got.Outcome
	if got.Node != "n1" || o.Kind != "ovn" || o.LogicalPort != logical {
		n.Errorf("trace %+v", got)
	}
	begin := command + `--ct=new --ct=new --ct=new --ct=new 'inport == "` + logical + `" && eth.src == 0a:`
	const end = " && eth.dst == 0a:5c:00:f4:01:01 && ip4.src == 10.244.1.2 && ip4.dst == 10.244.2.7 && ip.ttl == 64 && tcp.dst == 80'"
	if !strings.HasPrefix(o.Command, begin) || !strings.HasSuffix(o.Command, end) {
		n.Errorf("command %s, want %s…%s", o.Command, begin, end)
	}
}

func traceOf(from, to string) agentapi.TraceRequest {
	return agentapi.TraceRequest{From: from, Destination: netip.MustParseAddr(to), Protocol: "tcp", DestinationPort: 80}
}
