// SPDX-License-Identifier: Apache-2.0

//go:build integration

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ipam"
	"coelan.io/coelan/internal/localapi"
	"coelan.io/coelan/internal/metricsaccess"
	"coelan.io/coelan/internal/ovstest"
)

const inNamespace = "COELAN_AGENT_TEST_NAMESPACE"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// isolate runs the calling test again as a process of its own in a network namespace of its own,
// because an agent configures that of its process, and Open vSwitch leaves interfaces behind. It
// returns true where the test is to go on.
func isolate(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inNamespace) != "" {
		return true
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	return false
}

const (
	// bound is long, because the same tests run in an emulated machine.
	bound    = 30 * time.Second
	thisNode = "n1"
)

// world is a node: an Open vSwitch, an uplink, and an agent that can be stopped and started.
type world struct {
	t       *testing.T
	ovs     *ovstest.OVS
	plumber *podnet.Plumber
	cfg     config.Config
	cluster *fixed
	events  *recorder

	agent *Agent
	stop  func() error
	log   *logBuffer
}

// logBuffer holds the agent's log for a test that fails.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// recorder keeps Events.
type recorder struct {
	mu     sync.Mutex
	events []string
}

func (r *recorder) PodWarning(namespace, name, _, reason, message string) {
	r.add("pod " + namespace + "/" + name + ": " + reason + ": " + message)
}

func (r *recorder) NodeWarning(name, _, reason, message string) {
	r.add("node " + name + ": " + reason + ": " + message)
}

func (r *recorder) PortWarning(namespace, name, _, reason, message string) {
	r.add("port " + namespace + "/" + name + ": " + reason + ": " + message)
}

func (r *recorder) ServiceWarning(namespace, name, _, reason, message string) {
	r.add("service " + namespace + "/" + name + ": " + reason + ": " + message)
}

func (r *recorder) ObjectWarning(_, kind, namespace, name, reason, message string) {
	r.add(strings.ToLower(kind) + " " + strings.TrimPrefix(namespace+"/"+name, "/") + ": " + reason + ": " + message)
}

func (r *recorder) ServiceNotice(namespace, name, uid, reason, message string) {
	r.ServiceWarning(namespace, name, uid, reason, message)
}

func (r *recorder) add(e string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.events, "\n")
}

// away is an API server that does not answer, as a Cluster sees it.
type away struct{ API }

func (away) WatchPods(ctx context.Context, _ func(kube.Delta[*corev1.Pod])) error {
	<-ctx.Done()
	return nil
}
func (away) WatchServices(ctx context.Context, u kube.ServiceUpdates) error {
	if u.Services != nil {
		u.Services.Failed(errors.New("the API server does not answer"))
	}
	<-ctx.Done()
	return nil
}
func (away) WatchObjects(ctx context.Context, _ kube.Updates) error { <-ctx.Done(); return nil }

func (away) AnnotateNode(context.Context, string, map[string]string) error {
	return errors.New("the API server does not answer")
}

// fixed is a Cluster with nodes that are set by the test. It knows nothing about pods.
type fixed struct {
	away
	mu      sync.Mutex
	nodes   []*corev1.Node
	changed chan struct{}
}

// newFixed makes a fixed of these nodes.
func newFixed(nodes ...*corev1.Node) *fixed {
	return &fixed{nodes: nodes, changed: make(chan struct{})}
}

// Reviews implements Cluster. Its agents' metrics are open.
func (away) Reviews() (authentication.TokenReviewInterface, authorization.SubjectAccessReviewInterface) {
	return nil, nil
}

// AnnotateNode has no effect on the nodes, which are the test's.
func (s *fixed) AnnotateNode(context.Context, string, map[string]string) error { return nil }

func (s *fixed) set(nodes ...*corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = slices.Clone(nodes)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *fixed) WatchObjects(ctx context.Context, u kube.Updates) error {
	for {
		s.mu.Lock()
		nodes, changed := s.nodes, s.changed
		s.mu.Unlock()
		u.Nodes(kube.Whole(nodes))
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

func node(name string, addresses, podCIDRs []string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"}, Spec: corev1.NodeSpec{PodCIDRs: podCIDRs}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// newWorld makes a node with an uplink called eth0; on the userspace datapath it is in the bridge
// br-phy, which has the address then.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, ovs: ovstest.Start(t, ovstest.Options{Netns: "/proc/self/ns/net"}), events: &recorder{}, log: &logBuffer{},
		cluster: newFixed(
			node(thisNode, []string{"192.168.33.11", "fd33::11"}, []string{"10.244.1.0/24", "fd44:1::/64"}),
			node("n2", []string{"192.168.33.12", "fd33::12"}, []string{"10.244.2.0/24", "fd44:2::/64"})),
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the agent's log:\n%s", w.log)
		}
	})
	dir := t.TempDir()
	w.cfg = config.Default()
	w.cfg.Datapath = config.Datapath(w.ovs.Datapath)
	w.cfg.Policy.Mode = config.PoliciesOff // no controller tells these agents what is allowed
	w.cfg.OVSRunDir = w.ovs.Dir
	w.cfg.StateDir = filepath.Join(dir, "state")
	w.cfg.AgentSocket, w.cfg.CNI.Socket = filepath.Join(w.ovs.Dir, "agent.sock"), filepath.Join(w.ovs.Dir, "cni.sock")
	w.cfg.CNI.BinDir, w.cfg.CNI.ConfDir = filepath.Join(dir, "bin"), filepath.Join(dir, "net.d")
	w.cfg.CNI.Binary = plugin(t)
	w.cfg.MetricsBindAddress, w.cfg.MetricsAccess = "127.0.0.1:10360", metricsaccess.Open
	var err error
	w.plumber, err = podnet.New(w.cfg.SysctlDir)
	w.must(err)
	t.Cleanup(w.plumber.Close)
	w.uplink()
	return w
}

// plugin is coelan-cni: that of the environment, or a new build.
func plugin(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("COELAN_LAB_BIN"); dir != "" {
		return filepath.Join(dir, "coelan-cni")
	}
	path := filepath.Join(t.TempDir(), "coelan-cni")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "coelan.io/coelan/cmd/coelan-cni").CombinedOutput()
	if err != nil {
		t.Fatalf("build the plugin: %v: %s", err, out)
	}
	return path
}

func (w *world) uplink() {
	w.t.Helper()
	// Link-local addresses that are settled late would look like the agent's work.
	w.must(os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0))
	w.ip("link set lo up")
	w.ip("link add eth0 type veth peer name fabric0")
	w.t.Cleanup(func() { w.ip("link del eth0") })
	w.ip("link set eth0 up")
	w.ip("link set fabric0 up")
	carrier := "eth0"
	if w.ovs.Datapath == "netdev" {
		w.must(w.ovs.AddBridge(w.t.Context(), "br-phy"))
		_, err := w.ovs.Vsctl(w.t.Context(), "set-fail-mode", "br-phy", "standalone", "--", "add-port", "br-phy", "eth0")
		w.must(err)
		carrier = "br-phy"
	}
	w.ip("link set " + carrier + " up")
	w.ip("addr add 192.168.33.11/24 dev " + carrier)
	w.ip("addr add fd33::11/64 nodad dev " + carrier)
	w.ip("route add default via 192.168.33.1")
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ip(args string) string {
	w.t.Helper()
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("ip %s: %v: %s", args, err, out)
	}
	return string(out)
}

// start runs an agent and does not wait for it.
func (w *world) start() {
	w.t.Helper()
	w.startWith(w.cluster)
}

func (w *world) startWith(c Cluster) {
	w.t.Helper()
	a, err := New(Options{
		Config: w.cfg, Backend: openVSwitch(), Links: w.plumber, NodeName: thisNode, Cluster: c, Events: w.events,
		Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	var once sync.Once
	var result error
	w.agent, w.stop = a, func() error {
		once.Do(func() {
			cancel()
			select {
			case result = <-done:
			case <-time.After(bound):
				result = fmt.Errorf("the agent did not end")
			}
		})
		return result
	}
	w.t.Cleanup(func() { w.must(w.stop()) })
}

// ready waits until the agent's conditions are met.
func (w *world) ready() {
	w.t.Helper()
	w.condition("")
}

// condition waits until the first condition that is not met has this text in its reason; ""
// if all are met.
func (w *world) condition(text string) {
	w.t.Helper()
	deadline := time.After(bound)
	for {
		changed := w.agent.health.conditions.Changed()
		err := w.agent.health.conditions.Ready()
		if text == "" && err == nil || text != "" && err != nil && strings.Contains(err.Error(), text) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			w.t.Fatalf("unmet condition is %v, want %q", err, text)
		}
	}
}

// plug makes a pod's namespace and interface, and attaches it as the CNI server does.
func (w *world) plug(id string) attachment.Attachment {
	w.t.Helper()
	ns, err := ovstest.NewNamespace("")
	w.must(err)
	w.t.Cleanup(ns.Close)
	return w.plugIn(id, ns.Path())
}

func (w *world) plugIn(id, netns string) attachment.Attachment {
	w.t.Helper()
	at, err := w.tryPlug(id, netns)
	w.must(err)
	return at
}

// tryPlug returns the error of the attachment itself.
func (w *world) tryPlug(id, netns string) (attachment.Attachment, error) {
	w.t.Helper()
	ranges, err := ipam.Parse(prefixes("10.244.1.0/24", "fd44:1::/64"))
	w.must(err)
	node, err := w.agent.dataplane().Node()
	w.must(err)
	at, err := w.agent.store.Allocate(attachment.Plan{
		Spec: attachment.Spec{
			Key: attachment.Key{ContainerID: id, IfName: "eth0"}, ConfName: "coelan", PodUID: "uid-" + id, PodNamespace: "default",
			PodName: id, Netns: netns, NetworkID: intent.DefaultNetwork, MTU: 1450,
		},
		Ranges: ranges,
	})
	w.must(err)
	if w.plumber.Gone(netns) {
		w.veth(at.HostInterface)
	} else {
		w.must(w.plumber.Create(node.Interface(at)))
		w.must(w.plumber.Configure(node.Interface(at)))
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), bound)
	defer cancel()
	return at, w.agent.dataplane().Attach(ctx, at)
}

func (w *world) veth(name string) {
	w.t.Helper()
	w.ip("link add " + name + " group 0xc0e1 type veth peer name p" + name)
	w.ip("link set " + name + " up")
	w.t.Cleanup(func() {
		if l, err := netlink.LinkByName(name); err == nil {
			_ = netlink.LinkDel(l)
		}
	})
}

func (w *world) vsctl(args ...string) string {
	w.t.Helper()
	out, err := w.ovs.Vsctl(w.t.Context(), args...)
	w.must(err)
	return strings.TrimSpace(out)
}

// flows are the flows on the bridge with their age, so that a flow that was written
// again is another one.
func (w *world) flows() []string {
	w.t.Helper()
	out, err := w.ovs.Ofctl(w.t.Context(), "--no-stats", "--no-names", "dump-flows", "br-int")
	w.must(err)
	return strings.Split(strings.TrimSpace(out), "\n")
}

// query asks the agent over its socket.
func query[T any](w *world, path, body string) T {
	w.t.Helper()
	var out bytes.Buffer
	var err error
	if body == "" {
		err = localapi.Query(w.t.Context(), "agent", w.cfg.AgentSocket, path, nil, &out)
	} else {
		err = localapi.Query(w.t.Context(), "agent", w.cfg.AgentSocket, path, strings.NewReader(body), &out)
	}
	w.must(err)
	var v T
	w.must(json.Unmarshal(out.Bytes(), &v))
	return v
}

// whole fails the test if the agent's own check has findings.
func (w *world) whole() {
	w.t.Helper()
	if c := query[agentapi.Check](w, "/v1/check", ""); !c.OK {
		w.t.Errorf("check: %+v", c.Findings)
	}
}

func TestStartMakesEverything(t *testing.T) {
	if !isolate(t) {
		return
	}
	w := newWorld(t)
	w.start()
	w.ready()
	at := w.plug("a")
	if got := w.vsctl("get", "interface", at.HostInterface, "ofport"); got != fmt.Sprint(at.OFPort) {
		t.Errorf("OpenFlow port is %s, want %d", got, at.OFPort)
	}
	for _, tc := range []struct{ command, want string }{
		{"addr show dev coelan-gw0", "10.244.1.1/24"},
		{"addr show dev coelan-gw0", "fd44:1::1/64"},
		{"link show dev coelan-gw0", datapath.GatewayMAC.String()},
		{"link show dev coelan-gw0", "mtu 1450"},
		{"route", "10.244.2.0/24 via 10.244.2.1 dev coelan-gw0"},
		{"-6 route", "fd44:2::/64 via fd44:2::1 dev coelan-gw0"},
	} {
		if out := w.ip(tc.command); !strings.Contains(out, tc.want) {
			t.Errorf("ip %s: no %q in\n%s", tc.command, tc.want, out)
		}
	}
	if n := len(w.flows()); n < 20 {
		t.Errorf("only %d flows", n)
	}
	w.whole()
	s := query[agentapi.Status](w, "/v1/status", "")
	if !s.Ready || s.Ports != 1 || s.TunnelIP != "192.168.33.11" || len(s.Peers) != 1 || !s.OVS.Connected {
		t.Errorf("status: %+v", s)
	}
	w.must(w.agent.dataplane().Check(t.Context(), at))
	w.must(w.agent.dataplane().Detach(t.Context(), at))
	w.must(w.agent.dataplane().Detach(t.Context(), at))
	if err := w.agent.dataplane().Check(t.Context(), at); err == nil {
		t.Error("a detached port passes the check")
	}
}

func linkExists(name string) bool {
	_, err := netlink.LinkByName(name)
	return err == nil
}
