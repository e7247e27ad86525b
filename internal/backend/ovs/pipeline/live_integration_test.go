// SPDX-License-Identifier: Apache-2.0

//go:build integration

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/ovstest"
	"coelan.io/coelan/test/lab/probe"
)

// The flows carry real packets of real kernels, both families, on the datapath
// that COELAN_TEST_DATAPATH names.
func TestPackets(t *testing.T) {
	for _, encap := range []intent.Encapsulation{intent.VXLAN, intent.Geneve, intent.NoEncap} {
		t.Run(string(encap), func(t *testing.T) {
			w := newWorld(t, encap)
			for _, v6 := range []bool{false, true} {
				family := map[bool]string{false: "IPv4", true: "IPv6"}[v6]
				t.Run(family, func(t *testing.T) {
					t.Run("Reach", func(t *testing.T) { testReach(t, w, v6) })
					t.Run("Errors", func(t *testing.T) { testErrors(t, w, v6) })
					t.Run("Streams", func(t *testing.T) { testStreams(t, w, v6) })
					t.Run("Service", func(t *testing.T) { testService(t, w, v6) })
				})
			}
		})
	}
}

// ping sends one echo request, the first packet of all but the tunnel's.
func ping(ns *ovstest.Namespace, to string, options string) (string, error) {
	return runIn(ns, "ping -n -c1 -W3 "+options+" "+to)
}

func testReach(t *testing.T, w *world, v6 bool) {
	a, b := w.nodes[0], w.nodes[1]
	pod, neighbour, remote := a.pods[0], a.pods[1], b.pods[0]
	routed := "63" // one router between nodes with a tunnel
	if !w.encap.Tunneled() {
		routed = "62" // both hosts
	}
	// The tunnel's own neighbors are not what is tested here: its first packet may wait for them.
	for _, n := range w.nodes {
		_, _ = ping(n.Namespace, w.nodes[2-n.number].address(false), "")
	}
	for _, tc := range []struct {
		name     string
		from     *ovstest.Namespace
		to       string
		wantTTL  string
		notTried bool
	}{
		{"pod on the same node", pod.Namespace, neighbour.address(v6), "64", false},
		{"pod on another node", pod.Namespace, remote.address(v6), routed, false},
		{"own gateway", pod.Namespace, a.gateway(v6), "64", false},
		{"own node", pod.Namespace, a.address(v6), "64", false},
		{"outside", pod.Namespace, outsideAddress(v6), "63", false},
		{"node to its pod", a.Namespace, pod.address(v6), "64", false},
		{"node to another's pod", a.Namespace, remote.address(v6), "63", false},
		{"outside to pod", w.outside, pod.address(v6), "63", false},
		{"link-local pod", pod.Namespace, neighbour.port.MAC.LinkLocal().String() + "%eth0", "64", !v6},
		{"link-local gateway", pod.Namespace, datapath.GatewayMAC.LinkLocal().String() + "%eth0", "64", !v6},
	} {
		if tc.notTried {
			continue
		}
		if out, err := ping(tc.from, tc.to, ""); err != nil || !strings.Contains(out, "ttl="+tc.wantTTL+" ") {
			t.Errorf("%s: no reply with ttl=%s: %v\n%s", tc.name, tc.wantTTL, err, out)
		}
	}
	// What the pods learned is the virtual router, not some interface of the host.
	if out, err := runIn(pod.Namespace, "ip neigh show "+a.gateway(v6)); err != nil || !strings.Contains(out, datapath.RouterMAC.String()) {
		t.Errorf("the pod's neighbour %s is not the router: %v\n%s", a.gateway(v6), err, out)
	}
	if out, err := ping(pod.Namespace, neighbour.address(v6), "-s 4000"); err != nil {
		t.Errorf("fragments to a pod on the same node: %v\n%s", err, out)
	}
	if out, err := ping(pod.Namespace, remote.address(v6), "-s 4000"); err != nil {
		t.Errorf("fragments to a pod on another node: %v\n%s", err, out)
	}
	largest := a.local.MTU - 28
	if v6 {
		largest = a.local.MTU - 48
	}
	if out, err := ping(pod.Namespace, remote.address(v6), fmt.Sprint("-M do -s ", largest)); err != nil {
		t.Errorf("a packet of the MTU to another node: %v\n%s", err, out)
	}
}

func testErrors(t *testing.T, w *world, v6 bool) {
	a, b := w.nodes[0], w.nodes[1]
	pod := a.pods[0]
	unknown := func(n *liveNode) string {
		if v6 {
			return n.subnet(true).Addr().Next().String() + "99"
		}
		return strings.TrimSuffix(n.subnet(false).Addr().String(), "0") + "199"
	}
	for _, tc := range []struct{ name, to, options, from, want string }{
		{"TTL 1 to another node", b.pods[0].address(v6), "-t 1", a.gateway(v6), "exceeded"},
		{"TTL 1 to the outside", outsideAddress(v6), "-t 1", a.gateway(v6), "exceeded"},
		{"no such pod on another node", unknown(b), "-W5", b.gateway(v6), "nreachable"},
		{"no such pod here", unknown(a), "-W5", pod.address(v6), "nreachable"},
	} {
		if !w.encap.Tunneled() && tc.name == "no such pod on another node" {
			tc.from = b.address(v6) // the host that routes, by the address it got the packet on
		}
		out, _ := ping(pod.Namespace, tc.to, tc.options)
		if !strings.Contains(out, "From "+tc.from) || !strings.Contains(out, tc.want) {
			t.Errorf("%s: no %q from %s:\n%s", tc.name, tc.want, tc.from, out)
		}
	}
	if out, err := ping(pod.Namespace, a.pods[1].address(v6), "-t 1"); err != nil {
		t.Errorf("TTL 1 within the subnet: %v\n%s", err, out)
	}
}

func testStreams(t *testing.T, w *world, v6 bool) {
	pod := w.nodes[0].pods[0]
	for _, server := range []*livePod{w.nodes[0].pods[1], w.nodes[1].pods[0]} {
		serve(t, server.Namespace, server.address(v6), 8080)
		for _, network := range []string{"tcp", "udp"} {
			if err := exchange(t.Context(), pod.Namespace, network, net.JoinHostPort(server.address(v6), "8080"), pod.address(v6)); err != nil {
				t.Errorf("%s to %s: %v", network, server.port.Name(), err)
			}
		}
	}
}

// testService has the host translate addresses as kube-proxy does. The endpoint
// sees the pod's own address, and still answers by the way of the host.
func testService(t *testing.T, w *world, v6 bool) {
	a := w.nodes[0]
	pod := a.pods[0]
	for i, endpoint := range []*livePod{a.pods[1], w.nodes[1].pods[0]} {
		family, vip, to := "ip", fmt.Sprint("10.96.0.", 1+i), endpoint.address(false)
		if v6 {
			family, vip, to = "ip6", fmt.Sprint("fd00:96::", 1+i), "["+endpoint.address(true)+"]"
		}
		table := fmt.Sprintf("service%d_%s", i, family)
		w.run(a.Namespace, "nft add table "+family+" "+table,
			"nft add chain "+family+" "+table+" pre { type nat hook prerouting priority -100 ; }")
		for _, network := range []string{"tcp", "udp"} {
			for vport, port := range map[int]int{80: 8080, 81: 8081} {
				w.run(a.Namespace, fmt.Sprintf("nft add rule %s %s pre %s daddr %s %s dport %d dnat to %s:%d", family, table, family, vip, network, vport, to, port))
			}
		}
		serve(t, endpoint.Namespace, endpoint.address(v6), 8080)
		for _, network := range []string{"tcp", "udp"} {
			if err := exchange(t.Context(), pod.Namespace, network, net.JoinHostPort(vip, "80"), pod.address(v6)); err != nil {
				t.Errorf("%s to the service of %s: %v", network, endpoint.port.Name(), err)
			}
		}
		// There is no listener: the endpoint's error, too, comes back by way of the host.
		err := exchange(t.Context(), pod.Namespace, "udp", net.JoinHostPort(vip, "81"), "")
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("udp to a closed port of the service of %s: %v, not refused", endpoint.port.Name(), err)
		}
	}
}

// payload is longer than a packet, so that UDP needs fragments.
var payload = strings.Repeat("coelan ", 700)

// serve answers TCP, UDP, and SCTP if the kernel has it, with the peer's address and what it sent.
func serve(t *testing.T, ns *ovstest.Namespace, address string, port int) {
	t.Helper()
	at := net.JoinHostPort(address, fmt.Sprint(port))
	var listener net.Listener
	var packets net.PacketConn
	err := ns.Do(func() (err error) {
		if listener, err = net.Listen("tcp", at); err != nil {
			return err
		}
		packets, err = net.ListenPacket("udp", at)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close(); packets.Close() })
	if probe.HasSCTP() {
		s, err := probe.ServeSCTP(ns, netip.MustParseAddrPort(at), serveStream)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
	}
	go serveStreams(listener)
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := packets.ReadFrom(buf)
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(from.String())
			_, _ = packets.WriteTo(append([]byte(host+" "), buf[:n]...), from)
		}
	}()
}

func serveStreams(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			serveStream(conn)
		}()
	}
}

// serveStream answers once with the client's address.
func serveStream(conn net.Conn) {
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	if _, err := io.WriteString(conn, host+" "); err == nil {
		_, _ = io.Copy(conn, conn)
	}
}

// exchange sends the payload and expects it back, from a server that saw the
// client's address.
func exchange(ctx context.Context, ns *ovstest.Namespace, network, address, client string) error {
	return exchangeData(ctx, ns, network, address, client, payload)
}

func exchangeData(ctx context.Context, ns *ovstest.Namespace, network, address, client, data string) error {
	var conn net.Conn
	dialer := net.Dialer{Timeout: 10 * time.Second}
	err := ns.Do(func() (err error) {
		conn, err = dialer.DialContext(ctx, network, address)
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline := time.Now().Add(10 * time.Second)
	if end, ok := ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, data); err != nil {
		return err
	}
	want := client + " " + data
	got := make([]byte, len(want))
	if network == "udp" {
		n, err := conn.Read(got)
		if err != nil {
			return err
		}
		got = got[:n]
	} else if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != want {
		return fmt.Errorf("got %.60q, want %.60q", got, want)
	}
	return nil
}
