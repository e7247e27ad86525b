// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// The Ports of TestIPAMDHCPMachines.
const (
	leasedVM = "shop/vm"
	evilVM   = "shop/evil"
)

// TestIPAMDHCPMachines has machines on a VLAN ask the DHCP server of the data center by themselves.
func TestIPAMDHCPMachines(t *testing.T) {
	ctx, w, server := newDHCPWorld(t, 8*time.Minute)
	server.start("192.168.42.100", "192.168.42.120")
	mac, evilMAC := intent.MAC{0x52, 0x54, 0, 0x42, 0, 1}, intent.MAC{0x52, 0x54, 0, 0x42, 0, 2}
	w.API.AddPort("shop", "vm", "lan", mac.String())
	w.API.AddPort("shop", "evil", "lan", evilMAC.String())
	guest, err := w.n1.AddGuest(ctx, "vm", leasedVM, mac.HardwareAddr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	awaitPort(ctx, t, w, leasedVM, func(p *v1alpha1.Port) bool {
		return p.Status.Phase == v1alpha1.PortBound && len(p.Status.Addresses) == 0
	})
	renew := askForEver(t, guest)
	own := awaitLeased(ctx, t, w, "192.168.42.1")
	configured(ctx, t, guest, own)
	if server.expires(own) == 0 {
		t.Errorf("the server knows nothing of %s", own)
	}
	reach := func(when string) {
		t.Helper()
		if r, err := (probe.Ping{Dst: dhcpGateway, Count: 2}).Run(ctx, guest.Host); err != nil || r.Lost() > 0 {
			t.Errorf("%s the machine does not reach the server: %+v, %v", when, r, err)
		}
	}
	reach("with its address")
	run(t, guest.Host, "ip", "addr", "add", "192.168.42.77/24", "dev", "eth0")
	if _, err := guest.Run(ctx, "ping", "-c", "2", "-W", "1", "-I", "192.168.42.77", dhcpGateway.String()); err == nil {
		t.Error("the machine uses an address that no server has given it")
	}
	run(t, guest.Host, "ip", "addr", "del", "192.168.42.77/24", "dev", "eth0")

	server.awaitRenewedBy(ctx, own, renew)
	w.n1.KillAgent()
	if err := w.n1.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	reach("after a restart of the agent")
	server.awaitRenewedBy(ctx, own, renew)

	// A server that knows nothing of the lease refuses it, and gives the machine another one.
	server.stop(true)
	server.start("192.168.42.200", "192.168.42.210")
	renew()
	now := awaitLeased(ctx, t, w, "192.168.42.2")
	configured(ctx, t, guest, now)
	reach("with another address")
	run(t, guest.Host, "ip", "addr", "add", own.String()+"/24", "dev", "eth0")
	if _, err := guest.Run(ctx, "ping", "-c", "2", "-W", "1", "-I", own.String(), dhcpGateway.String()); err == nil {
		t.Errorf("the machine uses %s, which it has lost for %s", own, now)
	}

	t.Run("answers of a machine", func(t *testing.T) { fakeAnswers(ctx, t, w, server.host, evilMAC) })
	t.Run("to another node", func(t *testing.T) {
		if err := guest.Unplug(ctx); err != nil {
			t.Fatal(err)
		}
		awaitPort(ctx, t, w, leasedVM, func(p *v1alpha1.Port) bool {
			return p.Status.Phase == v1alpha1.PortReady && len(p.Status.Addresses) == 0 && p.Status.Lease != nil
		})
		moved, err := w.n2.AddGuest(ctx, "moved", leasedVM, mac.HardwareAddr(), []netip.Prefix{netip.PrefixFrom(now, 24)})
		if err != nil {
			t.Fatal(err)
		}
		awaitLeased(ctx, t, w, now.String())
		if r, err := (probe.Ping{Dst: dhcpGateway, Count: 2}).Run(ctx, moved.Host); err != nil || r.Lost() > 0 {
			t.Errorf("the machine has lost its lease on the way: %+v, %v", r, err)
		}
	})
	awaitCheck(ctx, t, w)
}

// configured waits until a machine has an address.
func configured(ctx context.Context, t *testing.T, g *lab.Guest, a netip.Addr) {
	t.Helper()
	poll(ctx, t, func() bool {
		out, err := g.Run(ctx, "ip", "-4", "-o", "address", "show", "dev", "eth0")
		return err == nil && strings.Contains(out, a.String()+"/")
	}, func() { t.Errorf("the machine has not configured %s", a) })
}

// askForEver runs busybox's client, which configures the machine, and renews its lease when the
// function that is returned is called.
func askForEver(t *testing.T, g *lab.Guest) (renew func()) {
	t.Helper()
	path, _ := script(t, `[ "$1" = bound -o "$1" = renew -o "$1" = deconfig ] || exit 0
[ "$1" = renew ] || ip address flush dev $interface scope global
[ "$1" = bound ] || exit 0`, `ip address add $ip/$mask dev $interface
ip route replace default via $router`)
	cmd := exec.Command("/bin/busybox", "udhcpc", "-i", "eth0", "-f", "-t", "20", "-T", "1", "-A", "1", "-s", path)
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return func() {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitLeased waits until the Port shows an address that begins with a text, and its lease.
func awaitLeased(ctx context.Context, t *testing.T, w *world, begins string) netip.Addr {
	t.Helper()
	p := awaitPort(ctx, t, w, leasedVM, func(p *v1alpha1.Port) bool {
		return len(p.Status.Addresses) == 1 && strings.HasPrefix(p.Status.Addresses[0], begins) &&
			p.Status.Lease != nil && slices.Equal(p.Status.Lease.Addresses, p.Status.Addresses)
	})
	return netip.MustParseAddr(p.Status.Addresses[0])
}

// fakeAnswers has a machine acknowledge itself an address in the name of a server: the node does
// not believe it. The very same answer from the wire it believes.
func fakeAnswers(ctx context.Context, t *testing.T, w *world, host *lab.Host, mac intent.MAC) {
	guest, err := w.n1.AddGuest(ctx, "evil", evilVM, mac.HardwareAddr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	awaitPort(ctx, t, w, evilVM, func(p *v1alpha1.Port) bool { return p.Status.Phase == v1alpha1.PortBound })
	all, none := netip.MustParseAddr("255.255.255.255"), netip.IPv4Unspecified()
	broadcast := intent.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}.HardwareAddr()
	server := netip.MustParseAddr("192.168.42.254")
	message := func(from, to netip.AddrPort, kind dhcpv4.MessageType, change ...dhcpv4.Modifier) probe.Frame {
		m, err := dhcpv4.New(append([]dhcpv4.Modifier{
			dhcpv4.WithHwAddr(mac.HardwareAddr()), dhcpv4.WithTransactionID(dhcpv4.TransactionID{6, 6, 6, 6}),
			dhcpv4.WithMessageType(kind),
		}, change...)...)
		if err != nil {
			t.Fatal(err)
		}
		if from.Port() == 67 {
			m.OpCode = dhcpv4.OpcodeBootReply
		}
		return probe.Ethernet(mac.HardwareAddr(), broadcast, probe.EtherIPv4, probe.UDP(from, to, m.ToBytes()))
	}
	// The request names a server that is not there, so that no other answers it.
	question := message(netip.AddrPortFrom(none, 68), netip.AddrPortFrom(all, 67), dhcpv4.MessageTypeRequest,
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier([]byte{192, 168, 42, 9})),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress([]byte{192, 168, 42, 66})))
	answer := message(netip.AddrPortFrom(server, 67), netip.AddrPortFrom(all, 68), dhcpv4.MessageTypeAck,
		dhcpv4.WithYourIP([]byte{192, 168, 42, 66}), dhcpv4.WithLeaseTime(600), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(server.AsSlice())))
	from, wired := wire(t, guest.Host), wire(t, host)
	asks := func() {
		t.Helper()
		if err := from.Send(question); err != nil {
			t.Fatal(err)
		}
		asked := func(f probe.Frame) bool { return strings.Contains(string(f), "\x06\x06\x06\x06") }
		if _, err := wired.Wait(ctx, asked); err != nil {
			t.Fatalf("the question does not get to the wire: %v", err)
		}
	}
	asks()
	if err := from.Send(answer); err != nil {
		t.Fatal(err)
	}
	poll(ctx, t, func() bool {
		out, err := w.n1.OVS.Ofctl(ctx, "dump-flows", "br-int", "table=10,udp,tp_dst=68")
		return err == nil && slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
			return strings.Contains(line, "n_packets=1,") && strings.Contains(line, "actions=drop")
		})
	}, func() { t.Error("what the machine says as a server is not dropped") })
	if p := awaitPort(ctx, t, w, evilVM, func(*v1alpha1.Port) bool { return true }); p.Status.Lease != nil || len(p.Status.Addresses) > 0 {
		t.Errorf("the machine has given itself %v", p.Status.Addresses)
	}
	if err := wired.Send(answer); err != nil {
		t.Fatal(err)
	}
	awaitPort(ctx, t, w, evilVM, func(p *v1alpha1.Port) bool { return slices.Equal(p.Status.Addresses, []string{"192.168.42.66"}) })
}
