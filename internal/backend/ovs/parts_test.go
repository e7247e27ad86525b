// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/nodeview"
	"coelan.io/coelan/openflow"
)

// findings are what a check finds, as text.
func (n *testNode) findings() []string {
	n.Helper()
	var c agentapi.Check
	n.must(n.Findings(n.bound(), &c))
	var list []string
	for _, f := range c.Findings {
		list = append(list, f.Kind+" "+f.Object+" "+f.Problem)
	}
	slices.Sort(list)
	return list
}

// A check finds nothing on a node that is as it should be, and names each thing that is not.
func TestFindings(t *testing.T) {
	m := newMachine(t)
	c := m.testConfig()
	m.connectedTo("office")
	n := m.start(c)
	n.addBridge("br-office", "netdev")
	n.reconciled()
	a, revision := n.pod("a")
	b, _ := n.pod("b")
	n.must(n.flows.sync(n.bound(), n.intent.State()))
	n.must(n.Attach(n.bound(), a, revision))
	n.must(n.Attach(n.bound(), b, revision))
	vm, err := n.store.Allocate(attachment.Plan{Spec: attachment.Spec{
		Key: attachment.PortKey("default", "vm"), PodNamespace: "default", PodName: "vm", PortName: "vm",
		HostInterface: "tap0",
	}})
	n.must(err)
	m.ovs.Answer("dpctl/ct-stats-show", "")
	usual := n.findings()
	usual = slices.DeleteFunc(usual, func(f string) bool { return strings.HasPrefix(f, "conntrack") })
	missing := "port tap0 of default/vm is missing on bridge br-int, or has OpenFlow port 0 instead of "
	if want := []string{missing + decimal(vm.OFPort)}; !slices.Equal(usual, want) {
		t.Errorf("a check finds %q, want %q", usual, want)
	}
	n.must(m.ovs.DeletePort("br-int", a.HostInterface))
	n.must(m.ovs.DeletePort("br-int", "coelan-gw0"))
	m.ovs.Break(b.HostInterface, "no such device")
	left := ovsdb.Port{Name: "co-left", OFPort: 99, ExternalIDs: map[string]string{idInterface: "default/gone/eth0"}}
	n.must(n.clients.db.EnsurePorts(n.bound(), "br-int", left))
	n.update(func(tx *intent.Tx) { tx.DeletePort(b.Key.String()) })
	got := strings.Join(n.findings(), "\n")
	for _, want := range []string{
		"port " + a.HostInterface + " of default/a/eth0 is missing on bridge br-int",
		"port " + b.HostInterface + " of default/b/eth0 has OpenFlow port -1 instead of " + decimal(b.OFPort) + ": no such device",
		"port coelan-gw0 is missing on bridge br-int or does not work: ",
		"port co-left belongs to no pod; it was of default/gone/eth0", "belongs to nothing",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("a check does not find %q:\n%s", want, got)
		}
	}
	ports, err := n.Ports(n.bound())
	n.must(err)
	ready := map[string]bool{}
	for _, p := range ports {
		ready[p.PodRef()] = p.Ready
	}
	want := map[string]bool{"default/a/eth0": false, "default/b/eth0": false, "default/vm": false}
	if diff := cmp.Diff(want, ready); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

func decimal(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// The status names the release, the bridge, and what is wrong with ports.
func TestStatus(t *testing.T) {
	m := newMachine(t)
	c := m.testConfig()
	m.connectedTo("office")
	n := m.start(c)
	err := n.reconciler.reconcile(n.bound())
	n.says(err, "physical network office: bridge br-office does not exist")
	n.must(n.flows.sync(n.bound(), n.intent.State()))
	var s agentapi.Status
	n.Report(&s)
	if s.OVS.Version != "3.1.0" || s.OVS.Bridge != "br-int" || s.OVS.Datapath != "netdev" || !s.OVS.Connected ||
		s.Sync.Syncs != 1 || s.Host.Changes != 3 {
		t.Errorf("status %+v", s)
	}
	if len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "bridge br-office does not exist") {
		t.Errorf("problems %q", s.Problems)
	}
	families, err := n.Metrics.(*prometheus.Registry).Gather()
	n.must(err)
	names := map[string]bool{}
	for _, f := range families {
		names[f.GetName()] = true
	}
	for _, want := range []string{
		"coelan_flows", "coelan_host_writes_total", "coelan_tunnels", "coelan_refused_objects",
		"coelan_ovs_connections_total",
	} {
		if !names[want] {
			t.Errorf("there is no metric %s", want)
		}
	}
}

// A node's MTU follows its uplink, and settings that do not fit are named.
func TestLocalOfNodes(t *testing.T) {
	m := newMachine(t)
	six := intent.Subnet{Prefix: netip.MustParsePrefix("fd44:1::/64"), Gateway: addr("fd44:1::1")}
	for name, tc := range map[string]struct {
		change func(c *config.Config, u *hostnet.Uplink, node *intent.Node)
		mtu    int
		err    string
	}{
		"without tunnels":    {func(*config.Config, *hostnet.Uplink, *intent.Node) {}, 1500, ""},
		"with tunnels":       {func(c *config.Config, _ *hostnet.Uplink, _ *intent.Node) { c.Encapsulation = config.Geneve }, 1450, ""},
		"as it is set":       {func(c *config.Config, _ *hostnet.Uplink, _ *intent.Node) { c.MTU = 1300 }, 1300, ""},
		"larger than it can": {func(c *config.Config, _ *hostnet.Uplink, _ *intent.Node) { c.MTU = 9000 }, 0, "mtu: 9000 is too large, interface eth0 with MTU 1500 carries pods' packets of at most 1500 bytes"},
		"too small for IPv6": {func(_ *config.Config, u *hostnet.Uplink, node *intent.Node) {
			u.MTU, node.Subnets = 1279, append(slices.Clone(node.Subnets), six)
		}, 0, "interface eth0 with MTU 1279 leaves pods 1279 bytes, but IPv6 needs 1280"},
	} {
		t.Run(name, func(t *testing.T) {
			c, u := m.testConfig(), m.uplink
			node, _ := m.intent.State().Nodes().Get("n1")
			tc.change(&c, &u, &node)
			r := &reconciler{
				config: c, intent: m.intent, attachments: m.store,
				findUplink: func(netip.Addr) (hostnet.Uplink, error) { return u, nil },
			}
			l, _, err := r.local(r.config, node, intent.DatapathNetdev)
			switch {
			case tc.err == "" && (err != nil || l.MTU != tc.mtu):
				t.Errorf("MTU %d, %v; want %d", l.MTU, err, tc.mtu)
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("error %v, want %q", err, tc.err)
			}
		})
	}
}

// heldDatabase is a database that only has bridges.
type heldDatabase struct {
	vswitchDatabase
	list  []ovsdb.BridgeState
	armed *bool
	set   *ovsdb.Bridge
}

func (b heldDatabase) Bridges(context.Context) ([]ovsdb.BridgeState, error) { return b.list, nil }

func (b heldDatabase) ReleaseFlowRestore(_ context.Context, arm bool) error {
	*b.armed = arm
	return nil
}

func (b heldDatabase) EnsureBridge(_ context.Context, want ovsdb.Bridge) error {
	*b.set = want
	return nil
}

// A switch that holds its flows back is let go. It holds back at its next start only where that
// cannot cut others off.
func TestHoldingBack(t *testing.T) {
	own := ovsdb.BridgeState{Name: "br-int", Own: true}
	other := ovsdb.BridgeState{Name: "br-ext"}
	for name, tc := range map[string]struct {
		datapath intent.Datapath
		list     []ovsdb.BridgeState
		want     bool
	}{
		"kernel's datapath":           {intent.DatapathSystem, []ovsdb.BridgeState{own}, true},
		"beside a bridge of others":   {intent.DatapathSystem, []ovsdb.BridgeState{own, other}, false},
		"the userspace datapath's":    {intent.DatapathNetdev, []ovsdb.BridgeState{own}, false},
		"userspace, beside of others": {intent.DatapathNetdev, []ovsdb.BridgeState{own, other}, false},
	} {
		t.Run(name, func(t *testing.T) {
			store := intent.NewStore(nodeview.Services("n1"))
			_, err := store.Update(func(tx *intent.Tx) error {
				tx.SetLocal(intent.Local{Node: "n1", Datapath: tc.datapath})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			armed := !tc.want
			db := heldDatabase{list: tc.list, armed: &armed}
			v := &vswitch{config: config.Config{Bridge: "br-int"}, intent: store, db: db}
			if err := v.release(t.Context()); err != nil || armed != tc.want {
				t.Errorf("holds back: %v, %v", armed, err)
			}
		})
	}
}

// An ovs-vswitchd without threads for new flows is found; it is asked once for each connection.
func TestVswitchdWithoutHandlers(t *testing.T) {
	m := newMachine(t)
	n := m.start(m.testConfig())
	m.ovs.Answer("memory/show", "revalidators:1\n")
	n.says(n.vswitch.checkHandlers(n.bound()), "restart it (systemctl restart openvswitch-switch)")
	n.reconciled()
	m.ovs.Calls()
	n.reconciled()
	if calls := m.ovs.Calls(); slices.Contains(calls, "version") {
		t.Errorf("asked again: %v", calls)
	}
	n.clients.connections.switchConnected()
	n.reconciled()
	if calls := m.ovs.Calls(); !slices.Contains(calls, "version") {
		t.Errorf("not asked after a restart: %v", calls)
	}
}

// Tunnels of the userspace datapath need the node's address on a bridge. The kernel is told the
// network cards in it.
func TestTunnelsOfTheUserspaceDatapath(t *testing.T) {
	m := newMachine(t)
	c := m.testConfig()
	c.Encapsulation = config.VXLAN
	n := m.start(c)
	n.says(n.reconciler.reconcile(n.bound()), "node address 192.0.2.1 is on interface eth0, which is no Open vSwitch bridge")
	n.addBridge("br-ext", "netdev", "eth0")
	m.uplink.Name = "br-ext"
	n.must(n.reconciler.reconcile(n.bound()))
	host := n.kernel.holds()
	if host == nil || !slices.Equal(host.Cards, []string{"eth0"}) || host.Uplink != "br-ext" {
		t.Errorf("host %+v", host)
	}
	if ports := n.portNames("br-int"); !slices.Contains(ports, tunnelPort) {
		t.Errorf("ports %v", ports)
	}
	if peers := tunnelPeers(n.intent.State()); !slices.Equal(peers, []netip.Addr{addr("192.0.2.2")}) {
		t.Errorf("peers %v", peers)
	}
}

// A trace is asked for with the packet that its question means.
func TestTracedPackets(t *testing.T) {
	m := newMachine(t)
	c := m.testConfig()
	c.Services.Mode = config.KubeProxy
	n := m.start(c)
	at, _ := n.pod("a")
	b, _ := n.pod("b")
	m.ovs.Answer("ofproto/trace", "Flow: in_port=20\n\nbridge(\"br-int\")\n----\n 0. priority 0\n    drop\n\nFinal flow: unchanged\nDatapath actions: drop\n")
	port := "in_port=" + decimal(at.OFPort)
	pod, gateway := addr("10.244.1.10"), datapath.GatewayMAC.String()
	for name, tc := range map[string]struct {
		r    agentapi.TraceRequest
		want string
		err  string
	}{
		"a neighbour": {agentapi.TraceRequest{From: "default/a", Destination: addr("10.244.1.11"), Protocol: "tcp", DestinationPort: 80},
			port + ",dl_src=" + at.MAC.String() + ",dl_dst=" + b.MAC.String() + ",tcp,tcp_src=0,tcp_dst=80,nw_src=10.244.1.10,nw_dst=10.244.1.11,nw_ttl=64", ""},
		"another node": {agentapi.TraceRequest{From: "default/a/eth0", Destination: addr("10.244.2.9"), TTL: 3},
			port + ",dl_src=" + at.MAC.String() + ",dl_dst=" + datapath.RouterMAC.String() + ",icmp,icmp_type=8,icmp_code=0,nw_src=10.244.1.10,nw_dst=10.244.2.9,nw_ttl=3", ""},
		"the gateway": {agentapi.TraceRequest{From: "gateway", Source: addr("192.0.2.9"), Destination: pod, Protocol: "udp", SourcePort: 1, DestinationPort: 2},
			"in_port=2,dl_src=" + gateway, ""},
		"the tunnel":          {agentapi.TraceRequest{From: "tunnel", TunnelSource: addr("192.0.2.2"), VNI: 1, Source: addr("10.244.2.9"), Destination: pod}, "in_port=1,tun_id=1,tun_src=192.0.2.2", ""},
		"IPv6":                {agentapi.TraceRequest{From: "gateway", Source: addr("fd00::1"), Destination: addr("fd00::2")}, "icmp6,icmpv6_type=128,icmpv6_code=0,ipv6_src=fd00::1,ipv6_dst=fd00::2", ""},
		"no destination":      {agentapi.TraceRequest{From: "default/a"}, "", "destination: is missing"},
		"from nowhere":        {agentapi.TraceRequest{Destination: pod}, "", "from: is missing"},
		"no such pod":         {agentapi.TraceRequest{From: "default/none", Destination: pod}, "", "from: node n1 has no pod default/none"},
		"no source":           {agentapi.TraceRequest{From: "gateway", Destination: pod}, "", "source: is missing"},
		"a tunnel of none":    {agentapi.TraceRequest{From: "tunnel", Destination: pod}, "", "tunnelSource and vni: are needed"},
		"two families":        {agentapi.TraceRequest{From: "gateway", Source: addr("fd00::1"), Destination: pod}, "", "are of different families"},
		"a pod without IPv6":  {agentapi.TraceRequest{From: "default/a", Destination: addr("fd00::2")}, "", "default/a has no address of the family of fd00::2"},
		"an unknown protocol": {agentapi.TraceRequest{From: "default/a", Destination: pod, Protocol: "gre"}, "", `protocol: "gre" is not one of tcp, udp, sctp, icmp`},
	} {
		t.Run(name, func(t *testing.T) {
			m.ovs.Calls()
			trace, err := n.Trace(n.bound(), tc.r)
			var bad *backend.BadRequestError
			if tc.err != "" {
				if !errors.As(err, &bad) || !strings.Contains(bad.Problem, tc.err) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			calls := m.ovs.Calls()
			if len(calls) != 1 || !strings.HasPrefix(calls[0], "ofproto/trace br-int ") || !strings.Contains(calls[0], tc.want) {
				t.Errorf("ovs-vswitchd is asked %q, want %s", calls, tc.want)
			}
			if trace.Outcome.Kind != "drop" || trace.Node != "n1" {
				t.Errorf("trace %+v", trace)
			}
		})
	}
}

// An older release's connections are forgotten once, when its flows are gone.
func TestOtherLayoutOfConntrack(t *testing.T) {
	m := newMachine(t)
	m.update(func(tx *intent.Tx) { tx.SetLocal(intent.Local{Node: "n1", Datapath: intent.DatapathNetdev}) })
	var sent []openflow.Message
	var set ovsdb.Bridge
	state := ovsdb.BridgeState{Name: "br-int", Own: true, ExternalIDs: map[string]string{idConntrackLayout: "0"}}
	n := m.start(m.testConfig())
	v := n.vswitch
	v.send = func(_ context.Context, messages []openflow.Message) error {
		sent = append(sent, messages...)
		return nil
	}
	v.db = heldDatabase{list: []ovsdb.BridgeState{state}, set: &set}
	n.must(v.renewConntrack(n.bound()))
	zones := map[uint16]bool{}
	for _, message := range sent {
		if f, ok := message.(*openflow.CTFlushZone); ok {
			zones[f.Zone] = true
		}
	}
	if !zones[uint16(intent.DefaultRouter)] || set.ExternalIDs[idConntrackLayout] != strconv.Itoa(pipeline.ConntrackLayout) {
		t.Errorf("forgets zones %v, sets %+v", zones, set)
	}
	sent, state.ExternalIDs = nil, set.ExternalIDs
	v.db = heldDatabase{list: []ovsdb.BridgeState{state}}
	n.must(v.renewConntrack(n.bound()))
	if len(sent) > 0 {
		t.Errorf("forgets again: %v", sent)
	}
	v.db = heldDatabase{}
	n.says(v.renewConntrack(n.bound()), "bridge br-int does not exist")
}

// What is removed from a node is Coelan's: its bridges and its wires. Bridges of others stay.
func TestUninstall(t *testing.T) {
	m := newMachine(t)
	c := m.testConfig()
	m.connectedTo("office")
	n := m.start(c)
	n.addBridge("br-office", "netdev", "eth1")
	n.reconciled()
	n.beside("a")
	if ports := n.portNames("br-office"); len(ports) != 2 {
		t.Errorf("ports %v, want the card and the wire", ports)
	}
	n.Close()
	for range 2 {
		m.must(removeBridge(m.bound(), c))
	}
	db := ovsdb.Open(ovsdb.Options{Socket: m.ovs.Socket(), Logger: n.Log})
	defer db.Close()
	got, err := db.Bridges(m.bound())
	m.must(err)
	if len(got) != 1 || got[0].Name != "br-office" || !slices.Equal(got[0].Ports, []string{"br-office", "eth1"}) {
		t.Errorf("bridges %+v", got)
	}
	var removals []string
	for _, r := range Removals(t.Context(), c) {
		removals = append(removals, r.What)
	}
	if !slices.Contains(removals, "bridge br-int") || !slices.Contains(removals, "nftables table coelan-services") {
		t.Errorf("removes %v", removals)
	}
}

// The host's kernel is told the MAC that the bridge would answer with.
func TestNeighboursOfTheGateway(t *testing.T) {
	m := newMachine(t)
	n := m.start(m.testConfig())
	n.reconciled()
	at, _ := n.pod("a")
	for name, tc := range map[string]struct{ address, want string }{
		"a pod of this node": {"10.244.1.10", at.MAC.String()}, "another node's gateway": {"10.244.2.1", datapath.RouterMAC.String()},
		"an unknown address": {"10.244.1.99", ""}, "this node's own gateway": {"10.244.1.1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if mac, ok := gatewayNeighbour(n.intent.State(), addr(tc.address)); ok {
				got = mac.String()
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	if n.kernel.confirmed == 0 {
		t.Error("the kernel is told nothing when the switch comes back")
	}
	if !n.Reserves(intent.UDP, 4789) || n.Reserves(intent.UDP, 53) {
		t.Error("ports that the node needs are given away")
	}
}
