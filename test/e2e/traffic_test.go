// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"coelan.io/coelan/test/lab/probe"
)

// servicePort is that of the Service for traffic, and of its endpoint.
const servicePort uint16 = 7100

// interval is the time between two packets of every stream.
const interval = 10 * time.Millisecond

// The ways that traffic takes, as the table names them.
const (
	sameNode  = "same node"
	otherNode = "other node"
	toService = "Service"
	toOutside = "outside"
	inTenant  = "tenant"
)

// traffic is what runs while something restarts: on each way and for each family a numbered UDP
// packet every 10 ms there and back, and a TCP connection that stays open.
type traffic struct {
	ways    []string
	udp     []*probe.UDPStream
	tcp     []*probe.TCPStream
	servers []*probe.Server
}

// route is where traffic of a way goes.
type route struct {
	way      string
	from, to place
	service  string // of which to is the endpoint, if it is asked by that name
	port     uint16 // of the Service and its endpoint; servicePort
	// at are the addresses that stand for those of to; none: its own.
	at map[family]netip.Addr
	// datagrams has no TCP connection, which would end with what happens meanwhile.
	datagrams bool
}

// podRoutes are the ways of the restart promise, seen from the first worker; to the outside; and
// between the pods of a tenant, on two nodes.
func podRoutes(ctx context.Context, t *testing.T) []route {
	t.Helper()
	client1, web1, client2 := world.pod(ctx, t, "client1"), world.pod(ctx, t, "web1"), world.pod(ctx, t, "client2")
	return []route{
		{way: sameNode, from: client1, to: web1},
		{way: otherNode, from: client1, to: client2},
		{way: toService, from: client1, to: client2, service: "probe"},
		{way: toOutside, from: client1, to: world.machine(ctx, t, "fabric")},
		{way: inTenant, from: world.tenant(ctx, t, "red/client1"), to: world.tenant(ctx, t, "red/web2")},
	}
}

func startTraffic(ctx context.Context, t *testing.T, routes ...route) *traffic {
	t.Helper()
	tr := &traffic{}
	for _, r := range routes {
		for _, f := range families {
			at := netip.AddrPortFrom(r.to.address(f), uint16(7000+len(tr.udp)))
			dst := at
			if r.at != nil {
				dst = netip.AddrPortFrom(r.at[f], at.Port())
			}
			if r.service != "" {
				port := cmp.Or(r.port, servicePort)
				at = netip.AddrPortFrom(at.Addr(), port)
				dst = netip.AddrPortFrom(world.serviceAddress(ctx, t, r.service, f), port)
			}
			if err := tr.add(ctx, r, f, dst, at); err != nil {
				t.Fatalf("%s, %s: %v", r.way, f, err)
			}
		}
	}
	t.Cleanup(func() {
		for _, s := range tr.servers {
			s.Close()
		}
	})
	tr.settle(ctx, t)
	return tr
}

// add starts the streams to dst, which is where the server is or what stands for it.
func (tr *traffic) add(ctx context.Context, r route, f family, dst, at netip.AddrPort) error {
	server, err := probe.Serve(r.to, at, probe.Echo)
	if err != nil {
		return err
	}
	tr.servers = append(tr.servers, server)
	// Nothing tells when all nodes know the Service.
	patient, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var tcp *probe.TCPStream
	err = eventually(patient, func() (err error) {
		tcp, err = probe.StartTCP(ctx, r.from, dst, interval)
		return err
	})
	if err != nil {
		return err
	}
	if r.datagrams { // the connection has shown that there is a way
		tcp.Close()
		tcp = nil
	}
	udp, err := probe.StartUDP(r.from, r.to, dst, at, interval)
	if err != nil {
		return err
	}
	tr.ways, tr.udp, tr.tcp = append(tr.ways, r.way+" "+string(f)), append(tr.udp, udp), append(tr.tcp, tcp)
	return nil
}

// settle waits until packets come back on every way.
func (tr *traffic) settle(ctx context.Context, t *testing.T) {
	t.Helper()
	tr.await(ctx, t, 50)
}

// await waits until so many packets more have come back on every way.
func (tr *traffic) await(ctx context.Context, t *testing.T, packets int) {
	t.Helper()
	var wg sync.WaitGroup
	for i, u := range tr.udp {
		wg.Go(func() {
			if err := u.Wait(ctx, packets); err != nil {
				t.Errorf("%s: %v", tr.ways[i], err)
			}
		})
	}
	wg.Wait()
}

// outcome is what a way's traffic went through.
type outcome struct {
	udp probe.UDPReport
	tcp probe.TCPReport
}

// stop ends the traffic.
func (tr *traffic) stop(t *testing.T) map[string]outcome {
	t.Helper()
	outcomes := make([]outcome, len(tr.ways))
	var wg sync.WaitGroup
	for i := range tr.ways {
		wg.Go(func() { outcomes[i].udp = tr.udp[i].Stop() })
		if tr.tcp[i] != nil {
			wg.Go(func() { outcomes[i].tcp = tr.tcp[i].Stop() })
		}
	}
	wg.Wait()
	byWay := map[string]outcome{}
	for i, way := range tr.ways {
		o := outcomes[i]
		byWay[way] = o
		t.Logf("%-16s UDP %s", way, o.udp)
		if tr.tcp[i] != nil {
			t.Logf("%-16s TCP %s", way, o.tcp)
		}
	}
	return byWay
}

// allow reports ways that were interrupted for longer than the gap; with none, those that lost a
// packet. TCP connections live through everything.
func allow(t *testing.T, outcomes map[string]outcome, gap time.Duration) {
	t.Helper()
	for way, o := range outcomes {
		switch {
		case gap == 0 && len(o.udp.Lost) > 0:
			t.Errorf("%s: lost %d packets, want none: %s", way, len(o.udp.Lost), o.udp)
		case gap > 0 && o.udp.Gap > gap:
			t.Errorf("%s: interrupted for %s, want at most %s", way, o.udp.Gap, gap)
		}
		if o.tcp.Err != nil && (gap == 0 || !mayBreak(way)) {
			t.Errorf("%s: TCP connection: %v", way, o.tcp.Err)
		}
	}
}

// mayBreak says that a restart of Open vSwitch may break the way's connections: those of Services
// on the userspace datapath, where connection tracking ends with ovs-vswitchd. If the endpoint's
// packet is the first one afterward, there is no entry to translate its address back, and the
// client refuses it.
func mayBreak(way string) bool {
	return strings.HasPrefix(way, toService) && world.Datapath == "netdev"
}
