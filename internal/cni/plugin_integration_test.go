// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cni

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/cni/nstest"
	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/ovstest"
)

// ovsPorts is a Dataplane of ports on a bridge that learns addresses by itself.
type ovsPorts struct {
	db    *ovsdb.Client
	delay chan struct{} // Attach waits for it if it is set
}

func (o *ovsPorts) Attach(ctx context.Context, a attachment.Attachment) error {
	if o.delay != nil {
		select {
		case <-o.delay:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return o.db.EnsurePorts(ctx, "br-int", ovsdb.Port{Name: a.HostInterface, OFPort: int(a.OFPort)})
}

func (o *ovsPorts) Detach(ctx context.Context, a attachment.Attachment) error {
	return o.db.DelPorts(ctx, "br-int", a.HostInterface)
}

func (o *ovsPorts) Check(ctx context.Context, a attachment.Attachment) error {
	ports, err := o.db.Ports(ctx)
	for _, p := range ports {
		if p.Name == a.HostInterface && p.Ready() {
			return nil
		}
	}
	return errors.Join(err, fmt.Errorf("port %s is missing", a.HostInterface))
}

func (o *ovsPorts) Ready(ctx context.Context) error { return o.db.WaitConnected(ctx) }

// node is a node with a real kernel, Open vSwitch, plugin and runtime library; only the
// agent around the server is missing.
type node struct {
	t       testing.TB
	ovs     *ovstest.OVS
	ports   *ovsPorts
	plumber *podnet.Plumber
	store   *attachment.Store
	server  *Server
	plugin  string // path
	runtime *libcni.CNIConfig
	list    *libcni.NetworkConfigList
}

func newNode(t testing.TB, stateDir string) *node {
	t.Helper()
	n := &node{t: t, ovs: ovstest.Start(t, ovstest.Options{})}
	n.ports = &ovsPorts{db: ovsdb.Open(ovsdb.Options{Socket: n.ovs.DBSocket()})}
	t.Cleanup(n.ports.db.Close)
	n.must(n.ports.db.EnsureBridge(t.Context(), ovsdb.Bridge{Name: "br-int", Datapath: n.ovs.Datapath}))
	_, err := n.ovs.Ofctl(t.Context(), "add-flow", "br-int", "actions=NORMAL")
	n.must(err)
	n.must(n.ovs.Do(func() (err error) {
		n.plumber, err = podnet.New("/proc/sys")
		return err
	}))
	t.Cleanup(n.plumber.Close)
	n.store, err = attachment.Open(filepath.Join(stateDir, "state.db"))
	n.must(err)
	t.Cleanup(func() { n.store.Close() })
	n.server = New(Options{
		Store: n.store, Dataplane: n.ports, Interfaces: n.plumber, Planner: nodePlan{}, Bridge: "br-int", Foreign: &foreignBridges{},
		Logger: slog.New(slog.DiscardHandler),
		Node: &fakeNode{node: Node{PodCIDRs: prefixes("10.244.1.0/24", "fd00:10:244:1::/64"), MTU: 1450, NetworkID: 1,
			TXOffload: n.ovs.Datapath == "system"}},
	})
	socket := filepath.Join(n.ovs.Dir, "cni.sock")
	n.serve(socket)
	n.install(socket)
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) serve(socket string) {
	l, err := Listen(socket)
	n.must(err)
	ctx, cancel := context.WithCancel(n.t.Context())
	served := make(chan error, 1)
	go func() { served <- n.server.Serve(ctx, l) }()
	n.t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			n.t.Error(err)
		}
	})
}

func (n *node) install(socket string) {
	n.t.Helper()
	dir := n.t.TempDir()
	n.plugin = filepath.Join(dir, "coelan-cni")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", n.plugin, "coelan.io/coelan/cmd/coelan-cni")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		n.t.Fatalf("build the plugin: %v: %s", err, out)
	}
	n.runtime = libcni.NewCNIConfigWithCacheDir([]string{dir}, filepath.Join(dir, "cache"), &invoke.DefaultExec{
		// Made by the library when it is first used, it would be a race.
		RawExec: &invoke.RawExec{Stderr: os.Stderr},
	})
	var err error
	n.list, err = libcni.ConfListFromBytes(fmt.Appendf(nil,
		`{"cniVersion":"1.1.0","name":"coelan","plugins":[{"type":"coelan-cni","socket":%q}]}`, socket))
	n.must(err)
}

// pod is a container as its runtime knows it.
type pod struct {
	*nstest.NS
	rt     *libcni.RuntimeConf
	result *types100.Result
}

func (n *node) newPod(name string) *pod {
	n.t.Helper()
	ns := nstest.New(n.t)
	return &pod{NS: ns, rt: &libcni.RuntimeConf{ContainerID: name, NetNS: ns.Path(), IfName: "eth0", Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", name},
		{"K8S_POD_INFRA_CONTAINER_ID", name}, {"K8S_POD_UID", "uid-" + name},
	}}}
}

func (n *node) add(p *pod) error {
	result, err := n.runtime.AddNetworkList(n.t.Context(), n.list, p.rt)
	if err != nil {
		return err
	}
	p.result, err = types100.NewResultFromResult(result)
	return err
}

func (n *node) del(p *pod) error { return n.runtime.DelNetworkList(n.t.Context(), n.list, p.rt) }

// wantNothing fails if anything of a pod is left on the node.
func (n *node) wantNothing() {
	n.t.Helper()
	links, err := n.plumber.Existing()
	n.must(err)
	ports, err := n.ports.db.Ports(n.t.Context())
	n.must(err)
	if len(links) != 0 || len(ports) != 0 || len(n.store.List()) != 0 {
		n.t.Errorf("left behind: links %v, ports %v, attachments %v", links, ports, n.store.List())
	}
}

func (p *pod) ip(i int) string { return p.result.IPs[i].Address.IP.String() }

// Pods that a runtime adds by the real plugin reach each other over both families, with
// whole checksums; every command does what the specification says.
func TestLifeOfPods(t *testing.T) {
	n := newNode(t, t.TempDir())
	a, b := n.newPod("pod-a"), n.newPod("pod-b")
	n.must(n.add(a))
	n.must(n.add(b))
	for i := range 2 {
		transfer(t, a, b, b.ip(i))
	}
	if again, err := n.runtime.AddNetworkList(t.Context(), n.list, a.rt); err != nil || again.(*types100.Result).IPs[0].Address.String() != a.result.IPs[0].Address.String() {
		t.Errorf("second ADD: %v, %v", again, err)
	}
	n.must(n.runtime.CheckNetworkList(t.Context(), n.list, a.rt))
	a.Command(t, "ip", "addr", "del", a.result.IPs[1].Address.String(), "dev", "eth0")
	wantCode(t, n.runtime.CheckNetworkList(t.Context(), n.list, a.rt), wire.CodeCheck, "lacks address "+a.ip(1))
	n.must(n.runtime.GetStatusNetworkList(t.Context(), n.list))
	n.must(n.runtime.GCNetworkList(t.Context(), n.list, &libcni.GCArgs{
		ValidAttachments: []types.GCAttachment{{ContainerID: "pod-b", IfName: "eth0"}},
	}))
	if list := n.store.List(); len(list) != 1 || list[0].ContainerID != "pod-b" {
		t.Errorf("after GC: %v", list)
	}
	for range 2 {
		n.must(n.del(b))
	}
	n.wantNothing()
	n.must(n.add(a)) // the same namespace can be used again
	n.must(n.del(a))
	n.wantNothing()
}

// transfer sends a megabyte by TCP from one pod to another.
func transfer(t *testing.T, from, to *pod, ip string) {
	t.Helper()
	var l net.Listener
	to.Run(t, func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(ip, "7000"))
		return err
	})
	defer l.Close()
	received := make(chan int64, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			received <- -1
			return
		}
		defer conn.Close()
		count, _ := io.Copy(io.Discard, conn)
		received <- count
	}()
	const size = 1 << 20
	from.Run(t, func() error {
		conn, err := net.DialTimeout("tcp", l.Addr().String(), 5*time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		_, err = conn.Write(make([]byte, size))
		return err
	})
	if got := <-received; got != size {
		t.Errorf("%s received %d bytes of %d", ip, got, size)
	}
}

func wantCode(t *testing.T, err error, code uint, text string) {
	t.Helper()
	var cniErr *types.Error
	if !errors.As(err, &cniErr) || cniErr.Code != code || !strings.Contains(cniErr.Error(), text) {
		t.Errorf("error %v, want code %d and %q", err, code, text)
	}
}

func TestBadInputByThePlugin(t *testing.T) {
	n := newNode(t, t.TempDir())
	file := filepath.Join(t.TempDir(), "file")
	n.must(os.WriteFile(file, nil, 0o600))
	for _, tt := range []struct {
		name   string
		change func(*pod)
		code   uint
		want   string
	}{
		{"netns gone", func(p *pod) { p.rt.NetNS = "/run/netns/gone" }, wire.CodeInvalidNetns, `"/run/netns/gone": it does not exist`},
		{"not a netns", func(p *pod) { p.rt.NetNS = file }, wire.CodeInvalidNetns, "it is not a namespace"},
		{"another kind of namespace", func(p *pod) { p.rt.NetNS = "/proc/self/ns/uts" }, wire.CodeInvalidNetns, "not of the network"},
		{"the node's netns", func(p *pod) { p.rt.NetNS = n.ovs.Netns() }, wire.CodeInvalidNetns, "it is the node's own"},
		{"name taken", func(p *pod) { p.Command(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "x") },
			wire.CodeInvalidEnvironment, `interface "eth0" exists already`},
		{"no CNI_ARGS", func(p *pod) { p.rt.Args = nil }, wire.CodeInvalidEnvironment, "K8S_POD_NAMESPACE"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := n.newPod("bad")
			tt.change(p)
			wantCode(t, n.add(p), tt.code, tt.want)
			n.wantNothing()
		})
	}
}

// With a full disk under the state directory, ADD fails and leaves nothing.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("coelan-test", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	n := newNode(t, dir)
	full := filepath.Join(dir, "others")
	n.must(os.WriteFile(full, nil, 0o600))
	for _, size := range []int{4096, 1} {
		// To the last byte; what the store has set aside is not free.
		f, err := os.OpenFile(full, os.O_WRONLY|os.O_APPEND, 0)
		n.must(err)
		for err == nil {
			_, err = f.Write(make([]byte, size))
		}
		f.Close()
	}
	// The store's own reserve lasts for some pods more.
	var err error
	var pods []*pod
	for i := 0; err == nil && i < 200; i++ {
		p := n.newPod(fmt.Sprintf("pod-%d", i))
		if err = n.add(p); err == nil {
			pods = append(pods, p)
		}
	}
	wantCode(t, err, wire.CodeIO, "no space left on device")
	n.must(os.Remove(full))
	for _, p := range pods {
		n.must(n.del(p))
	}
	n.wantNothing()
}

// A plugin that is killed half way leaves nothing.
func TestKilledPlugin(t *testing.T) {
	n := newNode(t, t.TempDir())
	n.ports.delay = make(chan struct{})
	p := n.newPod("pod-a")
	cmd := exec.Command(n.plugin)
	cmd.Env = []string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=pod-a", "CNI_IFNAME=eth0", "CNI_NETNS=" + p.Path(),
		"CNI_ARGS=K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod-a;K8S_POD_UID=u", "CNI_PATH=/"}
	conf := strings.Replace(string(n.list.Plugins[0].Bytes), "{", `{"cniVersion":"1.1.0","name":"coelan",`, 1)
	cmd.Stdin = strings.NewReader(conf)
	n.must(cmd.Start())
	await(t, func() bool { links, _ := n.plumber.Existing(); return len(links) == 1 })
	n.must(cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Error("the plugin succeeded")
	}
	await(t, func() bool { return len(n.store.List()) == 0 })
	n.wantNothing()
}

// await looks again and again until something that no event tells of has come true.
func await(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("it did not come true in 10 s")
		}
	}
}

func TestManyPodsAtOnce(t *testing.T) {
	n := newNode(t, t.TempDir())
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 5 {
				p := n.newPod(fmt.Sprintf("pod-%d-%d", worker, i))
				if err := n.add(p); err != nil {
					t.Error(err)
				}
				if i%2 == 0 {
					p.Close() // the namespace goes before DEL
				}
				for range 1 + i%2 {
					if err := n.del(p); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	n.wantNothing()
}

// After a reboot no namespace and no interface is there; the store and the database are.
func TestReconcileAfterAReboot(t *testing.T) {
	n := newNode(t, t.TempDir())
	a, b := n.newPod("pod-a"), n.newPod("pod-b")
	n.must(n.add(a))
	n.must(n.add(b))
	a.Close()
	host := n.store.List()[1].HostInterface
	n.must(n.plumber.Remove(host))
	await(t, func() bool { links, _ := n.plumber.Existing(); return len(links) == 0 })
	report, err := n.server.Reconcile(t.Context())
	n.must(err)
	if len(report.Released) != 1 || len(report.Repaired) != 1 {
		t.Errorf("report: %+v", report)
	}
	n.must(n.runtime.CheckNetworkList(t.Context(), n.list, b.rt))
	n.must(n.del(b))
	n.wantNothing()
}
