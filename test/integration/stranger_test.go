// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// vxlanPort is where nodes take tunnel packets (RFC 7348).
const vxlanPort = 4789

// strangerPackets is how many tunnel packets each stranger makes.
const strangerPackets = 40

// TestTunnelPacketsOfStrangers has pods and an outside host make tunnel packets of every kind, and
// send them to nodes in every way, by bridge and kernel together. None may reach a pod, while the
// same ones of a node do.
func TestTunnelPacketsOfStrangers(t *testing.T) {
	t.Run("native", func(t *testing.T) { tunnelPacketsOfStrangers(t, sharedWorld(t), false) })
	t.Run("kube-proxy", func(t *testing.T) { tunnelPacketsOfStrangers(t, proxiedWorld(t), true) })
}

func tunnelPacketsOfStrangers(t *testing.T, w *world, services bool) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, seed))
	tunnels := func(n *lab.Node) netip.AddrPort { return netip.AddrPortFrom(n.Address(lab.IPv4), vxlanPort) }
	ways := []netip.AddrPort{tunnels(w.n2), netip.AddrPortFrom(w.n2.Address(lab.IPv6), vxlanPort)}
	if services {
		// A Service with a node's tunnels as its endpoint.
		expose(t, w.n1, "udp", tunnels(w.n2))
		ways = append(ways, netip.AddrPortFrom(vip[lab.IPv4], 80))
	}
	victim := wire(t, w.c.Host)
	marked := func(mark string) func(probe.Frame) bool {
		return func(f probe.Frame) bool { return bytes.Contains(f, []byte(mark)) }
	}
	const forged = "a stranger's tunnel packet"
	for n := range strangerPackets {
		f := []lab.Family{lab.IPv4, lab.IPv6}[random.IntN(2)]
		sources := []netip.Addr{w.b.Address(f), w.d.Address(f), w.a.Address(f), w.n1.Gateway(f), w.n2.Gateway(f), w.n1.Address(f), lab.Internet(f)}
		src := netip.AddrPortFrom(sources[random.IntN(len(sources))], uint16(1024+random.IntN(60000)))
		dst := netip.AddrPortFrom(w.c.Address(f), uint16(1024+random.IntN(60000)))
		vni := []uint32{uint32(intent.DefaultNetwork), uint32(intent.DefaultNetwork), random.Uint32N(1 << 24)}[random.IntN(3)]
		packet := func(mark string) []byte {
			frame := probe.Ethernet(router, router, etherType[f], probe.UDP(src, dst, fmt.Appendf(nil, "%s %d", mark, n)))
			return append(binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, vni<<8), frame...)
		}
		what := fmt.Sprintf("VNI %d, %s to %s", vni, src, dst)
		for _, from := range []*lab.Host{w.a.Host, w.Outside} {
			for _, at := range ways {
				if from == w.Outside && at.Addr() == vip[lab.IPv4] {
					continue // it has no way there
				}
				sendTo(t, from, at, packet(forged))
			}
		}
		if vni != uint32(intent.DefaultNetwork) {
			continue
		}
		own := fmt.Sprintf("the node's tunnel packet %d", n)
		sendTo(t, w.n1.Host, tunnels(w.n2), packet("the node's tunnel packet"))
		if _, err := victim.Wait(t.Context(), marked(own)); err != nil {
			t.Errorf("%s, sent by a node: %v", what, err)
		}
	}
	// The way is open: what a stranger sends to another port of the node arrives.
	open := netip.AddrPortFrom(w.n2.Address(lab.IPv4), vxlanPort+1)
	var socket *net.UDPConn
	if err := w.n2.Do(func() (err error) { socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(open)); return err }); err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, from := range []*lab.Host{w.a.Host, w.Outside} {
		sendTo(t, from, open, []byte(from.Name))
		b := make([]byte, 100)
		if err := socket.SetReadDeadline(time.Now().Add(probe.AnswerTimeout)); err != nil {
			t.Fatal(err)
		}
		if _, err := socket.Read(b); err != nil {
			t.Errorf("from %s to another port: %v", from.Name, err)
		}
	}
	if err := victim.Quiet(quiet, marked(forged)); err != nil {
		t.Error(err)
	}
}

// sendTo sends one datagram.
func sendTo(t *testing.T, from *lab.Host, at netip.AddrPort, payload []byte) {
	t.Helper()
	err := from.Do(func() error {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(payload)
		return err
	})
	if err != nil {
		t.Fatalf("%s sends to %s: %v", from.Name, at, err)
	}
}
