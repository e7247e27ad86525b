// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// dhcpServer is dnsmasq on a host of a physical network.
type dhcpServer struct {
	t      *testing.T
	host   *lab.Host
	leases string // its file
	cmd    *exec.Cmd
}

// start has the server give addresses of a range, for two minutes; they are renewed after three
// seconds.
func (s *dhcpServer) start(first, last string) {
	s.t.Helper()
	s.cmd = exec.Command("/usr/sbin/dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--interface=eth0",
		"--bind-interfaces", "--user=root", "--no-ping", "--dhcp-authoritative", "--dhcp-leasefile="+s.leases, "--pid-file=",
		"--dhcp-range="+first+","+last+",255.255.255.0,2m", "--dhcp-option=option:router,192.168.42.254",
		"--dhcp-option=option:dns-server,192.168.42.53", "--dhcp-option=option:T1,3",
		"--log-facility="+filepath.Join(filepath.Dir(s.leases), "log"), "--log-dhcp")
	if err := s.host.Start(s.cmd); err != nil {
		s.t.Fatal(err)
	}
}

// stop ends the server, which forgets all leases if forget is set.
func (s *dhcpServer) stop(forget bool) {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
	if forget {
		_ = os.Remove(s.leases)
	}
}

// expires is when the lease of an address ends; 0: there is none.
func (s *dhcpServer) expires(a netip.Addr) int {
	text, err := os.ReadFile(s.leases)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == a.String() {
			at, _ := strconv.Atoi(fields[0])
			return at
		}
	}
	return 0
}

// awaitRenewed waits until a lease is valid for longer than it is now.
func (s *dhcpServer) awaitRenewed(ctx context.Context, a netip.Addr) {
	s.t.Helper()
	s.awaitLonger(ctx, a, s.expires(a))
}

// awaitRenewedBy has a machine renew its lease, and waits until it is valid for longer than now.
func (s *dhcpServer) awaitRenewedBy(ctx context.Context, a netip.Addr, renew func()) {
	s.t.Helper()
	was := s.expires(a)
	// The server counts in seconds, of a clock that may be a tick behind, and gives two minutes.
	poll(ctx, s.t, func() bool {
		var now unix.Timespec
		must(s.t, unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now))
		return now.Sec+120 > int64(was)
	}, func() { s.t.Error("no second passes") })
	renew()
	s.awaitLonger(ctx, a, was)
}

// awaitLonger waits until a lease expires later than it did.
func (s *dhcpServer) awaitLonger(ctx context.Context, a netip.Addr, than int) {
	s.t.Helper()
	poll(ctx, s.t, func() bool { return s.expires(a) > than }, func() {
		log, _ := os.ReadFile(filepath.Join(filepath.Dir(s.leases), "log"))
		s.t.Errorf("the lease of %s is not renewed:\n%s", a, log)
	})
}

// awaitLost waits until a pod has been told that it may not use its address any more. What a node
// asks while there is no server it asks again after a minute (RFC 2131, section 4.4.5).
func awaitLost(ctx context.Context, t *testing.T, w *world, a netip.Addr) {
	t.Helper()
	const patience = 90 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pollEach(ctx, t, pollInterval, func() bool {
		return hasEvent(w, v1alpha1.ReasonNoLease, "may not use its address "+a.String())
	}, func() { t.Errorf("no Event says that the address %s is lost: %v", a, w.API.Events()) })
}

// dhcpGateway is the address of the server, and of the router that it names.
var dhcpGateway = netip.MustParseAddr("192.168.42.254")

// newDHCPWorld has two nodes on a VLAN of the data center, the Network lan, with a server that is
// not started.
func newDHCPWorld(t *testing.T, timeout time.Duration) (context.Context, *world, *dhcpServer) {
	t.Helper()
	w := &world{Lab: lab.New(t, lab.Options{Configure: func(c *config.Config) {
		c.BridgeMappings = map[string]string{"dc": "br-ext"}
	}})}
	w.n1, w.n2 = w.Nodes[0], w.Nodes[1]
	ctx := within(t, timeout)
	vlan := int32(42)
	w.API.AddNetwork("lan", v1alpha1.NetworkSpec{
		Type: v1alpha1.VLAN, VLAN: &vlan, PhysicalNetwork: "dc", IPAM: v1alpha1.DHCPServers,
	})
	for _, n := range w.Nodes {
		if err := n.AddPhysicalBridge(ctx, "br-ext"); err != nil {
			t.Fatal(err)
		}
	}
	awaitConnected(ctx, t, w, w.n1, "dc")
	awaitConnected(ctx, t, w, w.n2, "dc")
	host, err := w.n2.AddVLANHost(ctx, "br-ext", "server", 42, netip.PrefixFrom(dhcpGateway, 24))
	if err != nil {
		t.Fatal(err)
	}
	server := &dhcpServer{t: t, host: host, leases: filepath.Join(t.TempDir(), "leases")}
	t.Cleanup(func() { server.stop(false) })
	return ctx, w, server
}

// TestIPAMDHCP has pods on a VLAN that have their addresses from a DHCP server of the data center.
func TestIPAMDHCP(t *testing.T) {
	ctx, w, server := newDHCPWorld(t, 5*time.Minute)
	w.API.AddDefinition("lab", "lan", "lan")
	spec := lab.PodSpec{Name: "early", Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "lan@lan0"}}

	_, err := w.n1.AddPodAs(ctx, spec)
	if err == nil || !strings.Contains(err.Error(), "lan0 on Network lan: no DHCP server of its physical network answered within 10s") {
		t.Errorf("without a server: %v", err)
	}

	server.start("192.168.42.100", "192.168.42.120")
	spec.Name = "a"
	a := addPodAs(t, w.n1, spec)
	spec.Name = "b"
	b := addPodAs(t, w.n2, spec)
	addresses := map[*lab.Pod]netip.Addr{}
	for _, p := range []*lab.Pod{a, b} {
		list, err := p.On("lan0")
		if err != nil || len(list) != 1 || list[0].Bits() != 24 || !strings.HasPrefix(list[0].Addr().String(), "192.168.42.1") {
			t.Fatalf("pod %s has %v, %v", p.Name, list, err)
		}
		addresses[p] = list[0].Addr()
		if server.expires(list[0].Addr()) == 0 {
			t.Errorf("the server knows nothing of %v of pod %s", list, p.Name)
		}
		if r, err := (probe.Ping{Dst: dhcpGateway, Count: 2}).Run(ctx, p.Host); err != nil || r.Lost() > 0 {
			t.Errorf("pod %s does not reach the server: %+v, %v", p.Name, r, err)
		}
	}
	if r, err := (probe.Ping{Dst: addresses[b], Count: 2}).Run(ctx, a.Host); err != nil || r.Lost() > 0 {
		t.Errorf("pod a does not reach pod b: %+v, %v", r, err)
	}
	own := addresses[a]
	poll(ctx, t, func() bool {
		for _, p := range w.API.Ports() {
			if l := p.Status.Lease; l != nil && len(l.Addresses) == 1 && l.Addresses[0] == own.String() {
				return true
			}
		}
		return false
	}, func() { t.Errorf("no Port says that it has %s by DHCP", own) })

	// The pod may use the address that it has been given, and no other.
	run(t, a.Host, "ip", "addr", "add", "192.168.42.77/24", "dev", "lan0")
	for _, tc := range []struct {
		source  string
		arrives bool
	}{{own.String(), true}, {"192.168.42.77", false}} {
		_, err := a.Run(ctx, "ping", "-c", "2", "-W", "1", "-I", tc.source, dhcpGateway.String())
		if (err == nil) != tc.arrives {
			t.Errorf("ping from %s: %v, want it to arrive: %t", tc.source, err, tc.arrives)
		}
	}
	run(t, a.Host, "ip", "addr", "del", "192.168.42.77/24", "dev", "lan0")

	server.awaitRenewed(ctx, own)
	w.n1.KillAgent()
	if err := w.n1.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	server.awaitRenewed(ctx, own)
	if r, err := (probe.Ping{Dst: dhcpGateway, Count: 2}).Run(ctx, a.Host); err != nil || r.Lost() > 0 {
		t.Errorf("after a restart of the agent: %+v, %v", r, err)
	}

	// A server that knows nothing of the lease takes the address away.
	server.stop(true)
	server.start("192.168.42.200", "192.168.42.210")
	awaitLost(ctx, t, w, own)
	poll(ctx, t, func() bool {
		r, err := (probe.Ping{Dst: dhcpGateway, Count: 1}).Run(ctx, a.Host)
		return err == nil && r.Lost() == 1
	}, func() { t.Errorf("pod a uses %s, which it has lost", own) })
	unreachable(t, attempt{"a lease that is lost", a.Host, dhcpGateway})
	server.stop(true)
	server.start("192.168.42.100", "192.168.42.120")
	poll(ctx, t, func() bool {
		r, err := (probe.Ping{Dst: dhcpGateway, Count: 1}).Run(ctx, a.Host)
		return err == nil && r.Lost() == 0
	}, func() { t.Errorf("pod a has not got %s again", own) })
	if server.expires(own) == 0 {
		t.Errorf("pod a uses %s without a lease", own)
	}

	if err := a.Del(ctx); err != nil {
		t.Fatal(err)
	}
	poll(ctx, t, func() bool { return server.expires(own) == 0 }, func() { t.Errorf("DEL does not give %s back", own) })
	awaitCheck(ctx, t, w)
}
