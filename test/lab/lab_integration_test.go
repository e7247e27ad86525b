// SPDX-License-Identifier: Apache-2.0

//go:build integration

package lab_test

import (
	"context"
	"net/netip"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// network is a segment with two hosts on a plain switch.
func network(ctx context.Context, t *testing.T) (n *lab.Node, a, b *lab.Host) {
	t.Helper()
	n = lab.New(t, lab.Options{Nodes: 1, NoAgents: true}).Nodes[0]
	for i, h := range []**lab.Host{&a, &b} {
		var err error
		*h, err = n.AddReferenceHost(ctx, string(rune('a'+i)),
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 24),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(i + 1)}), 64))
		if err != nil {
			t.Fatal(err)
		}
	}
	return n, a, b
}

func TestPingTellsWhatCameBack(t *testing.T) {
	ctx := t.Context()
	_, a, b := network(ctx, t)
	for f := range lab.Dual.Each {
		t.Run(f.String(), func(t *testing.T) {
			for _, tc := range []struct {
				name  string
				ping  probe.Ping
				lost  int
				tries bool
			}{
				{"there", probe.Ping{Dst: b.Address(f), Count: 3}, 0, true},
				{"paced", probe.Ping{Dst: b.Address(f), Count: 3, Interval: 10 * time.Millisecond}, 0, true},
				{"nobody", probe.Ping{Dst: b.Address(f).Next(), Wait: 100 * time.Millisecond}, 1, true},
				{"too large", probe.Ping{Dst: b.Address(f), Size: 1450}, 0, false},
				{"in fragments", probe.Ping{Dst: b.Address(f), Size: 4000, MayFragment: true}, 0, true},
			} {
				got, err := tc.ping.Run(ctx, a)
				if err != nil || got.Lost() != tc.lost || (got.SendError == nil) != tc.tries {
					t.Errorf("%s: lost %d, send error %v, %v", tc.name, got.Lost(), got.SendError, err)
				}
			}
		})
	}
}

func TestStreamsCountWhatIsLost(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, a, b := network(ctx, t)
	udp, err := probe.StartUDP(a, b, netip.AddrPortFrom(b.Address(lab.IPv4), 5001),
		netip.AddrPortFrom(b.Address(lab.IPv4), 5001), 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	server, err := probe.Serve(b, netip.AddrPortFrom(b.Address(lab.IPv6), 5002), probe.Echo)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	tcp, err := probe.StartTCP(ctx, a, netip.AddrPortFrom(b.Address(lab.IPv6), 5002), 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return udp.Wait(ctx, 20) },
		func() error { return n.OVS.AddBridge(ctx, "unrelated") },
		func() error {
			_, err := n.OVS.Ofctl(ctx, "add-flow", "br-ref", "priority=9,udp,actions=drop")
			return err
		},
		func() error { _, err := n.OVS.Run(ctx, "ping", "-c", "5", "-i", "0.1", "-q", "127.0.0.1"); return err },
		func() error { _, err := n.OVS.Ofctl(ctx, "del-flows", "br-ref", "udp"); return err },
		func() error { return udp.Wait(ctx, 20) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	u, c := udp.Stop(), tcp.Stop()
	t.Logf("UDP: %s", u)
	t.Logf("TCP: %s", c)
	if len(u.Lost) < 20 || u.LostThere < len(u.Lost)-2 || u.Gap < 300*time.Millisecond || u.Sent < 40+len(u.Lost) {
		t.Errorf("UDP stream with an interruption of 0.4 s: %s", u)
	}
	if c.Err != nil || c.Rounds < 20 {
		t.Errorf("TCP stream that nothing disturbed: %s", c)
	}
}

func TestTransferSeesWhoAsks(t *testing.T) {
	ctx := t.Context()
	_, a, b := network(ctx, t)
	for f := range lab.Dual.Each {
		at := netip.AddrPortFrom(b.Address(f), 80)
		digest, err := probe.Serve(b, at, probe.Digest)
		if err != nil {
			t.Fatal(err)
		}
		rate, err := probe.Transfer(ctx, a, at, 10<<20)
		digest.Close()
		if err != nil {
			t.Errorf("%s: transfer: %v", f, err)
		}
		t.Logf("%s: %.0f MB/s", f, rate/1e6)
		who, err := probe.Serve(b, at, probe.WhoAmI)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := probe.Seen(ctx, a, at)
		who.Close()
		if err != nil || seen.Addr() != a.Address(f) {
			t.Errorf("%s: the server saw %s, %v", f, seen, err)
		}
	}
}

func TestWireSeesAndSendsFrames(t *testing.T) {
	ctx := t.Context()
	_, a, b := network(ctx, t)
	wires := map[*lab.Host]*probe.Wire{}
	for _, h := range []*lab.Host{a, b} {
		w, err := probe.OpenWire(h, "eth0")
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		wires[h] = w
	}
	mac := []byte{2, 0, 0, 0, 0, 9}
	request := probe.ARP(probe.ARPRequest, mac, netip.MustParseAddr("10.0.0.9"), make([]byte, 6), b.Address(lab.IPv4))
	if err := wires[a].Send(probe.Ethernet(mac, probe.Broadcast, probe.EtherARP, request)); err != nil {
		t.Fatal(err)
	}
	if _, err := wires[b].Wait(ctx, func(f probe.Frame) bool { return string(f.Src()) == string(mac) }); err != nil {
		t.Errorf("the request at b: %v", err)
	}
	reply, err := wires[a].Wait(ctx, func(f probe.Frame) bool { return f.Type() == probe.EtherARP && string(f.Dst()) == string(mac) })
	if err != nil {
		t.Fatalf("the reply at a: %v", err)
	}
	if src, dst := reply.IPs(); src != b.Address(lab.IPv4) || dst.String() != "10.0.0.9" {
		t.Errorf("reply from %s to %s", src, dst)
	}
	solicit := probe.Neighbour(probe.NeighbourSolicitation, netip.MustParseAddr("fd00::9"),
		netip.MustParseAddr("ff02::1:ff00:2"), b.Address(lab.IPv6), mac)
	if err := wires[a].Send(probe.Ethernet(mac, []byte{0x33, 0x33, 0xff, 0, 0, 2}, probe.EtherIPv6, solicit)); err != nil {
		t.Fatal(err)
	}
	// b answers fd00::9 after it has asked for its MAC.
	if _, err := wires[a].Wait(ctx, func(f probe.Frame) bool {
		src, _ := f.IPs()
		return f.Type() == probe.EtherIPv6 && src == b.Address(lab.IPv6)
	}); err != nil {
		t.Errorf("answer to the solicitation: %v", err)
	}
	if err := wires[b].Quiet(50*time.Millisecond, func(f probe.Frame) bool { return string(f.Src()) == string(mac) && f.Type() == probe.EtherIPv4 }); err != nil {
		t.Error(err)
	}
}

// TestNothingIsLeft looks for what a lab leaves behind.
func TestNothingIsLeft(t *testing.T) {
	defer goleak.VerifyNone(t)
	var dir string
	t.Run("lab", func(t *testing.T) {
		n, a, b := network(t.Context(), t)
		dir = n.OVS.Dir
		if r, err := (probe.Ping{Dst: b.Address(lab.IPv6)}).Run(t.Context(), a); err != nil || r.Lost() > 0 {
			t.Errorf("lost %d, %v", r.Lost(), err)
		}
	})
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s: %v", dir, err)
	}
}

// Pods that the kernels of two nodes connect reach each other through the tunnel, and the outside
// once they are masqueraded.
func TestKernelVXLAN(t *testing.T) {
	ctx := t.Context()
	l := lab.New(t, lab.Options{NoAgents: true, Families: lab.IPv4})
	if err := l.ConnectByKernel(ctx); err != nil {
		t.Fatal(err)
	}
	var pods [2]*lab.Host
	for i, n := range l.Nodes {
		var err error
		if pods[i], err = n.AddKernelPod(ctx, string(rune('a'+i)), n.Gateway(lab.IPv4).Next()); err != nil {
			t.Fatal(err)
		}
	}
	lost := func(to netip.Addr) int {
		got, err := probe.Ping{Dst: to, Wait: time.Second}.Run(ctx, pods[0])
		if err != nil {
			t.Fatal(err)
		}
		return got.Lost()
	}
	if lost(pods[1].Address(lab.IPv4)) != 0 {
		t.Error("a pod does not reach the one of the other node")
	}
	if lost(l.Outside.Address(lab.IPv4)) != 1 {
		t.Error("the outside answers a pod that nothing masquerades")
	}
	if err := l.Nodes[0].MasqueradeByKernel(ctx); err != nil {
		t.Fatal(err)
	}
	if lost(l.Outside.Address(lab.IPv4)) != 0 {
		t.Error("a masqueraded pod does not reach the outside")
	}
}
