// SPDX-License-Identifier: Apache-2.0

//go:build integration

package announce

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"go.uber.org/goleak"
)

// The nodes of these tests are processes of this test's own program, each in a network namespace, on one wire with a client.
const (
	asNode      = "COELAN_ANNOUNCE_TEST_NODE"
	inNamespace = "COELAN_ANNOUNCE_TEST_NAMESPACE"
	gateway     = "gw0"
	testPort    = 10362
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asNode) != "":
		if err := beNode(os.Getenv(asNode)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case os.Getenv(inNamespace) == "":
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Env = append(os.Environ(), inNamespace+"=1")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Run(); err != nil {
			os.Exit(1)
		}
	default:
		goleak.VerifyTestMain(m)
	}
}

// beNode runs an Announcer; each line of its input is a Desired, each line of its output what it gained or lost.
func beNode(options string) error {
	var o Options
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return err
	}
	o.SysctlDir, o.Gateway = "/proc/sys", gateway
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("at", o.Node)
	o.Gained = func(a netip.Addr) { fmt.Println("gained", a) }
	o.Lost = func(a netip.Addr) { fmt.Println("lost", a) }
	a := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		for in := json.NewDecoder(os.Stdin); ; {
			var d Desired
			if in.Decode(&d) != nil {
				return
			}
			a.Set(d)
		}
	}()
	return a.Run(ctx)
}

// node is one of the cluster.
type node struct {
	t     *testing.T
	peer  Peer
	o     Options
	cmd   *exec.Cmd
	input io.WriteCloser

	mu    sync.Mutex
	lines []string
}

// segment is the wire: nodes and a client, with some addresses of load balancers.
type segment struct {
	t     *testing.T
	nodes []*node
}

func run(t *testing.T, command string) string {
	t.Helper()
	args := strings.Fields(command)
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

func newSegment(t *testing.T, n int, keyFile string) *segment {
	t.Helper()
	s := &segment{t: t}
	run(t, "ip link add wire type bridge mcast_snooping 0")
	t.Cleanup(func() { run(t, "ip link del wire") })
	run(t, "ip link set wire up")
	for i := range n + 1 {
		s.attach(i, keyFile)
	}
	return s
}

// attach makes the namespace of node i; the last one is the client's.
func (s *segment) attach(i int, keyFile string) {
	t := s.t
	t.Helper()
	ns := fmt.Sprintf("ann%d", i)
	_ = exec.Command("ip", "netns", "del", ns).Run()
	run(t, "ip netns add "+ns)
	t.Cleanup(func() { run(t, "ip netns del "+ns) })
	run(t, "ip netns exec "+ns+" sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.default.dad_transmits=0 "+
		"net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
	run(t, fmt.Sprintf("ip link add port%d type veth peer name up0 netns %s", i, ns))
	t.Cleanup(func() { run(t, fmt.Sprintf("ip link del port%d", i)) })
	run(t, fmt.Sprintf("ip link set port%d master wire up", i))
	run(t, "ip -n "+ns+" link set lo up")
	run(t, "ip -n "+ns+" link set up0 up")
	a := netip.MustParseAddr(fmt.Sprintf("192.168.70.%d", i+1))
	run(t, fmt.Sprintf("ip -n %s addr add %s/24 dev up0", ns, a))
	run(t, fmt.Sprintf("ip -n %s addr add fd70::%d/64 dev up0 nodad", ns, i+1))
	run(t, "ip -n "+ns+" link add "+gateway+" type veth peer name pgw0")
	run(t, "ip -n "+ns+" link set "+gateway+" up")
	p := Peer{Name: fmt.Sprintf("node%d", i), Addr: a}
	s.nodes = append(s.nodes, &node{t: t, peer: p, o: Options{Node: p.Name, Address: a, Port: testPort, KeyFile: keyFile}})
}

func (s *segment) cluster() []*node { return s.nodes[:len(s.nodes)-1] }

// pool are addresses on the nodes' subnets, in both families.
func lbAddresses(n int) (all []netip.Addr) {
	for i := range n {
		all = append(all, netip.MustParseAddr(fmt.Sprintf("192.168.70.%d", 100+i)), netip.MustParseAddr(fmt.Sprintf("fd70::1:%d", i)))
	}
	return all
}

// desired has all nodes be eligible for all addresses.
func (s *segment) desired(addresses []netip.Addr) Desired {
	var d Desired
	for _, n := range s.cluster() {
		d.Peers = append(d.Peers, n.peer)
	}
	for _, a := range addresses {
		var names []string
		for _, p := range d.Peers {
			names = append(names, p.Name)
		}
		d.Addresses = append(d.Addresses, Address{a, names})
	}
	return d
}

func (n *node) namespace() string { return strings.Replace(n.peer.Name, "node", "ann", 1) }

func (n *node) start() {
	n.t.Helper()
	o, err := json.Marshal(struct {
		Node    string
		Address netip.Addr
		Port    int
		KeyFile string
	}{n.o.Node, n.o.Address, n.o.Port, n.o.KeyFile})
	must(n.t, err)
	exe, err := os.Executable()
	must(n.t, err)
	n.cmd = exec.Command("ip", "netns", "exec", n.namespace(), exe)
	n.cmd.Env = append(os.Environ(), asNode+"="+string(o))
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	n.cmd.Stderr = n.t.Output()
	n.input, err = n.cmd.StdinPipe()
	must(n.t, err)
	out, err := n.cmd.StdoutPipe()
	must(n.t, err)
	n.mu.Lock()
	n.lines = nil
	n.mu.Unlock()
	must(n.t, n.cmd.Start())
	cmd := n.cmd
	n.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			n.mu.Lock()
			n.lines = append(n.lines, lines.Text())
			n.mu.Unlock()
		}
	}()
}

func (n *node) said(line string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.lines, line)
}

func (n *node) set(d Desired) {
	n.t.Helper()
	b, err := json.Marshal(d)
	must(n.t, err)
	_, err = n.input.Write(append(b, '\n'))
	must(n.t, err)
}

// kill ends the agent; its kernel stays.
func (n *node) kill() {
	n.t.Helper()
	must(n.t, n.cmd.Process.Kill())
	_ = n.cmd.Wait()
}

// answers are what the node's kernel answers for.
func (n *node) answers() string {
	n.t.Helper()
	out := run(n.t, "ip -n "+n.namespace()+" neigh show proxy")
	var all []string
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if words := strings.Fields(line); len(words) > 0 {
			all = append(all, words[0])
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, limit time.Duration, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > limit {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(start)
}

// start starts all nodes with the same addresses and waits until each has one owner, the right one.
func (s *segment) start(addresses []netip.Addr) {
	s.t.Helper()
	for _, n := range s.cluster() {
		for _, a := range addresses {
			run(s.t, fmt.Sprintf("ip -n %s route add %s dev %s", n.namespace(), a, gateway))
		}
		n.start()
		n.set(s.desired(addresses))
	}
	s.settled(addresses, s.cluster(), 10*time.Second)
}

// settled waits until each address is answered for by its owner among the living, and by nobody else of these.
func (s *segment) settled(addresses []netip.Addr, living []*node, limit time.Duration) time.Duration {
	s.t.Helper()
	var names []string
	want := map[*node][]string{}
	for _, n := range living {
		names = append(names, n.peer.Name)
	}
	for _, a := range addresses {
		i := slices.Index(names, Owner(a, names))
		want[living[i]] = append(want[living[i]], a.String())
	}
	return eventually(s.t, fmt.Sprintf("%v answer for all", names), limit, func() bool {
		return !slices.ContainsFunc(living, func(n *node) bool {
			slices.Sort(want[n])
			return n.answers() != strings.Join(want[n], " ")
		})
	})
}

// seenBy is the MAC that the client sends to for an address; it asks if it does not know.
func (s *segment) seenBy(a netip.Addr) string {
	client := s.nodes[len(s.nodes)-1]
	in(s.t, client.namespace(), func() {
		if c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9))); err == nil {
			_, _ = c.Write([]byte("?"))
			_ = c.Close()
		}
	})
	words := strings.Fields(run(s.t, "ip -n "+client.namespace()+" neigh show "+a.String()))
	if i := slices.Index(words, "lladdr"); i >= 0 {
		return words[i+1]
	}
	return ""
}

func (n *node) mac() string {
	return strings.TrimSpace(run(n.t, "ip netns exec "+n.namespace()+" cat /sys/class/net/up0/address"))
}

func (s *segment) ownerOf(a netip.Addr, living []*node) *node {
	var names []string
	for _, n := range living {
		names = append(names, n.peer.Name)
	}
	return living[slices.Index(names, Owner(a, names))]
}

// in runs f in a namespace. The thread must go on living: the nodes' processes would die with the one that started them.
func in(t *testing.T, name string, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := netns.Get()
	must(t, err)
	defer func() { _ = own.Close() }()
	ns, err := netns.GetFromName(name)
	must(t, err)
	defer func() { _ = ns.Close() }()
	must(t, netns.Set(ns))
	defer func() { must(t, netns.Set(own)) }()
	f()
}

// TestNodeLoss takes one node after the other away with its wire: clients find another one in time.
func TestNodeLoss(t *testing.T) {
	s := newSegment(t, 4, "")
	addresses := lbAddresses(6)
	s.start(addresses)
	living := slices.Clone(s.cluster())
	for _, a := range addresses {
		if got, want := s.seenBy(a), s.ownerOf(a, living).mac(); got != want {
			// The first question is still on its way.
			eventually(t, "the owner answers", 3*time.Second, func() bool { return s.seenBy(a) == want })
		}
	}
	for len(living) > 1 {
		a := addresses[0]
		lost := s.ownerOf(a, living)
		run(t, strings.Replace("ip link set nodeX down", "nodeX", strings.Replace(lost.peer.Name, "node", "port", 1), 1))
		start := time.Now()
		living = slices.DeleteFunc(living, func(n *node) bool { return n == lost })
		s.settled(addresses, living, 5*time.Second)
		moved := time.Since(start)
		next := s.ownerOf(a, living)
		eventually(t, "the client sends to the new owner", 5*time.Second-moved, func() bool { return s.seenBy(a) == next.mac() })
		t.Logf("%s is gone: its addresses are others' after %v, the client knows after %v", lost.peer.Name, moved, time.Since(start))
		if time.Since(start) > 5*time.Second {
			t.Errorf("the client knows after %v", time.Since(start))
		}
	}
}

// cable is the name of the wire's end of a node's cable.
func (n *node) cable() string { return strings.Replace(n.peer.Name, "node", "port", 1) }

// TestAgentRestart has the kernel go on while its agent is away, and everybody send to the right node when it is back.
func TestAgentRestart(t *testing.T) {
	s := newSegment(t, 3, "")
	addresses := lbAddresses(3)
	s.start(addresses)
	a := addresses[0]
	owner := s.ownerOf(a, s.cluster())
	before := owner.answers()
	owner.kill()
	others := slices.DeleteFunc(slices.Clone(s.cluster()), func(n *node) bool { return n == owner })
	s.settled(addresses, others, 5*time.Second)
	if now := owner.answers(); now != before {
		t.Errorf("without its agent the kernel answers for %q, before for %q", now, before)
	}
	eventually(t, "clients use the others", 3*time.Second, func() bool { return s.seenBy(a) == s.ownerOf(a, others).mac() })
	owner.start()
	owner.set(s.desired(addresses))
	s.settled(addresses, s.cluster(), 5*time.Second)
	for _, a := range addresses {
		eventually(t, fmt.Sprintf("clients send to the owner of %s again", a), 5*time.Second, func() bool {
			return s.seenBy(a) == s.ownerOf(a, s.cluster()).mac()
		})
	}
	if owner.said("gained " + a.String()) {
		t.Errorf("the agent that started again gained what it had: %v", owner.lines)
	}
}

// TestHalves are two parts of a cluster that do not hear each other for a while.
func TestHalves(t *testing.T) {
	s := newSegment(t, 3, "")
	addresses := lbAddresses(3)
	s.start(addresses)
	lost := s.cluster()[0]
	run(t, "ip link set "+lost.cable()+" down")
	s.settled(addresses, s.cluster()[1:], 5*time.Second)
	s.settled(addresses, s.cluster()[:1], 5*time.Second)
	run(t, "ip link set "+lost.cable()+" up")
	took := s.settled(addresses, s.cluster(), 15*time.Second)
	t.Logf("one cluster again after %v", took)
	for _, a := range addresses {
		eventually(t, "clients send to the owner again", 5*time.Second, func() bool { return s.seenBy(a) == s.ownerOf(a, s.cluster()).mac() })
	}
}

// TestWhoMay has addresses that some, or none, of the nodes may answer for, and then no addresses at all.
func TestWhoMay(t *testing.T) {
	s := newSegment(t, 3, "")
	addresses := lbAddresses(1)
	strange := "192.168.70.250"
	run(t, "ip -n ann1 neigh add proxy "+strange+" dev up0")
	run(t, "ip -n ann1 neigh add proxy 192.168.70.251 dev up0 protocol 206")
	for _, n := range s.cluster() {
		n.start()
		n.set(s.desired(nil))
	}
	// What carries Coelan's number and is no address any more goes; what does not is another program's.
	eventually(t, "leftovers go", 3*time.Second, func() bool { return s.nodes[1].answers() == strange })
	listening := func(n *node) bool {
		return strings.Contains(run(t, "ip netns exec "+n.namespace()+" ss -Hlntu"), fmt.Sprint(testPort))
	}
	if listening(s.nodes[0]) {
		t.Error("an agent listens although there is nothing to announce")
	}
	d := s.desired(addresses)
	d.Addresses[0].Nodes, d.Addresses[1].Nodes = []string{"node2"}, []string{"somebody else"}
	for _, n := range s.cluster() {
		n.set(d)
	}
	eventually(t, "the only one that may answers", 5*time.Second, func() bool { return s.nodes[2].answers() == addresses[0].String() })
	for i, want := range []string{"", strange, addresses[0].String()} {
		if got := s.nodes[i].answers(); got != want {
			t.Errorf("node%d answers for %q, want %q", i, got, want)
		}
	}
	if !s.nodes[2].said("gained " + addresses[0].String()) {
		t.Errorf("node2 said %v", s.nodes[2].lines)
	}
	for _, n := range s.cluster() {
		n.set(s.desired(nil))
	}
	eventually(t, "nobody answers", 3*time.Second, func() bool { return s.nodes[2].answers() == "" })
	eventually(t, "nobody listens", 3*time.Second, func() bool { return !slices.ContainsFunc(s.cluster(), listening) })
	if !s.nodes[2].said("lost " + addresses[0].String()) {
		t.Errorf("node2 said %v", s.nodes[2].lines)
	}
}

// TestKeys has one node speak in clear: the others do not hear it.
func TestKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	must(t, os.WriteFile(file, []byte("AAECAwQFBgcICQoLDA0ODw==\nDw4NDAsKCQgHBgUEAwIBAA==\n"), 0o600))
	s := newSegment(t, 3, file)
	s.nodes[1].o.KeyFile = ""
	addresses := lbAddresses(3)
	for _, n := range s.cluster() {
		n.start()
		n.set(s.desired(addresses))
	}
	friends := []*node{s.nodes[0], s.nodes[2]}
	s.settled(addresses, friends, 10*time.Second)
	s.settled(addresses, s.nodes[1:2], 10*time.Second)
	// Another order of the same keys is understood.
	other := filepath.Join(t.TempDir(), "keys")
	must(t, os.WriteFile(other, []byte("Dw4NDAsKCQgHBgUEAwIBAA==\nAAECAwQFBgcICQoLDA0ODw==\n"), 0o600))
	s.nodes[1].kill()
	s.nodes[1].o.KeyFile = other
	s.nodes[1].start()
	s.nodes[1].set(s.desired(addresses))
	s.settled(addresses, s.cluster(), 10*time.Second)
}

// TestInterfaceMadeAnew has the kernel answer again on an interface that came back with its addresses.
func TestInterfaceMadeAnew(t *testing.T) {
	s := newSegment(t, 1, "")
	addresses := lbAddresses(2)
	s.start(addresses)
	n := s.nodes[0]
	run(t, "ip link del "+n.cable())
	run(t, "ip link add "+n.cable()+" type veth peer name up0 netns "+n.namespace())
	run(t, "ip link set "+n.cable()+" master wire up")
	run(t, "ip -n "+n.namespace()+" link set up0 up")
	if got := n.answers(); got != "" {
		t.Fatalf("a new interface answers for %q", got)
	}
	run(t, "ip -n "+n.namespace()+" addr add "+n.peer.Addr.String()+"/24 dev up0")
	run(t, "ip -n "+n.namespace()+" addr add fd70::1/64 dev up0 nodad")
	s.settled(addresses, s.cluster(), 3*time.Second)
	eventually(t, "clients hear of the new MAC", 3*time.Second, func() bool { return s.seenBy(addresses[0]) == n.mac() })
}

// TestStranger is refused, whatever it says.
func TestStranger(t *testing.T) {
	s := newSegment(t, 3, "")
	addresses := lbAddresses(3)
	// The first two do not know the third, which knows them.
	d := s.desired(addresses)
	known := Desired{Addresses: d.Addresses, Peers: d.Peers[:2]}
	for i, n := range s.cluster() {
		n.start()
		if i < 2 {
			n.set(known)
		} else {
			n.set(d)
		}
	}
	s.settled(addresses, s.cluster()[:2], 10*time.Second)
	time.Sleep(time.Second)
	s.settled(addresses, s.cluster()[:2], time.Second)
	for _, n := range s.cluster() {
		n.set(d)
	}
	s.settled(addresses, s.cluster(), 10*time.Second)
}

func TestRemove(t *testing.T) {
	run(t, "ip link add up0 type veth peer name x")
	defer run(t, "ip link del up0")
	for _, a := range []string{"192.0.2.1", "2001:db8::1"} {
		run(t, "ip neigh add proxy "+a+" dev up0 protocol 206")
	}
	run(t, "ip neigh add proxy 192.0.2.2 dev up0")
	must(t, Remove())
	if got := strings.Fields(run(t, "ip neigh show proxy")); len(got) < 1 || got[0] != "192.0.2.2" || slices.Contains(got, "192.0.2.1") || slices.Contains(got, "2001:db8::1") {
		t.Errorf("left: %v", got)
	}
	must(t, Remove())
}
