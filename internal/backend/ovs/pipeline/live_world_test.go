// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/openflow"
)

// world is two nodes, each with an Open vSwitch and two pods, and a host outside,
// on one wire. What the agent and the CNI plugin would do, it does by hand: it is
// about the flows.
type world struct {
	t        *testing.T
	netdev   bool
	encap    intent.Encapsulation
	fabric   *ovstest.Namespace
	outside  *ovstest.Namespace
	nodes    []*liveNode
	hostEnds map[*liveNode][]string // interfaces that only Open vSwitch may read
	// networks, routers, blocks, rules and peers beside the default ones.
	known intent.Objects
	// pods with a Subject in known; if policies are enforced, all others are open.
	governed map[*livePod]bool
}

// livePolicies is whether policies are enforced where a test does not say.
// COELAN_TEST_POLICIES=enforced has all tests pass by the tables of policies.
var livePolicies = intent.PolicyMode(cmp.Or(os.Getenv("COELAN_TEST_POLICIES"), string(intent.UnenforcedPolicies)))

type liveNode struct {
	*ovstest.Namespace
	ovs    *ovstest.OVS
	number int
	pods   []*livePod
	local  intent.Local
}

type livePod struct {
	*ovstest.Namespace
	port intent.Port
}

const (
	livePodsPerNode = 2
	wireMTU         = 1500
)

func (n *liveNode) address(v6 bool) string {
	if v6 {
		return fmt.Sprint("fd33::", 10+n.number)
	}
	return fmt.Sprint("192.168.33.", 10+n.number)
}

func (n *liveNode) subnet(v6 bool) netip.Prefix {
	if v6 {
		return netip.MustParsePrefix(fmt.Sprintf("fd00:10:244:%d::/64", n.number))
	}
	return netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", n.number))
}

func (n *liveNode) gateway(v6 bool) string { return n.subnet(v6).Addr().Next().String() }

func (p *livePod) address(v6 bool) string {
	if v6 {
		return p.port.Addresses[1].String()
	}
	return p.port.Addresses[0].String()
}

// outsideAddress is that of the host outside.
func outsideAddress(v6 bool) string {
	if v6 {
		return "fd33::100"
	}
	return "192.168.33.100"
}

// ip is the ip command for a family.
func ip(v6 bool) string {
	if v6 {
		return "ip -6"
	}
	return "ip -4"
}

// newWorld builds everything, and what more adds to it, and installs the flows.
func newWorld(t *testing.T, encap intent.Encapsulation, more ...func(context.Context, *world)) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	w := &world{t: t, encap: encap, hostEnds: map[*liveNode][]string{}}
	w.fabric, w.outside = w.namespace(), w.namespace()
	w.run(w.fabric, "ip link add br0 type bridge", "ip link set br0 up")
	w.plug("outside", w.outside)
	w.run(w.outside, "ip addr add 192.168.33.100/24 dev eth0", "ip addr add fd33::100/64 dev eth0 nodad", "ip link set eth0 up")
	for i := range 2 {
		w.addNode(ctx, i+1)
	}
	for _, v6 := range []bool{false, true} {
		for _, n := range w.nodes {
			// Sources of pods stay visible outside: masquerading is not what is tested.
			w.run(w.outside, fmt.Sprintf("%s route add %s via %s", ip(v6), n.subnet(v6), n.address(v6)))
		}
	}
	for _, add := range more {
		add(ctx, w)
	}
	for _, n := range w.nodes {
		w.deafen(n)
		w.sync(ctx, n)
	}
	return w
}

func (w *world) namespace() *ovstest.Namespace {
	w.t.Helper()
	ns, err := ovstest.NewNamespace("")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(ns.Close)
	return ns
}

// runIn runs a command in a namespace.
func runIn(ns *ovstest.Namespace, command string) (string, error) {
	var out []byte
	err := ns.Do(func() (err error) {
		args := strings.Fields(command)
		out, err = exec.Command(args[0], args[1:]...).CombinedOutput()
		return err
	})
	return string(out), err
}

func (w *world) run(ns *ovstest.Namespace, commands ...string) {
	w.t.Helper()
	for _, c := range commands {
		if out, err := runIn(ns, c); err != nil {
			w.t.Fatalf("%s: %v: %s", c, err, out)
		}
	}
}

// hurry makes the kernel give up on neighbors that do not answer after 0.3 s, not 3 s.
func (w *world) hurry(ns *ovstest.Namespace, dev string) {
	w.t.Helper()
	w.run(ns, "ip ntable change name arp_cache dev "+dev+" retrans 100", "ip ntable change name ndisc_cache dev "+dev+" retrans 100")
}

// join makes a pair of interfaces between two namespaces.
func (w *world) join(a *ovstest.Namespace, nameA string, b *ovstest.Namespace, nameB string, mtu int) {
	w.t.Helper()
	w.run(a, fmt.Sprintf("ip link add %s mtu %d type veth peer name %s mtu %d netns %s", nameA, mtu, nameB, mtu, b.Path()),
		"ip link set "+nameA+" up")
	if w.netdev { // the userspace datapath leaves checksums to the sender
		w.run(a, "ethtool -K "+nameA+" tx off")
		w.run(b, "ethtool -K "+nameB+" tx off")
	}
}

func (w *world) plug(name string, ns *ovstest.Namespace) {
	w.t.Helper()
	w.join(w.fabric, name, ns, "eth0", wireMTU)
	w.run(w.fabric, "ip link set "+name+" master br0")
}

func (w *world) addNode(ctx context.Context, number int) {
	w.t.Helper()
	n := &liveNode{Namespace: w.namespace(), number: number}
	n.ovs = ovstest.Start(w.t, ovstest.Options{Netns: n.Path()})
	w.netdev = n.ovs.Datapath == "netdev"
	w.plug(fmt.Sprint("node", number), n.Namespace)
	uplink := "eth0"
	if w.netdev {
		uplink = "br-phy"
		w.vsctl(ctx, n, "add-br br-phy -- set bridge br-phy datapath_type=netdev -- add-port br-phy eth0")
		w.hostEnds[n] = append(w.hostEnds[n], "eth0")
	}
	w.run(n.Namespace, "ip link set eth0 up", "ip link set "+uplink+" up",
		fmt.Sprintf("ip addr add %s/24 dev %s", n.address(false), uplink), fmt.Sprintf("ip addr add %s/64 dev %s nodad", n.address(true), uplink),
		"ip route add default via 192.168.33.100", "ip -6 route add default via fd33::100",
		"sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
	n.local = intent.Local{Node: fmt.Sprint("node", number), Encapsulation: w.encap, MTU: wireMTU, PolicyMode: livePolicies}
	tunnel := ""
	if w.encap.Tunneled() {
		n.local.TunnelIP, n.local.MTU = netip.MustParseAddr(n.address(false)), wireMTU-50
		tunnel = fmt.Sprintf("-- add-port br-int tun0 -- set interface tun0 type=%s ofport_request=1 options:remote_ip=flow options:key=flow", w.encap)
	}
	w.vsctl(ctx, n, fmt.Sprintf(`add-br br-int -- set bridge br-int datapath_type=%s fail_mode=secure %s
		-- add-port br-int coelan-gw0 -- set interface coelan-gw0 type=internal ofport_request=2 mac="%s" mtu_request=%d`,
		n.ovs.Datapath, tunnel, datapath.GatewayMAC, n.local.MTU))
	w.run(n.Namespace, "ip link set coelan-gw0 up",
		fmt.Sprintf("ip addr add %s/24 dev coelan-gw0", n.gateway(false)), fmt.Sprintf("ip addr add %s/64 dev coelan-gw0 nodad", n.gateway(true)))
	w.hurry(n.Namespace, "coelan-gw0")
	other := &liveNode{number: 3 - number}
	for _, v6 := range []bool{false, true} {
		via := fmt.Sprintf("via %s dev coelan-gw0 onlink", other.gateway(v6))
		if !w.encap.Tunneled() {
			via = "via " + other.address(v6)
		}
		w.run(n.Namespace, fmt.Sprintf("%s route add %s %s", ip(v6), other.subnet(v6), via))
	}
	w.nodes = append(w.nodes, n)
	for i := range livePodsPerNode {
		w.addPod(ctx, n, i)
	}
}

func (w *world) vsctl(ctx context.Context, n *liveNode, args string) {
	w.t.Helper()
	if _, err := n.ovs.Vsctl(ctx, strings.Fields(args)...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) addPod(ctx context.Context, n *liveNode, i int) {
	w.t.Helper()
	w.plugPod(ctx, n, intent.Port{
		Network:   "default",
		Addresses: []netip.Addr{at(n.subnet(false), 2+i), at(n.subnet(true), 2+i)},
	}, n.gateway(false), n.gateway(true))
}

// plugPod makes a pod on a network with a /24 and a /64 as subnets.
func (w *world) plugPod(ctx context.Context, n *liveNode, port intent.Port, gateways ...string) *livePod {
	w.t.Helper()
	i := len(n.pods)
	port.ID, port.Namespace, port.Pod, port.Interface = fmt.Sprintf("%d-%d/eth0", n.number, i), "default", fmt.Sprintf("pod%d-%d", n.number, i), "eth0"
	port.UID = port.Pod
	port.Node = n.local.Node
	port.MAC = reserved.PodMAC(port.Addresses[0])
	p := &livePod{Namespace: w.namespace(), port: port}
	n.pods = append(n.pods, p)
	hostEnd := fmt.Sprint("pod", i)
	w.join(n.Namespace, hostEnd, p.Namespace, "eth0", n.local.MTU)
	w.run(n.Namespace, "ip link set "+hostEnd+" up")
	w.hostEnds[n] = append(w.hostEnds[n], hostEnd)
	w.run(p.Namespace, "ip link set eth0 address "+p.port.MAC.String(), "ip link set eth0 up",
		fmt.Sprintf("ip addr add %s/24 dev eth0", p.address(false)), fmt.Sprintf("ip addr add %s/64 dev eth0 nodad", p.address(true)))
	for _, via := range gateways {
		w.run(p.Namespace, ip(strings.Contains(via, ":"))+" route add default via "+via)
	}
	w.hurry(p.Namespace, "eth0")
	w.vsctl(ctx, n, fmt.Sprintf("add-port br-int %s -- set interface %s ofport_request=%d", hostEnd, hostEnd, ofPort(p.port.ID)))
	return p
}

// deafen keeps the node's kernel from receiving what Open vSwitch's userspace
// datapath reads from the same interfaces.
func (w *world) deafen(n *liveNode) {
	w.t.Helper()
	if w.netdev {
		w.run(n.Namespace, "nft add table netdev deaf",
			"nft add chain netdev deaf ports { type filter hook ingress devices = { "+strings.Join(w.hostEnds[n], " , ")+" } priority 0 ; policy drop ; }")
	}
}

// state is the intent of a node.
func (w *world) state(n *liveNode) *intent.State {
	o := w.known
	o.Local, o.Nodes, o.Ports, o.Subjects = n.local, nil, nil, slices.Clone(o.Subjects)
	for _, node := range w.nodes {
		in := intent.Node{Name: node.local.Node}
		for _, v6 := range []bool{false, true} {
			in.Addresses = append(in.Addresses, netip.MustParseAddr(node.address(v6)))
			in.Subnets = append(in.Subnets, intent.Subnet{Network: "default", Prefix: node.subnet(v6), Gateway: netip.MustParseAddr(node.gateway(v6))})
		}
		o.Nodes = append(o.Nodes, in)
		for _, p := range node.pods {
			if node == n {
				o.Ports = append(o.Ports, p.port)
				if n.local.PolicyMode == intent.EnforcedPolicies && !w.governed[p] { // open
					o.Subjects = append(o.Subjects, intent.Subject{Key: p.port.SubjectKey()})
				}
			}
		}
	}
	return stateOf(w.t, o)
}

func (w *world) sync(ctx context.Context, n *liveNode) {
	w.t.Helper()
	conn, err := openflow.Dial(ctx, "unix:"+n.ovs.MgmtSocket("br-int"), openflow.ConnOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	b := bridge.New(bridge.Options{Connect: func(context.Context) (bridge.Switch, error) { return conn, nil }, Learned: Learned})
	if _, err := b.Sync(ctx, Desired(inputOf(w.state(n)))); err != nil {
		w.t.Fatal(err)
	}
	w.relearn(ctx, n)
}

// relearn has the datapath learn its flows anew after changes, as agents do.
func (w *world) relearn(ctx context.Context, n *liveNode) {
	w.t.Helper()
	if _, err := n.ovs.Appctl(ctx, "revalidator/purge"); err != nil {
		w.t.Fatal(err)
	}
}
