// SPDX-License-Identifier: Apache-2.0

//go:build integration

package announce

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/vishvananda/netns"
	"go.uber.org/goleak"

	"coelan.io/coelan/internal/child"
	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/internal/rendezvous"
)

// The nodes of these tests are processes of this test's own program, each in a network namespace,
// on one wire with a client.
const (
	asNode   = "COELAN_ANNOUNCE_TEST_NODE"
	asOlder  = "COELAN_ANNOUNCE_TEST_OLDER"
	gateway  = "gw0"
	testPort = 10362
)

func TestMain(m *testing.M) {
	if node := os.Getenv(asNode); node != "" {
		if err := beNode(node); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ovstest.OwnNamespace()
	goleak.VerifyTestMain(m)
}

// beNode runs an Announcer; each line of its input is a Desired, each line of its output what it
// gained or lost, or was chosen for.
func beNode(options string) error {
	var o Options
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return err
	}
	o.SysctlDir, o.Gateway = "/proc/sys", gateway
	o.Log = slog.New(logged{slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})}).With("at", o.Node)
	o.Gained = func(a netip.Addr) { fmt.Println("gained", a) }
	o.Lost = func(a netip.Addr) { fmt.Println("lost", a) }
	o.Chosen = func(all []netip.Addr) { fmt.Println("chosen", all) }
	a := New(o)
	if os.Getenv(asOlder) != "" {
		a.configure = older
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		for in := json.NewDecoder(os.Stdin); ; {
			var i input
			if in.Decode(&i) != nil {
				return
			}
			a.SetKeys(i.Keys)
			if i.Desired != nil {
				a.Set(*i.Desired)
			}
		}
	}()
	return a.Run(ctx)
}

// input is a line of a node's input.
type input struct {
	Desired *Desired
	Keys    [][]byte
}

// older makes the membership that of an agent before there were keys.
func older(c *memberlist.Config) { c.Keyring, c.Label = nil, "" }

// logged also prints what the tests wait for, without its attributes but what memberlist says.
type logged struct{ slog.Handler }

func (l logged) Handle(ctx context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "says" || a.Key == "err" {
			text += " " + a.Value.String()
		}
		return true
	})
	fmt.Println("log", text)
	return l.Handler.Handle(ctx, r)
}

func (l logged) WithAttrs(a []slog.Attr) slog.Handler { return logged{l.Handler.WithAttrs(a)} }

// node is one of the cluster.
type node struct {
	t     *testing.T
	peer  Peer
	o     Options
	keys  [][]byte
	older bool // it has no key, and has never needed any
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

// The keys of these tests.
var keyA, keyB, keyC = bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32), bytes.Repeat([]byte{3}, 32)

// newSegment has nodes with the key A.
func newSegment(t *testing.T, n int) *segment {
	t.Helper()
	s := &segment{t: t}
	run(t, "ip link add wire type bridge mcast_snooping 0")
	t.Cleanup(func() { run(t, "ip link del wire") })
	run(t, "ip link set wire up")
	for i := range n + 1 {
		s.attach(i)
	}
	return s
}

// attach makes the namespace of node i; the last one is the client's.
func (s *segment) attach(i int) {
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
	s.nodes = append(s.nodes, &node{t: t, peer: p, keys: [][]byte{keyA}, o: Options{Node: p.Name, Address: a, Port: testPort}})
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
		d.Addresses = append(d.Addresses, Address{Addr: a, Nodes: names})
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
	}{n.o.Node, n.o.Address, n.o.Port})
	must(n.t, err)
	exe, err := os.Executable()
	must(n.t, err)
	n.cmd = exec.Command("ip", "netns", "exec", n.namespace(), exe)
	n.cmd.Env = append(os.Environ(), asNode+"="+string(o))
	if n.older {
		n.cmd.Env = append(n.cmd.Env, asOlder+"=1")
	}
	n.cmd.Stderr = n.t.Output()
	n.input, err = n.cmd.StdinPipe()
	must(n.t, err)
	out, err := n.cmd.StdoutPipe()
	must(n.t, err)
	n.mu.Lock()
	n.lines = nil
	n.mu.Unlock()
	must(n.t, child.Start(n.cmd))
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

// lastChosen is what the node's bridge is to answer for, as it was told last.
func (n *node) lastChosen() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range slices.Backward(n.lines) {
		if all, ok := strings.CutPrefix(l, "chosen "); ok {
			return all
		}
	}
	return ""
}

// logged counts the lines of the log with that text.
func (n *node) logged(text string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.lines {
		if strings.HasPrefix(l, "log ") && strings.Contains(l, text) {
			count++
		}
	}
	return count
}

// set has the node want these addresses, with the keys that it has.
func (n *node) set(d Desired) {
	n.t.Helper()
	n.write(input{&d, n.keys})
}

// setKeys changes the keys of a node that takes part, and waits until they are in use.
func (n *node) setKeys(keys ...[]byte) {
	n.t.Helper()
	n.keys = keys
	before := n.logged("memberlist keys changed")
	n.write(input{nil, keys})
	eventually(n.t, n.peer.Name+" has other keys", 10*time.Second, func() bool {
		return n.logged("memberlist keys changed") > before
	})
}

func (n *node) write(i input) {
	n.t.Helper()
	b, err := json.Marshal(i)
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

// settled waits until each address is answered for by its owner among the living nodes, and by no
// other of these.
func (s *segment) settled(addresses []netip.Addr, living []*node, limit time.Duration) time.Duration {
	s.t.Helper()
	var names []string
	want := map[*node][]string{}
	for _, n := range living {
		names = append(names, n.peer.Name)
	}
	for _, a := range addresses {
		i := slices.Index(names, rendezvous.Choose(a, names))
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
	return living[slices.Index(names, rendezvous.Choose(a, names))]
}

// in runs f in a namespace. The thread must go on living: the nodes' processes would die with the
// one that started them.
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

// cable is the name of the wire's end of a node's cable.
func (n *node) cable() string { return strings.Replace(n.peer.Name, "node", "port", 1) }
