// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// The DHCP server that nodes ask as relays, and a host that they do not ask.
var (
	relayServer = netip.MustParseAddr("198.51.100.7")
	relayOther  = netip.MustParseAddr("203.0.113.65")
)

// relayWorld has two nodes on a VLAN of the data center, the Network lan, and a DHCP server that is
// elsewhere: beyond the nodes' router, and not on the VLAN.
type relayWorld struct {
	*world
	server *dhcpServer
	other  *lab.Host
	router *lab.Host // of the VLAN
}

func newRelayWorld(t *testing.T) (context.Context, *relayWorld) {
	t.Helper()
	w := &relayWorld{world: &world{Lab: lab.New(t, lab.Options{Configure: func(c *config.Config) {
		c.BridgeMappings = map[string]string{"dc": "br-ext"}
	}})}}
	w.n1, w.n2 = w.Nodes[0], w.Nodes[1]
	ctx := within(t, 8*time.Minute)
	vlan := int32(42)
	w.API.AddNetwork("lan", v1alpha1.NetworkSpec{
		Type: v1alpha1.VLAN, VLAN: &vlan, PhysicalNetwork: "dc", IPAM: v1alpha1.DHCPServers,
		DHCPRelay: &v1alpha1.DHCPRelay{Servers: []string{relayServer.String(), "198.51.100.99"}, Subnet: "192.168.42.0/24"},
	})
	w.API.AddDefinition("lab", "lan", "lan")
	for _, n := range w.Nodes {
		must(t, n.AddPhysicalBridge(ctx, "br-ext"))
	}
	awaitConnected(ctx, t, w.world, w.n1, "dc")
	awaitConnected(ctx, t, w.world, w.n2, "dc")
	var err error
	if w.router, err = w.n2.AddVLANHost(ctx, "br-ext", "router", 42, netip.PrefixFrom(dhcpGateway, 24)); err != nil {
		t.Fatal(err)
	}
	host, err := w.AddHostBeyond("dhcp", 1500, netip.PrefixFrom(relayServer, 24))
	if err != nil {
		t.Fatal(err)
	}
	if w.other, err = w.AddHostBeyond("other", 1500, netip.PrefixFrom(relayOther, 26)); err != nil {
		t.Fatal(err)
	}
	w.server = &dhcpServer{t: t, host: host, leases: filepath.Join(t.TempDir(), "leases")}
	t.Cleanup(func() { w.server.stop(false) })
	return ctx, w
}

// TestDHCPRelay has a pod and a machine on a VLAN that have their addresses from a DHCP server
// which their nodes ask as relays.
func TestDHCPRelay(t *testing.T) {
	ctx, w := newRelayWorld(t)
	spec := lab.PodSpec{Name: "early", Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "lan@lan0"}}
	mac := intent.MAC{0x52, 0x54, 0, 0x42, 0, 1}
	w.API.AddPort("shop", "vm", "lan", mac.String())
	guest, err := w.n1.AddGuest(ctx, "vm", leasedVM, mac.HardwareAddr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	awaitPort(ctx, t, w.world, leasedVM, func(p *v1alpha1.Port) bool { return p.Status.Phase == v1alpha1.PortBound })
	renew := askForEver(t, guest)

	t.Run("without a server", func(t *testing.T) {
		_, err := w.n1.AddPodAs(ctx, spec)
		want := fmt.Sprintf("no DHCP server that the node asks as a relay from %s (198.51.100.7, 198.51.100.99) answered within 10s", w.n1.Address(lab.IPv4))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		awaitEvent(ctx, t, w.world, v1alpha1.ReasonNoLease, "has answered for 10s what the machine asks")
	})
	t.Run("the port is taken", func(t *testing.T) { portTaken(ctx, t, w, spec) })

	w.server.start("192.168.42.100", "192.168.42.120")
	spec.Name = "a"
	pod := addPodAs(t, w.n2, spec)
	list, err := pod.On("lan0")
	if err != nil || len(list) != 1 || list[0].Bits() != 24 || !strings.HasPrefix(list[0].Addr().String(), "192.168.42.1") {
		t.Fatalf("the pod has %v, %v", list, err)
	}
	ofPod, ofMachine := list[0].Addr(), awaitLeased(ctx, t, w.world, "192.168.42.1")
	configured(ctx, t, guest, ofMachine)
	for _, a := range []netip.Addr{ofPod, ofMachine} {
		if w.server.expires(a) == 0 {
			t.Errorf("the server knows nothing of %s", a)
		}
	}
	reach := func(when string) {
		t.Helper()
		for _, h := range []*lab.Host{pod.Host, guest.Host} {
			if r, err := (probe.Ping{Dst: dhcpGateway, Count: 2}).Run(ctx, h); err != nil || r.Lost() > 0 {
				t.Errorf("%s %s does not reach the router of the VLAN: %+v, %v", when, h.Name, r, err)
			}
		}
	}
	reach("with its address")
	for h, link := range map[*lab.Host]string{pod.Host: "lan0", guest.Host: "eth0"} {
		run(t, h, "ip", "addr", "add", "192.168.42.77/24", "dev", link)
		if _, err := h.Run(ctx, "ping", "-c", "2", "-W", "1", "-I", "192.168.42.77", dhcpGateway.String()); err == nil {
			t.Errorf("%s uses an address that no server has given it", h.Name)
		}
		run(t, h, "ip", "addr", "del", "192.168.42.77/24", "dev", link)
	}

	w.server.awaitRenewed(ctx, ofPod)
	w.server.awaitRenewedBy(ctx, ofMachine, renew)
	for _, n := range w.Nodes {
		n.KillAgent()
		must(t, n.StartAgent(ctx))
	}
	reach("after a restart of the agent")
	w.server.awaitRenewed(ctx, ofPod)
	w.server.awaitRenewedBy(ctx, ofMachine, renew)

	// A server that knows nothing of the lease refuses it, and gives the machine another one.
	w.server.stop(true)
	w.server.start("192.168.42.200", "192.168.42.210")
	renew()
	now := awaitLeased(ctx, t, w.world, "192.168.42.2")
	configured(ctx, t, guest, now)
	run(t, guest.Host, "ip", "addr", "add", ofMachine.String()+"/24", "dev", "eth0")
	if _, err := guest.Run(ctx, "ping", "-c", "2", "-W", "1", "-I", ofMachine.String(), dhcpGateway.String()); err == nil {
		t.Errorf("the machine uses %s, which it has lost for %s", ofMachine, now)
	}
	awaitLost(ctx, t, w.world, ofPod)
	w.server.stop(true)
	w.server.start("192.168.42.100", "192.168.42.120")
	poll(ctx, t, func() bool { return w.server.expires(ofPod) != 0 }, func() { t.Errorf("the pod has not got %s again", ofPod) })
	must(t, pod.Del(ctx))
	poll(ctx, t, func() bool { return w.server.expires(ofPod) == 0 }, func() { t.Errorf("DEL does not give %s back", ofPod) })

	w.server.stop(true)
	t.Run("answers of others", func(t *testing.T) { relayAnswers(ctx, t, w) })
	awaitCheck(ctx, t, w.world)
}

// portTaken has another program of a node listen where servers answer to.
func portTaken(ctx context.Context, t *testing.T, w *relayWorld, spec lab.PodSpec) {
	w.n1.KillAgent() // which has the port
	taken := listenOn(t, w.n1.Host, netip.AddrPortFrom(netip.IPv4Unspecified(), 67))
	must(t, w.n1.StartAgent(ctx))
	spec.Name = "late"
	_, err := w.n1.AddPodAs(ctx, spec)
	if err == nil || !strings.Contains(err.Error(), "UDP port 67, by which the node asks DHCP servers as a relay, is in use by another program") {
		t.Errorf("%v", err)
	}
	awaitEvent(ctx, t, w.world, "DHCPRelayNotWorking", "ss -lunp 'sport = :67'")
	must(t, taken.Close())
}

// relayAnswers has others than the server answer what a machine asks it. The very same answer of
// the server is taken.
func relayAnswers(ctx context.Context, t *testing.T, w *relayWorld) {
	mac := intent.MAC{0x52, 0x54, 0, 0x42, 0, 2}
	w.API.AddPort("shop", "evil", "lan", mac.String())
	guest, err := w.n1.AddGuest(ctx, "evil", evilVM, mac.HardwareAddr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	awaitPort(ctx, t, w.world, evilVM, func(p *v1alpha1.Port) bool { return p.Status.Phase == v1alpha1.PortBound })
	server := listenOn(t, w.server.host, netip.AddrPortFrom(relayServer, 67))
	other := listenOn(t, w.other, netip.AddrPortFrom(relayOther, 67))
	all, none := netip.MustParseAddr("255.255.255.255"), netip.IPv4Unspecified()
	from, wired := wire(t, guest.Host), wire(t, w.router)
	// ask has the machine ask, with a number of the question.
	ask := func(number byte, change ...dhcpv4.Modifier) {
		t.Helper()
		m, err := dhcpv4.New(append([]dhcpv4.Modifier{
			dhcpv4.WithHwAddr(mac.HardwareAddr()), dhcpv4.WithTransactionID(dhcpv4.TransactionID{6, 6, 6, number}),
			dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest),
		}, change...)...)
		if err != nil {
			t.Fatal(err)
		}
		frame := probe.Ethernet(mac.HardwareAddr(), intent.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}.HardwareAddr(), probe.EtherIPv4,
			probe.UDP(netip.AddrPortFrom(none, 68), netip.AddrPortFrom(all, 67), m.ToBytes()))
		must(t, from.Send(frame))
	}
	// What a machine says as a relay does not get there: the first one that does is the honest one.
	honest := dhcpv4.TransactionID{6, 6, 6, 3}
	ask(1, dhcpv4.WithGatewayIP(w.n2.Address(lab.IPv4).AsSlice()))
	ask(2, dhcpv4.WithGeneric(dhcpv4.OptionRelayAgentInformation, []byte("\x01\x0blan/shop/vm")))
	ask(honest[3])
	node := netip.AddrPortFrom(w.n1.Address(lab.IPv4), 67)
	var question *dhcpv4.DHCPv4
	b := make([]byte, 1500)
	for question == nil || question.TransactionID != honest { // others are vm's
		must(t, server.SetReadDeadline(time.Now().Add(20*time.Second)))
		n, sender, err := server.ReadFromUDPAddrPort(b)
		if err != nil {
			t.Fatalf("the question does not get to the server: %v", err)
		}
		question, err = dhcpv4.FromBytes(b[:n])
		if err != nil || sender != node {
			t.Fatalf("from %v: %v", sender, err)
		}
		if x := question.TransactionID; x[0] == 6 && x[3] != 3 {
			t.Errorf("a machine asks as a relay: %s", question.Summary())
		}
	}
	option := question.GetOneOption(dhcpv4.OptionRelayAgentInformation)
	if want := "\x01\x0dlan/shop/evil\x02\x02n1\x05\x04\xc0\xa8\x2a\x00"; string(option) != want || !question.GatewayIPAddr.Equal(node.Addr().AsSlice()) {
		t.Errorf("relay %v, option 82 %q, want %q", question.GatewayIPAddr, option, want)
	}
	answer, err := dhcpv4.NewReplyFromRequest(question, dhcpv4.WithMessageType(dhcpv4.MessageTypeAck), dhcpv4.WithYourIP([]byte{192, 168, 42, 66}),
		dhcpv4.WithLeaseTime(600), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(relayServer.AsSlice())),
		dhcpv4.WithGeneric(dhcpv4.OptionRelayAgentInformation, option))
	if err != nil {
		t.Fatal(err)
	}
	// refused counts what the relay has refused.
	refused := func() string {
		for line := range strings.Lines(run(t, w.n1.Host, "curl", "-s", "http://127.0.0.1:10360/metrics")) {
			if n, ok := strings.CutPrefix(line, `coelan_dhcp_relay_messages_total{message="refused"} `); ok {
				return strings.TrimSpace(n)
			}
		}
		return "0"
	}
	send := func(c *net.UDPConn, m *dhcpv4.DHCPv4) {
		t.Helper()
		if _, err := c.WriteToUDPAddrPort(m.ToBytes(), node); err != nil {
			t.Fatal(err)
		}
	}
	send(other, answer)
	poll(ctx, t, func() bool { return refused() == "1" }, func() { t.Errorf("an answer of another host is not refused: %s", refused()) })
	elsewhere := *answer
	elsewhere.YourIPAddr = net.IP{192, 168, 33, 66}
	send(server, &elsewhere)
	poll(ctx, t, func() bool { return refused() == "2" }, func() { t.Errorf("an address of the nodes' subnet is not refused: %s", refused()) })
	// By the wire, where no server is asked.
	must(t, wired.Send(probe.Ethernet(intent.MAC{2, 2, 2, 2, 2, 2}.HardwareAddr(), mac.HardwareAddr(), probe.EtherIPv4,
		probe.UDP(netip.AddrPortFrom(relayServer, 67), netip.AddrPortFrom(all, 68), answer.ToBytes()))))
	poll(ctx, t, func() bool {
		out, err := w.n1.OVS.Ofctl(ctx, "dump-flows", "br-int", "table=0,udp,tp_dst=68")
		return err == nil && slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
			return !strings.Contains(line, "n_packets=0,") && strings.Contains(line, "actions=drop")
		})
	}, func() { t.Error("what answers by the wire is not dropped") })
	if p := awaitPort(ctx, t, w.world, evilVM, func(*v1alpha1.Port) bool { return true }); p.Status.Lease != nil || len(p.Status.Addresses) > 0 {
		t.Errorf("the machine has %v", p.Status.Addresses)
	}
	send(server, answer)
	awaitPort(ctx, t, w.world, evilVM, func(p *v1alpha1.Port) bool { return slices.Equal(p.Status.Addresses, []string{"192.168.42.66"}) })
}

// listenOn opens a socket of a host, which is closed when the test ends at the latest.
func listenOn(t *testing.T, h *lab.Host, at netip.AddrPort) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	if err := h.Do(func() (err error) {
		c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
