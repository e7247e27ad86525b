// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/diagnose"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// The machines of TestDHCP: one that asks for its addresses, one that makes its address of its MAC,
// and one that pretends to be a server.
var (
	askerMAC   = intent.MAC{0x52, 0x54, 0, 0x70, 0, 0x50}
	selfMAC    = intent.MAC{0x52, 0x54, 0, 0x72, 0, 0x50}
	hostileMAC = intent.MAC{0x52, 0x54, 0, 0x70, 0, 0x66}
)

// selfAddress is what a machine with selfMAC makes of the prefix fd00:72::/64.
const selfAddress = "fd00:72::5054:ff:fe72:50"

// machines is a cluster with machines that know nothing of their addresses.
type machines struct {
	*world
	asker, self, hostile *lab.Guest
	far                  *lab.Pod // on another Network of the same Router, on the other node
}

func startMachines(t *testing.T) *machines {
	t.Helper()
	w := &machines{world: start(t, lab.Options{})}
	ctx := within(t, 2*time.Minute)
	lan := v1alpha1.NetworkSpec{
		Subnets: subnets("10.70.0.0/24", "fd00:70::/64"), MTU: 1400,
		DNS: &v1alpha1.DNS{
			Nameservers: []string{"192.0.2.53", "2001:db8::53"}, Searches: []string{"lan.example", "example"},
		},
		DHCP: &v1alpha1.DHCP{
			LeaseSeconds: 600, NTPServers: []string{"192.0.2.123", "2001:db8::123"}, NextServer: "192.0.2.69",
			BootFile: "boot/pxelinux.0",
		},
	}
	lan.Subnets[0].Routes = []v1alpha1.Route{{Destination: "192.168.99.0/24", NextHop: "10.70.0.254"}}
	w.API.AddNetwork("lan", lan)
	w.API.AddNetwork("self", v1alpha1.NetworkSpec{
		Router: "lan", Subnets: subnets("10.72.0.0/24", "fd00:72::/64"), DHCP: &v1alpha1.DHCP{AddressMode: v1alpha1.Stateless},
	})
	w.API.AddNetwork("far", v1alpha1.NetworkSpec{Router: "lan", Subnets: subnets("10.71.0.0/24", "fd00:71::/64")})
	w.API.AddDefinition("lab", "far", "far")
	w.far = addPodAs(t, w.n2, lab.PodSpec{
		Name: "far", Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "far@far0"},
	})
	for to, gateway := range map[string]string{
		"10.70.0.0/24": "10.71.0.1", "10.72.0.0/24": "10.71.0.1", "fd00:70::/64": "fd00:71::1", "fd00:72::/64": "fd00:71::1",
	} {
		run(t, w.far.Host, "ip", "route", "add", to, "via", gateway, "dev", "far0")
	}
	w.API.AddPort("lab", "asker", "lan", askerMAC.String(), "10.70.0.50", "fd00:70::50")
	w.API.AddPort("lab", "hostile", "lan", hostileMAC.String(), "10.70.0.66", "fd00:70::66")
	w.API.AddPort("lab", "self", "self", selfMAC.String(), "10.72.0.50", selfAddress)
	for name, m := range map[string]struct {
		guest **lab.Guest
		mac   intent.MAC
	}{"asker": {&w.asker, askerMAC}, "self": {&w.self, selfMAC}, "hostile": {&w.hostile, hostileMAC}} {
		g, err := w.n1.AddGuest(ctx, name, "lab/"+name, m.mac.HardwareAddr(), nil)
		if err != nil {
			t.Fatal(err)
		}
		*m.guest = g
		awaitPort(ctx, t, w.world, "lab/"+name, func(p *v1alpha1.Port) bool { return p.Status.Phase == v1alpha1.PortBound })
	}
	return w
}

// TestDHCP has real clients ask for their addresses, and use what they are told.
func TestDHCP(t *testing.T) {
	w := startMachines(t)
	ctx := within(t, 4*time.Minute)
	t.Run("router advertisements", func(t *testing.T) { advertised(ctx, t, w) })
	t.Run("udhcpc", func(t *testing.T) { askUDHCPC(ctx, t, w) })
	t.Run("dhclient", func(t *testing.T) { askDHClient(ctx, t, w) })
	t.Run("lease", func(t *testing.T) {
		awaitPort(ctx, t, w.world, "lab/asker", func(p *v1alpha1.Port) bool {
			l := p.Status.Lease
			return l != nil && l.HostName == "asker-1" && slices.Equal(l.Addresses, []string{"10.70.0.50", "fd00:70::50"})
		})
	})
	t.Run("addresses of the MAC", func(t *testing.T) { selfMade(ctx, t, w) })
	t.Run("rogue servers", func(t *testing.T) { rogueServers(ctx, t, w) })
	t.Run("flood", func(t *testing.T) { floodRequests(ctx, t, w) })
	t.Run("without API server", func(t *testing.T) {
		w.API.Stop()
		w.n1.KillAgent()
		if err := w.n1.StartAgent(ctx); err != nil {
			t.Fatal(err)
		}
		askUDHCPC(ctx, t, w)
		if err := w.API.Resume(); err != nil {
			t.Fatal(err)
		}
	})
	checkAll(ctx, t, w.world)
}

// advertised waits for the default route that the kernel of a machine has from advertisements: from
// one that it has not asked for, and then from one that it has.
func advertised(ctx context.Context, t *testing.T, w *machines) {
	router := datapath.RouterMAC.LinkLocal().String()
	await := func(how string) {
		t.Helper()
		poll(ctx, t, func() bool {
			return strings.Contains(run(t, w.asker.Host, "ip", "-6", "route", "show", "default"), "via "+router+" dev eth0 proto ra")
		}, func() { t.Errorf("%s: no default route by %s", how, router) })
	}
	await("unasked")
	run(t, w.asker.Host, "ip", "link", "set", "eth0", "down")
	run(t, w.asker.Host, "ip", "link", "set", "eth0", "up")
	await("asked")
	poll(ctx, t, func() bool {
		return strings.TrimSpace(run(t, w.asker.Host, "cat", "/proc/sys/net/ipv6/conf/eth0/mtu")) == "1400"
	}, func() { t.Error("the machine has another MTU for IPv6") })
	if got := run(t, w.asker.Host, "ip", "-6", "address", "show", "dev", "eth0", "scope", "global"); got != "" {
		t.Errorf("the machine has made an address: %s", got)
	}
}

// reported is what a client's script was told, by the names of its variables.
func reported(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	told := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		told[name] = value
	}
	return told
}

func wantReported(t *testing.T, told, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if told[name] != want[name] {
			t.Errorf("%s is %q, want %q", name, told[name], want[name])
		}
	}
}

// script writes a client's script, which has the client's environment in file as soon as it ends.
func script(t *testing.T, when, do string) (path, file string) {
	t.Helper()
	dir := t.TempDir()
	path, file = filepath.Join(dir, "script"), filepath.Join(dir, "told")
	text := "#!/bin/sh\n" + when + "\n" + do + "\nenv >" + file + ".new\nmv " + file + ".new " + file + "\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	return path, file
}

// askUDHCPC configures IPv4 by busybox's client.
func askUDHCPC(ctx context.Context, t *testing.T, w *machines) {
	path, file := script(t, `[ "$1" = bound ] || exit 0`,
		`ip address flush dev $interface scope global
ip address add $ip/$mask dev $interface
ip route add default via $router`)
	args := []string{"udhcpc", "-i", "eth0", "-f", "-n", "-q", "-t", "5", "-T", "1", "-s", path}
	for _, option := range []string{"mtu", "ntpsrv", "search", "staticroutes", "bootfile", "tftp"} {
		args = append(args, "-O", option)
	}
	if out, err := w.asker.Run(ctx, "/bin/busybox", args...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wantReported(t, reported(t, file), map[string]string{
		"ip": "10.70.0.50", "mask": "24", "subnet": "255.255.255.0", "router": "10.70.0.1", "serverid": "10.70.0.1",
		"lease": "600", "mtu": "1400", "dns": "192.0.2.53", "domain": "lan.example", "search": "lan.example example",
		"hostname": "asker", "ntpsrv": "192.0.2.123", "siaddr": "192.0.2.69", "boot_file": "boot/pxelinux.0",
		"tftp": "192.0.2.69", "staticroutes": "192.168.99.0/24 10.70.0.254 0.0.0.0/0 10.70.0.1",
	})
	reachFar(t, w, w.asker, lab.IPv4)
}

// reachFar pings from a machine through the virtual router.
func reachFar(t *testing.T, w *machines, g *lab.Guest, f lab.Family) {
	t.Helper()
	if r := ping(t, g, probe.Ping{Dst: w.far.Own("far0", f), Count: 3}); len(r.Replies) == 0 {
		t.Errorf("%s: %s does not reach a pod on another Network: %v, %v", f, g.Name, r.Errors, r.SendError)
	}
}

// askDHClient asks by ISC's client, in both families.
func askDHClient(ctx context.Context, t *testing.T, w *machines) {
	wantReported(t, dhclient(ctx, t, w, "-4", "BOUND", ""), map[string]string{
		"new_ip_address": "10.70.0.50", "new_routers": "10.70.0.1", "new_dhcp_server_identifier": "10.70.0.1",
		"new_domain_name_servers": "192.0.2.53", "new_dhcp_lease_time": "600", "new_host_name": "asker",
	})
	wantReported(t, dhclient(ctx, t, w, "-6", "BOUND6", "ip address add $new_ip6_address/$new_ip6_prefixlen dev $interface nodad"),
		map[string]string{
			"new_ip6_address": "fd00:70::50", "new_dhcp6_name_servers": "2001:db8::53",
			"new_dhcp6_domain_search": "lan.example. example.", "new_max_life": "600",
		})
	reachFar(t, w, w.asker, lab.IPv6)
}

// dhclient runs the client until its script is called for a reason, and returns what it was told.
func dhclient(ctx context.Context, t *testing.T, w *machines, family, reason, do string) map[string]string {
	t.Helper()
	path, file := script(t, `[ "$reason" = `+reason+` ] || exit 0`, do)
	dir := t.TempDir()
	config := filepath.Join(dir, "conf")
	text := "send host-name \"asker-1\";\nrequest subnet-mask, routers, domain-name-servers, host-name;\n" +
		"also request dhcp6.name-servers, dhcp6.domain-search;\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan string, 1)
	go func() {
		out, _ := w.asker.Run(running, "dhclient", family, "-d", "-1", "-v", "-cf", config, "-sf", path,
			"-lf", filepath.Join(dir, "leases"), "-pf", filepath.Join(dir, "pid"), "eth0")
		ended <- out
	}()
	var told map[string]string
	poll(within(t, 30*time.Second), t, func() bool {
		told = reported(t, file)
		return told != nil
	}, func() { t.Errorf("dhclient %s got nothing", family) })
	stop()
	if out := <-ended; told == nil {
		t.Log(out)
	}
	return told
}

// selfMade waits for the address that the kernel of a machine makes of the prefix that is
// advertised to it.
func selfMade(ctx context.Context, t *testing.T, w *machines) {
	poll(ctx, t, func() bool {
		out := run(t, w.self.Host, "ip", "-6", "address", "show", "dev", "eth0", "scope", "global")
		return strings.Contains(out, selfAddress+"/64") && !strings.Contains(out, "tentative")
	}, func() { t.Error("the machine has not made its address") })
	reachFar(t, w, w.self, lab.IPv6)
}

// rogueServers has a machine send to another one as its server would: nothing arrives until its
// Port is trusted.
func rogueServers(ctx context.Context, t *testing.T, w *machines) {
	from, at := wire(t, w.hostile.Host), wire(t, w.asker.Host)
	offers := []probe.Frame{
		rogue("10.70.0.66:67", "10.70.0.50:68"), rogue("[fd00:70::66]:547", "[fd00:70::50]:546"),
	}
	// What is not a server's arrives, so that what does not arrive is known not to.
	innocent := rogue("10.70.0.66:67", "10.70.0.50:4000")
	sent := func(frame probe.Frame) func(probe.Frame) bool {
		return func(f probe.Frame) bool { return string(f.Payload()) == string(frame.Payload()) }
	}
	try := func() (arrived int) {
		for _, frame := range append(slices.Clone(offers), innocent) {
			if err := from.Send(frame); err != nil {
				t.Fatal(err)
			}
		}
		poll(ctx, t, func() bool { return len(at.Frames(sent(innocent))) > 0 }, func() { t.Error("nothing arrives") })
		for _, frame := range offers {
			arrived += len(at.Frames(sent(frame)))
		}
		return arrived
	}
	if n := try(); n > 0 {
		t.Errorf("%d messages of a rogue server have arrived", n)
	}
	packet := diagnose.Packet{
		Node: "n1", From: "lab/hostile", Source: netip.MustParseAddr("10.70.0.66"),
		Destination: netip.MustParseAddr("10.70.0.50"), Protocol: "udp", SourcePort: 67, DestinationPort: 68,
	}
	way, err := diagnose.Trace(ctx, labAgents{w.Lab}, packet)
	if err != nil || len(way) != 1 || !strings.Contains(reasons(way[0]), "only trusted ports may send as a DHCP server") {
		t.Errorf("trace: %v, %+v", err, way)
	}
	packet.Source, packet.Destination = netip.IPv4Unspecified(), netip.MustParseAddr("255.255.255.255")
	packet.SourcePort, packet.DestinationPort = 68, 67
	if way, err := diagnose.Trace(ctx, labAgents{w.Lab}, packet); err != nil || way[0].Outcome.Kind != "answer" {
		t.Errorf("trace of a request: %v, %+v", err, way)
	}
	if err := w.API.ChangePort("lab", "hostile", func(p *v1alpha1.PortSpec) { p.Trusted = true }); err != nil {
		t.Fatal(err)
	}
	poll(ctx, t, func() bool { return try() >= len(offers) }, func() { t.Error("messages of a trusted server do not arrive") })
}

// reasons are why a traced packet was dropped, as text.
func reasons(way agentapi.Trace) string {
	var list []string
	for _, s := range way.Steps {
		list = append(list, s.Reason)
	}
	return strings.Join(list, " ")
}

// rogue is a datagram of the hostile machine to the asker.
func rogue(source, destination string) probe.Frame {
	src, dst := netip.MustParseAddrPort(source), netip.MustParseAddrPort(destination)
	etherType := uint16(probe.EtherIPv4)
	if src.Addr().Is6() {
		etherType = probe.EtherIPv6
	}
	return probe.Ethernet(hostileMAC.HardwareAddr(), askerMAC.HardwareAddr(), etherType, probe.UDP(src, dst, []byte(source)))
}

// floodRequests has a machine ask far more often than its meter lets pass, while another one asks
// once.
func floodRequests(ctx context.Context, t *testing.T, w *machines) {
	from := wire(t, w.hostile.Host)
	ask := probe.Ethernet(hostileMAC.HardwareAddr(), probe.Broadcast, probe.EtherIPv4, probe.UDP(
		netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), discover(hostileMAC)))
	begun := time.Now()
	const requests = 3000
	for range requests {
		if err := from.Send(ask); err != nil {
			t.Fatal(err)
		}
	}
	askUDHCPC(ctx, t, w)
	answers := len(from.Frames(func(f probe.Frame) bool {
		src, _ := f.IPs()
		return src == netip.MustParseAddr("10.70.0.1")
	}))
	took := time.Since(begun)
	t.Logf("%d of %d requests are answered in %s", answers, requests, took)
	if most := 20 * (3 + int(took.Seconds())); answers == 0 || answers > most {
		t.Errorf("%d requests are answered, want 1 to %d", answers, most)
	}
}

// discover is a DISCOVER of a machine.
func discover(mac intent.MAC) []byte {
	const (
		headerLen = 236
		chaddrAt  = 28
	)
	b := make([]byte, headerLen, headerLen+8)
	b[0], b[1], b[2] = 1, 1, 6
	copy(b[chaddrAt:], mac[:])
	return append(b, 99, 130, 83, 99, 53, 1, 1, 255)
}
