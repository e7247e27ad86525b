// SPDX-License-Identifier: Apache-2.0

//go:build integration

package podnet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/nstest"
	"coelan.io/coelan/internal/intent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newPlumber(t testing.TB, node *nstest.NS) *Plumber {
	t.Helper()
	var p *Plumber
	node.Run(t, func() (err error) {
		p, err = New("/proc/sys")
		return err
	})
	t.Cleanup(p.Close)
	return p
}

func podInterface(pod *nstest.NS) Interface {
	return Interface{Attachment: attachment.Attachment{
		MAC:           intent.MAC{0x0a, 0xce, 10, 0, 0, 5},
		Addresses:     []netip.Prefix{netip.MustParsePrefix("10.0.0.5/24"), netip.MustParsePrefix("fd00::5/64")},
		DefaultRoutes: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
		Spec: attachment.Spec{
			Key: attachment.Key{IfName: "eth0"}, Netns: pod.Path(), HostInterface: "co0123456789ab", MTU: 1450,
		},
	}}
}

func mustAdd(t testing.TB, p *Plumber, i Interface) {
	t.Helper()
	if err := p.Create(i); err != nil {
		t.Fatal(err)
	}
	if err := p.Configure(i); err != nil {
		t.Fatal(err)
	}
}

func wantLines(t *testing.T, what, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%s: want %q in:\n%s", what, w, text)
		}
	}
}

func TestInterfaceAsTheKernelShowsIt(t *testing.T) {
	node, pod := nstest.New(t), nstest.New(t)
	p := newPlumber(t, node)
	i := podInterface(pod)
	mustAdd(t, p, i)

	wantLines(t, "pod's link", pod.Command(t, "ip", "-d", "link", "show", "eth0"),
		"mtu 1450", "link/ether 0a:ce:0a:00:00:05", "veth", "state UP", "qlen 1000")
	wantLines(t, "pod's addresses", pod.Command(t, "ip", "addr", "show", "eth0"),
		"inet 10.0.0.5/24", "inet6 fd00::5/64 scope global nodad")
	wantLines(t, "pod's routes", pod.Command(t, "ip", "route")+pod.Command(t, "ip", "-6", "route"),
		"default via 10.0.0.1 dev eth0", "10.0.0.0/24 dev eth0", "default via fd00::1 dev eth0", "fd00::/64 dev eth0")
	wantLines(t, "pod's offload", pod.Command(t, "ethtool", "-k", "eth0"),
		"tx-checksumming: off", "tx-tcp-segmentation: off")
	wantLines(t, "pod's accept_ra", pod.Command(t, "cat", "/proc/sys/net/ipv6/conf/eth0/accept_ra"), "0")
	host := node.Command(t, "ip", "-d", "link", "show", i.HostInterface) + node.Command(t, "ip", "addr", "show", i.HostInterface)
	wantLines(t, "host's link", host, "mtu 1450", "state UP", "group 49377", "addrgenmode none", "link/ether 0a:cf:0a:00:00:05")
	if strings.Contains(host, "inet") {
		t.Errorf("the host's end has an address:\n%s", host)
	}
	wantLines(t, "host's arp_ignore", node.Command(t, "cat", "/proc/sys/net/ipv4/conf/"+i.HostInterface+"/arp_ignore"), "8")
	if err := p.Check(i); err != nil {
		t.Errorf("Check: %v", err)
	}
	if names, err := p.Existing(); err != nil || len(names) != 1 || !names[i.HostInterface] {
		t.Errorf("Existing = %v, %v", names, err)
	}

	for range 2 { // deleting what is gone is no error
		if err := p.Remove(i.HostInterface); err != nil {
			t.Fatal(err)
		}
	}
	if out := pod.Command(t, "ip", "-o", "link"); strings.Contains(out, "eth0") {
		t.Errorf("after Remove the pod has:\n%s", out)
	}
}

func TestOffloadStaysOnTheKernelDatapath(t *testing.T) {
	node, pod := nstest.New(t), nstest.New(t)
	p := newPlumber(t, node)
	i := podInterface(pod)
	i.TXOffload = true
	mustAdd(t, p, i)
	wantLines(t, "pod's offload", pod.Command(t, "ethtool", "-k", "eth0"), "tx-checksumming: on")
	if err := p.Check(i); err != nil {
		t.Errorf("Check: %v", err)
	}
}

// Whatever is changed in the pod is named by Check and repaired by Configure.
func TestCheckNamesAndConfigureRepairs(t *testing.T) {
	node := nstest.New(t)
	p := newPlumber(t, node)
	for _, tt := range []struct {
		name   string
		change string // in the pod
		want   string
	}{
		{"down", "ip link set eth0 down", "interface eth0 is down"},
		{"MAC", "ip link set eth0 address 0a:ce:00:00:00:09", "has MAC 0a:ce:00:00:00:09, not 0a:ce:0a:00:00:05"},
		{"MTU", "ip link set eth0 mtu 1400", "has MTU 1400, not 1450"},
		{"IPv4 address", "ip addr del 10.0.0.5/24 dev eth0", "lacks address 10.0.0.5/24"},
		{"IPv6 address", "ip addr del fd00::5/64 dev eth0", "lacks address fd00::5/64"},
		{"prefix length", "ip addr del fd00::5/64 dev eth0; ip addr add fd00::5/128 dev eth0", "lacks address fd00::5/64"},
		{"IPv4 route", "ip route del default", "lacks the default route via 10.0.0.1"},
		{"IPv6 route", "ip -6 route del default", "lacks the default route via fd00::1"},
		{"other gateway", "ip route replace default via 10.0.0.9", "lacks the default route via 10.0.0.1"},
		{"offload", "ethtool -K eth0 tx on", "TX checksum offload on"},
		{"IPv6 off", "echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6", "lacks address fd00::5/64"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := nstest.New(t)
			i := podInterface(pod)
			mustAdd(t, p, i)
			t.Cleanup(func() {
				if err := p.Remove(i.HostInterface); err != nil {
					t.Error(err)
				}
			})
			pod.Command(t, "sh", "-ec", tt.change)
			err := p.Check(i)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Check = %v\nwant %q", err, tt.want)
			}
			if err := p.Configure(i); err != nil {
				t.Errorf("Configure: %v", err)
			}
			if err := p.Check(i); err != nil {
				t.Errorf("Check after Configure: %v", err)
			}
		})
	}
}

func TestCheckOfWhatIsNotThere(t *testing.T) {
	node, pod := nstest.New(t), nstest.New(t)
	p := newPlumber(t, node)
	i := podInterface(pod)
	var missing *MissingError
	if err := p.Check(i); !errors.As(err, &missing) || missing.Name != i.HostInterface {
		t.Errorf("Check = %v, want a *MissingError of the host's end", err)
	}
	mustAdd(t, p, i)
	pod.Command(t, "ip", "link", "set", "eth0", "down")
	pod.Command(t, "ip", "link", "set", "eth0", "name", "other")
	if err := p.Check(i); !errors.As(err, &missing) || missing.Name != "eth0" {
		t.Errorf("Check = %v, want a *MissingError of eth0", err)
	}
	if err := p.Configure(i); !errors.As(err, &missing) {
		t.Errorf("Configure = %v, want a *MissingError", err)
	}
	pod.Command(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "x")
	if err := p.Check(i); err == nil || !strings.Contains(err.Error(), "is not the other end of co0123456789ab") {
		t.Errorf("Check of another pair = %v", err)
	}
}

// An interface of the host or of the pod that is not ours is never touched.
func TestTakenNames(t *testing.T) {
	node, pod := nstest.New(t), nstest.New(t)
	p := newPlumber(t, node)
	i := podInterface(pod)
	var taken *TakenError

	pod.Command(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "x")
	if err := p.Create(i); !errors.As(err, &taken) || taken.Name != "eth0" {
		t.Errorf("Create = %v, want a *TakenError of eth0", err)
	}
	pod.Command(t, "ip", "link", "del", "eth0")

	node.Command(t, "ip", "link", "add", i.HostInterface, "type", "veth", "peer", "name", "x")
	if err := p.Create(i); !errors.As(err, &taken) || taken.Name != i.HostInterface {
		t.Errorf("Create = %v, want a *TakenError of %s", err, i.HostInterface)
	}
	if err := p.Remove(i.HostInterface); !errors.As(err, &taken) {
		t.Errorf("Remove = %v, want a *TakenError", err)
	}
	if names, _ := p.Existing(); len(names) != 0 {
		t.Errorf("Existing = %v, want none", names)
	}
	node.Command(t, "ip", "link", "del", i.HostInterface)

	// What a crashed attempt left under our name and mark is replaced, wherever its
	// other end is.
	old := i
	old.IfName = "old"
	if err := p.Create(old); err != nil {
		t.Fatal(err)
	}
	mustAdd(t, p, i)
	if err := p.Check(i); err != nil {
		t.Errorf("Check: %v", err)
	}
}

func TestPathsThatAreNoPodNamespace(t *testing.T) {
	node := nstest.New(t)
	p := newPlumber(t, node)
	closed := nstest.New(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	path := closed.Path()
	closed.Close()
	for _, tt := range []struct {
		path, want string
		gone       bool
	}{
		{path, "it does not exist", true},
		{file, "it is not a namespace", true},
		{"/proc/self/ns/uts", "it is a namespace, but not of the network", false},
		{node.Path(), "it is the node's own", false},
		{"/proc/self", "it is a namespace, but not of the network", false},
	} {
		i := podInterface(node)
		i.Netns = tt.path
		for what, err := range map[string]error{
			"Verify": p.Verify(tt.path), "Create": p.Create(i), "Configure": p.Configure(i),
		} {
			var bad *NetnsError
			if !errors.As(err, &bad) || bad.Path != tt.path || bad.Problem != tt.want {
				t.Errorf("%s(%s) = %v, want %q", what, tt.path, err, tt.want)
			}
		}
		if got := p.Gone(tt.path); got != tt.gone {
			t.Errorf("Gone(%s) = %v", tt.path, got)
		}
	}
	if names, _ := p.Existing(); len(names) != 0 {
		t.Errorf("interfaces were made: %v", names)
	}
}

// Errors that the kernel finds only while it makes the pair leave nothing.
func TestFailedCreateLeavesNothing(t *testing.T) {
	node, pod := nstest.New(t), nstest.New(t)
	p := newPlumber(t, node)
	for name, change := range map[string]func(*Interface){
		"MTU":  func(i *Interface) { i.MTU = 1 << 20 },
		"MAC":  func(i *Interface) { i.MAC = intent.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} },
		"name": func(i *Interface) { i.IfName = "a/b" },
	} {
		i := podInterface(pod)
		change(&i)
		if err := p.Create(i); err == nil {
			t.Errorf("%s: Create succeeded", name)
		}
		if out := node.Command(t, "ip", "-o", "link") + pod.Command(t, "ip", "-o", "link"); strings.Count(out, "\n") != 2 {
			t.Errorf("%s: left behind:\n%s", name, out)
		}
	}
}

func TestParallelPods(t *testing.T) {
	node := nstest.New(t)
	p := newPlumber(t, node)
	var wg sync.WaitGroup
	for n := range 16 {
		pod := nstest.New(t)
		i := podInterface(pod)
		i.HostInterface = fmt.Sprintf("co%d", n)
		wg.Go(func() {
			if err := errors.Join(p.Create(i), p.Configure(i), p.Check(i), p.Remove(i.HostInterface)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if names, _ := p.Existing(); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
}

// The namespace of a pod that ends takes the pair with it.
func TestNamespaceEnds(t *testing.T) {
	node, pod := nstest.New(t), nstest.New(t)
	p := newPlumber(t, node)
	i := podInterface(pod)
	mustAdd(t, p, i)
	pod.Close()
	if !p.Gone(i.Netns) {
		t.Error("the namespace is closed, but not gone")
	}
	if err := p.Remove(i.HostInterface); err != nil {
		t.Errorf("Remove: %v", err)
	}
}

// Without the kernel's messages Remove is only slower.
func TestRemoveWithoutMessages(t *testing.T) {
	node, pod := nstest.New(t), nstest.New(t)
	p := newPlumber(t, node)
	i := podInterface(pod)
	mustAdd(t, p, i)
	p.deletions.close()
	if err := p.Remove(i.HostInterface); err != nil {
		t.Fatal(err)
	}
	if names, err := p.Existing(); err != nil || len(names) != 0 {
		t.Errorf("Existing = %v, %v", names, err)
	}
}

func TestConfigureWithReadOnlySysctls(t *testing.T) {
	node, pod := nstest.New(t), nstest.New(t)
	p := newPlumber(t, node)
	p.sysctlDir = "/nonexistent"
	i := podInterface(pod)
	mustAdd(t, p, i)
	pod.Command(t, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6")
	err := p.Configure(i)
	if err == nil || !strings.Contains(err.Error(), "IPv6 is disabled on the interface") || !errors.Is(err, unix.ENOENT) {
		t.Errorf("Configure = %v, want it to say that IPv6 is disabled", err)
	}
}

// BenchmarkAdd is the kernel's part of a CNI ADD.
func BenchmarkAdd(b *testing.B) {
	node := nstest.New(b)
	p := newPlumber(b, node)
	for range b.N {
		b.StopTimer()
		pod := nstest.New(b)
		i := podInterface(pod)
		b.StartTimer()
		if err := errors.Join(p.Create(i), p.Configure(i)); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := p.Remove(i.HostInterface); err != nil {
			b.Fatal(err)
		}
	}
}
