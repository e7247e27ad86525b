// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/localapi"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// narrowMTU is that of the pods of a node with an uplink of 50 bytes more.
const narrowMTU = 1300

// narrow gives a node's uplink a smaller MTU, and waits until another node answers what does not
// fit it.
func narrow(ctx context.Context, t *testing.T, w *world, n *lab.Node) {
	t.Helper()
	uplink := fmt.Sprint(narrowMTU + 50)
	run(t, n.Host, "ip", "link", "set", "eth0", "mtu", uplink)
	if lab.Datapath() == config.DatapathNetdev {
		if _, err := n.OVS.Vsctl(ctx, "set", "interface", "br-phy", "mtu_request="+uplink); err != nil {
			t.Fatal(err)
		}
	}
	var r probe.PingResult
	poll(ctx, t, func() bool {
		r = ping(t, w.a, probe.Ping{Dst: w.c.Address(lab.IPv4), Size: 1450 - headers[lab.IPv4], Wait: time.Second})
		return len(r.Errors) > 0
	}, func() {
		t.Fatalf("a packet that is too big for %s is not answered: replies %v, %v", n.Name, r.Replies, r.SendError)
	})
}

// TestNarrowNode has one node with a smaller MTU than the other: packets that do not fit
// are answered, whatever sends them and on whatever way they go, or arrive in fragments if
// their sender allows it.
func TestNarrowNode(t *testing.T) {
	t.Parallel()
	w := startTenantsWith(t, lab.Options{})
	ctx := within(t, 5*time.Minute)
	narrow(ctx, t, w.world, w.n2)
	publish(w.world, "lab", "plain", 71, nil, w.c)
	publish(w.world, "red", "tenant", 72, nil, w.red[2])
	small := addPod(t, w.n2, "lab", "small") // its own MTU is the smaller one
	if got := mtuOf(t, small.Host); got != narrowMTU {
		t.Errorf("MTU of a pod that has come later: %d", got)
	}
	eachFamily(t, func(t *testing.T, f lab.Family) {
		gateway := func(n *lab.Node) netip.Addr { return n.Gateway(f) }
		tenantGateway := netip.MustParsePrefix(tenantSubnets[map[lab.Family]int{lab.IPv4: 0, lab.IPv6: 1}[f]]).Addr().Next()
		for _, way := range []struct {
			name     string
			from     *lab.Host
			to, tell netip.Addr
		}{
			{"default Router", w.a.Host, w.c.Address(f), gateway(w.n1)},
			{"default Router, to a pod that has come later", w.a.Host, small.Address(f), gateway(w.n1)},
			{"private Router", w.red[0].Host, own(w.red[2])(f), tenantGateway},
			{"private Router, by the address in the cluster", w.red[0].Host, w.red[2].Address(f), tenantGateway},
			{"from the node", w.n1.Host, w.c.Address(f), gateway(w.n2)},
			{"from a pod that is older than its node's MTU", w.c.Host, w.a.Address(f), gateway(w.n2)},
		} {
			testTooBig(t, f, way.name, way.from, way.to, way.tell)
		}
		for _, way := range []struct {
			name     string
			from, to *lab.Pod
			dst      netip.AddrPort
		}{
			{"default Router", w.a, w.c, netip.AddrPortFrom(w.c.Address(f), answerPort)},
			{"Service", w.b, w.c, clusterIPOf(71, f)},
			{"private Router", w.red[0], w.red[2], netip.AddrPortFrom(own(w.red[2])(f), answerPort)},
			{"private Router's Service", w.red[1], w.red[2], clusterIPOf(72, f)},
		} {
			testLearns(ctx, t, f, way.name, way.from, way.to, way.dst)
		}
		if f == lab.IPv4 {
			r := ping(t, w.b, probe.Ping{Dst: small.Address(f), Size: 1450 - headers[f], MayFragment: true, Count: 3})
			if r.Lost() > 0 || len(r.Errors) > 0 {
				t.Errorf("packets that may be cut: lost %d, errors %v", r.Lost(), r.Errors)
			}
		}
		at := netip.AddrPortFrom(w.c.Address(f), 8082)
		server, err := probe.Serve(w.c, at, probe.Digest)
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		if _, err := probe.Transfer(within(t, bulkTimeout), w.d, at, bulkBytes); err != nil {
			t.Errorf("TCP, whose ends agree on more than fits: %v", err)
		}
	})
	metrics := run(t, w.n1.Host, "curl", "-s", "http://127.0.0.1:10360/metrics")
	for _, outcome := range []string{"answered", "fragmented"} {
		if !strings.Contains(metrics, `coelan_too_big_packets_total{outcome="`+outcome+`"}`) {
			t.Errorf("no metric of packets that are %s", outcome)
		}
	}
	var trace agentapi.Trace
	request := fmt.Sprintf(`{"from":"lab/a","destination":"%s"}`, w.c.Address(lab.IPv4))
	var answer bytes.Buffer
	err := localapi.Query(ctx, "agent", w.n1.Config().AgentSocket, "/v1/trace", strings.NewReader(request), &answer)
	if err == nil {
		err = json.Unmarshal(answer.Bytes(), &trace)
	}
	if err != nil || trace.Outcome.Node != "n2" || trace.Outcome.MTU != narrowMTU {
		t.Errorf("the trace ends in %+v, %v", trace.Outcome, err)
	}
}

// TestNarrowNetwork has a Network with a smaller MTU than the other one of its Router:
// what does not fit its pods is answered, from wherever it comes, or arrives in fragments
// if its sender allows it.
func TestNarrowNetwork(t *testing.T) {
	t.Parallel()
	w := startTenantsWith(t, lab.Options{})
	ctx := within(t, 5*time.Minute)
	subnets := []string{"10.70.0.0/24", "fd00:70::/64"}
	spec := primary("thin", subnets...)
	spec.Router, spec.MTU = "red", narrowMTU
	w.API.AddNamespace("thin", map[string]string{"tenant": "thin"})
	w.API.AddNetwork("thin", spec)
	awaitNetwork(t, w.world, "thin")
	thin := addPod(t, w.n1, "thin", "thin")
	if got := mtuOf(t, thin.Host); got != narrowMTU {
		t.Fatalf("the pod has an MTU of %d", got)
	}
	eachFamily(t, func(t *testing.T, f lab.Family) {
		router := func(subnets []string) netip.Addr {
			return netip.MustParsePrefix(subnets[map[lab.Family]int{lab.IPv4: 0, lab.IPv6: 1}[f]]).Addr().Next()
		}
		for _, way := range []struct {
			name     string
			from     *lab.Host
			to, tell netip.Addr
		}{
			{"from another Network", w.red[0].Host, own(thin)(f), router(tenantSubnets)},
			{"from another Network, by the address in the cluster", w.red[0].Host, thin.Address(f), router(tenantSubnets)},
			{"from another Network on another node", w.red[2].Host, own(thin)(f), router(subnets)},
			{"from another Network on another node, by the address in the cluster", w.red[2].Host, thin.Address(f), router(subnets)},
			{"from its node", w.n1.Host, thin.Address(f), thin.Address(f)},
			{"from another node", w.n2.Host, thin.Address(f), router(subnets)},
		} {
			testTooBig(t, f, way.name, way.from, way.to, way.tell)
		}
		for name, from := range map[string]*lab.Pod{"another Network": w.red[1], "another Network on another node": w.red[2]} {
			testLearns(ctx, t, f, name, from, thin, netip.AddrPortFrom(own(thin)(f), answerPort))
		}
		if f == lab.IPv4 {
			for name, to := range map[string]netip.Addr{"own": own(thin)(f), "in the cluster": thin.Address(f)} {
				for _, from := range []*lab.Pod{w.red[1], w.red[2]} {
					r := ping(t, from, probe.Ping{Dst: to, Size: 1450 - headers[f], MayFragment: true, Count: 3})
					if r.Lost() > 0 || len(r.Errors) > 0 {
						t.Errorf("packets of %s that may be cut, to the address %s: lost %d, errors %v", from.Name, name, r.Lost(), r.Errors)
					}
				}
			}
		}
		if r := ping(t, w.red[0].Host, probe.Ping{Dst: own(w.red[1])(f), Size: 1450 - headers[f]}); r.Lost() > 0 || len(r.Errors) > 0 {
			t.Errorf("what fits its own Network: errors %v, %v", r.Errors, r.SendError)
		}
	})
}

// testTooBig expects an error about what is too big, and an answer to what is not.
func testTooBig(t *testing.T, f lab.Family, name string, from *lab.Host, to, tell netip.Addr) {
	t.Helper()
	want := tooBig[f]
	r := ping(t, from, probe.Ping{Dst: to, Size: narrowMTU + 1 - headers[f]})
	e := probe.ICMPError{From: tell, Type: want[0], Code: want[1], MTU: narrowMTU}
	if len(r.Errors) != 1 || r.Errors[0] != e {
		t.Errorf("%s: one byte too many: errors %v, want %v; replies %v, %v", name, r.Errors, e, r.Replies, r.SendError)
	}
	if r := ping(t, from, probe.Ping{Dst: to, Size: narrowMTU - headers[f]}); r.Lost() > 0 || r.SendError != nil {
		t.Errorf("%s: what fits: errors %v, %v", name, r.Errors, r.SendError)
	}
}

// testLearns sends datagrams that are too big, with a socket that does not allow fragments, until
// its kernel has learned what fits. Then one that fits arrives.
func testLearns(ctx context.Context, t *testing.T, f lab.Family, name string, from, to *lab.Pod, dst netip.AddrPort) {
	t.Helper()
	at := netip.AddrPortFrom(own(to)(f), answerPort)
	var server, client *net.UDPConn
	if err := to.Do(func() (err error) { server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); return err }); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go echo(server)
	if err := from.Do(func() (err error) { client, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(dst)); return err }); err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := onlyWhole(client, f); err != nil {
		t.Fatal(err)
	}
	header := headers[f] // that of UDP is as long as that of ICMP
	var err error
	poll(ctx, t, func() bool {
		_, err = client.Write(make([]byte, narrowMTU+1-header))
		return errors.Is(err, syscall.EMSGSIZE)
	}, func() { t.Errorf("%s: the sender does not learn that a datagram is too big: %v", name, err) })
	sent, got := slices.Repeat([]byte("x"), narrowMTU-header), make([]byte, narrowMTU)
	poll(ctx, t, func() bool {
		if _, err = client.Write(sent); err != nil {
			return false
		}
		_ = client.SetReadDeadline(time.Now().Add(time.Second))
		var n int
		n, err = client.Read(got)
		return n == len(sent)
	}, func() { t.Errorf("%s: a datagram that fits does not arrive: %v", name, err) })
}

// onlyWhole forbids a socket fragments.
func onlyWhole(c *net.UDPConn, f lab.Family) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	level, option, value := syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER, syscall.IP_PMTUDISC_DO
	if f == lab.IPv6 {
		level, option, value = syscall.IPPROTO_IPV6, syscall.IPV6_MTU_DISCOVER, syscall.IPV6_PMTUDISC_DO
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = syscall.SetsockoptInt(int(fd), level, option, value) })
	return errors.Join(err, set)
}

func echo(c *net.UDPConn) {
	b := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		_, _ = c.WriteToUDPAddrPort(b[:n], from)
	}
}
