// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// gatewayPorts has Ports connect to the same server from the same port at once.
func gatewayPorts(t *testing.T, w *external, e exits) {
	from := []*lab.Host{w.red[0].Host, w.red[1].Host, w.blue[0].Host, w.blue[1].Host, w.red[2].Host}
	by := []exit{e.red, e.red, e.blue, e.blue, e.red2}
	// A host that closes a TCP connection first cannot use the port again at once.
	port := map[lab.Family]int{lab.IPv4: 5555, lab.IPv6: 5556}
	for f := range lab.Dual.Each {
		at := netip.AddrPortFrom(w.near.Address(f), answerPort)
		answers(t, w.near, at)
		for _, protocol := range []string{"tcp", "udp"} {
			seen := seenAtOnce(t, protocol, port[f], at, from)
			for i, s := range seen {
				if s.Addr() != by[i].address(f) {
					t.Errorf("%s: %s is seen as %s, want %s", protocol, from[i].Name, s, by[i].address(f))
				}
				if slices.Contains(seen[:i], s) {
					t.Errorf("%s: %s is seen as %s, as another is", protocol, from[i].Name, s)
				}
			}
		}
	}
}

// seenAtOnce connects hosts from the same port of theirs, and asks when all connections are there
// how each is seen.
func seenAtOnce(t *testing.T, protocol string, port int, to netip.AddrPort, from []*lab.Host) []netip.AddrPort {
	t.Helper()
	ctx := within(t, 10*time.Second)
	conns, seen := make([]net.Conn, len(from)), make([]netip.AddrPort, len(from))
	for i, h := range from {
		var d net.Dialer
		if d.LocalAddr = (&net.TCPAddr{Port: port}); protocol == "udp" {
			d.LocalAddr = &net.UDPAddr{Port: port}
		}
		if err := h.Do(func() (err error) { conns[i], err = d.DialContext(ctx, protocol, to.String()); return err }); err != nil {
			t.Fatalf("%s: %s to %s: %v", protocol, h.Name, to, err)
		}
		defer conns[i].Close()
	}
	for i, c := range conns {
		_ = c.SetDeadline(time.Now().Add(probe.AnswerTimeout))
		if _, err := fmt.Fprintf(c, "%s\n", from[i].Name); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range conns {
		text, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			t.Fatalf("%s: no answer for %s: %v", protocol, from[i].Name, err)
		}
		_, client, _ := strings.Cut(strings.TrimSpace(text), " ")
		at, err := netip.ParseAddrPort(client)
		if err != nil {
			t.Fatal(err)
		}
		seen[i] = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
	return seen
}

// conversation is of datagrams that a host inside has begun with one outside.
type conversation struct {
	inside, outside *net.UDPConn
	mapped          netip.AddrPort // inside, as it is seen outside
}

// talk begins a conversation.
func talk(t *testing.T, from, to *lab.Host, at netip.AddrPort) *conversation {
	t.Helper()
	d := &conversation{}
	err := to.Do(func() (err error) { d.outside, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); return err })
	if err == nil {
		t.Cleanup(func() { d.outside.Close() })
		err = from.Do(func() (err error) {
			d.inside, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
			return err
		})
	}
	if err == nil {
		t.Cleanup(func() { d.inside.Close() })
		_, err = d.inside.Write([]byte("?"))
	}
	if err == nil {
		_ = d.outside.SetReadDeadline(time.Now().Add(probe.AnswerTimeout))
		_, d.mapped, err = d.outside.ReadFromUDPAddrPort(make([]byte, 100))
	}
	if err != nil {
		t.Fatalf("%s to %s: %v", from.Name, at, err)
	}
	d.mapped = netip.AddrPortFrom(d.mapped.Addr().Unmap(), d.mapped.Port())
	return d
}

// answered sends from outside, and returns nil if that arrives.
func (d *conversation) answered(text string) error {
	if _, err := d.outside.WriteToUDPAddrPort([]byte(text), d.mapped); err != nil {
		return err
	}
	_ = d.inside.SetReadDeadline(time.Now().Add(probe.AnswerTimeout))
	got := make([]byte, 100)
	n, err := d.inside.Read(got)
	if err == nil && string(got[:n]) != text {
		err = fmt.Errorf("got %q, want %q", got[:n], text)
	}
	return err
}

// gatewayInbound has others than those that are answered send to a gateway's address.
func gatewayInbound(t *testing.T, w *external, e exits) {
	others := []*lab.Host{w.near, w.far, w.n1.Host, w.n2.Host, w.a.Host, w.red[0].Host, w.blue[0].Host, w.c.Host}
	var attempts []attempt
	for f := range lab.Dual.Each {
		answers(t, w.red[0].Host, netip.AddrPortFrom(own(w.red[0])(f), answerPort))
		answers(t, w.a.Host, netip.AddrPortFrom(w.a.Address(f), answerPort))
		for _, from := range others {
			for _, x := range []exit{e.red, e.plain, e.red2} {
				attempts = append(attempts, attempt{f.String() + " " + from.Name + " to " + x.name, from, x.address(f)})
			}
		}
	}
	unreachable(t, attempts...)
	inBothFamilies(func(f lab.Family) {
		for _, x := range []exit{e.red, e.plain} {
			for _, protocol := range []string{"tcp", "udp"} {
				at := netip.AddrPortFrom(x.address(f), answerPort)
				for _, from := range []*lab.Host{w.near, w.a.Host} {
					if who, _, err := ask(t.Context(), from, protocol, at, quiet); who != unanswered {
						t.Errorf("%s: %s from %s: %q, %v; want no answer", x.name, protocol, from.Name, who, err)
					}
				}
			}
		}
	})
	// A connection from inside is open for the host that it is to, at its port.
	for f := range lab.Dual.Each {
		d := talk(t, w.red[0].Host, w.near, netip.AddrPortFrom(w.near.Address(f), 7500))
		if d.mapped.Addr() != e.red.address(f) {
			t.Errorf("seen as %s, want %s", d.mapped, e.red.address(f))
		}
		if err := d.answered("before"); err != nil {
			t.Errorf("%s: an answer: %v", f, err)
		}
		heard := wire(t, w.red[0].Host)
		for _, from := range []*lab.Host{w.near, w.far} {
			sendUDP(t, from, d.mapped, "uninvited")
		}
		if err := d.answered("after"); err != nil {
			t.Errorf("%s: an answer after others: %v", f, err)
		}
		if err := heard.Quiet(quiet, func(frame probe.Frame) bool { return strings.HasSuffix(string(frame), "uninvited") }); err != nil {
			t.Errorf("%s: others to the port of a connection: %v", f, err)
		}
	}
}

// sendUDP sends one datagram.
func sendUDP(t *testing.T, from *lab.Host, to netip.AddrPort, text string) {
	t.Helper()
	if err := from.Do(func() error {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte(text))
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// neighbourIPs are FloatingIPs of neighbors of the pods that leave by gateways.
type neighbourIPs struct {
	red, blue floating // in private Routers, on n1
	blue2     floating // on n2
	b, c      floating // in the Router default, on n1 and n2
}

func (s neighbourIPs) all() []floating { return []floating{s.red, s.blue, s.blue2, s.b, s.c} }

func (w *external) someFloatingIPs() neighbourIPs {
	return neighbourIPs{
		red: ofPod(w.red[1], 120), blue: ofPod(w.blue[1], 121), blue2: ofPod(w.blue[2], 122), b: ofPod(w.b, 123), c: ofPod(w.c, 124),
	}
}

// without are the insiders that have no FloatingIP.
func (w *external) without(e exits, s neighbourIPs) []inside {
	return slices.DeleteFunc(w.insiders(e), func(in inside) bool { return in.host == s.blue2.host })
}

// gatewayHairpins has pods reach FloatingIPs from their gateway, and Ports with a FloatingIP keep
// it.
func gatewayHairpins(t *testing.T, w *external, e exits, s neighbourIPs) {
	red, other, a, vm, shop := w.red[0].Host, w.red[2].Host, w.a.Host, w.vm.Host, w.shared.Host
	takeWays(t,
		to("its own tenant", red, s.red, e.red.address),
		to("another tenant", red, s.blue, e.red.address),
		to("another tenant on another node", red, s.blue2, e.red.address),
		to("a tenant to a pod of default", red, s.b, e.red.address),
		to("a tenant to a pod of default on another node", red, s.c, e.red.address),
		to("back from another node", other, s.red, e.red2.address),
		to("another tenant on that node", other, s.blue2, e.red2.address),
		to("a pod of default to a tenant", a, s.blue, e.plain.address),
		to("a pod of default to its neighbour", a, s.b, e.plain.address),
		to("a pod of default to another node", a, s.c, e.plain.address),
		to("shared Router", shop, s.blue, e.shop.address),
		to("shared Router on its node", shop, s.c, e.shop.address),
		to("virtual machine", vm, s.blue, e.lan.address),
		to("virtual machine to another node", vm, s.blue2, e.lan.address),
		to("from a node", w.n1.Host, s.blue, nil),
		to("from the VLAN", w.near, s.red, w.near.Address),
		to("from beyond", w.far, s.blue2, w.far.Address),
	)
	for _, x := range s.all() {
		takeWays(t,
			way{path: path{x.name + " keeps its FloatingIP, to the VLAN", x.host, w.near, w.near.Address, x.address}},
			way{path: path{x.name + " keeps its FloatingIP, beyond", x.host, w.far, w.far.Address, x.address}},
		)
	}
	takeWays(t, to("between FloatingIPs", s.red.host, s.blue, s.red.address), to("to another node", s.b.host, s.blue2, s.b.address))
}

// gatewayErrors sends datagrams to closed ports, and what lives too short, in both directions.
func gatewayErrors(t *testing.T, w *external, e exits, s neighbourIPs) {
	inBothFamilies(func(f lab.Family) {
		for _, in := range w.without(e, s) {
			for _, to := range []*lab.Host{w.near, w.far} {
				if err := refusedUDP(in.host, netip.AddrPortFrom(to.Address(f), 9)); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%s %s: to %s: %v", f, in.name, to.Name, err)
				}
			}
			for _, x := range []floating{s.blue, s.c} {
				if err := refusedUDP(in.host, netip.AddrPortFrom(x.address(f), 9)); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%s %s: to the FloatingIP of %s: %v", f, in.name, x.name, err)
				}
			}
			r, err := (probe.Ping{Dst: w.far.Address(f), TTL: 2}).Run(t.Context(), in.host)
			want := probe.ICMPError{From: office(f, officeGateway), Type: ttlExceeded[f][0], Code: ttlExceeded[f][1]}
			if err != nil || len(r.Errors) != 1 || r.Errors[0] != want {
				t.Errorf("%s %s: with TTL 2: errors %v, %v; want %v", f, in.name, r.Errors, err, want)
			}
		}
	})
	for f := range lab.Dual.Each {
		for i, in := range w.without(e, s) {
			lateAnswer(t, in, w.near, netip.AddrPortFrom(w.near.Address(f), uint16(7510+i)))
		}
	}
}

// lateAnswer has a host answer when the socket that asked is not there any more.
func lateAnswer(t *testing.T, in inside, to *lab.Host, at netip.AddrPort) {
	t.Helper()
	heard := wire(t, to)
	d := talk(t, in.host, to, at)
	d.inside.Close()
	d.outside.Close()
	var c *net.UDPConn
	err := to.Do(func() (err error) {
		c, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(at), net.UDPAddrFromAddrPort(d.mapped))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("too late")); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(probe.AnswerTimeout))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%s: a late answer to %s: %v", in.name, d.mapped, err)
	}
	f := lab.FamilyOf(at.Addr())
	if _, err := heard.Wait(t.Context(), func(frame probe.Frame) bool {
		src, dst := frame.IPs()
		return protocolOf(frame) == icmpOf[f] && src == in.by.address(f) && dst == at.Addr()
	}); err != nil {
		t.Errorf("%s: an error from %s: %v", in.name, in.by.address(f), err)
	}
}

// gatewaySizes sends what is too big, in both directions.
func gatewaySizes(t *testing.T, w *external, e exits, s neighbourIPs) {
	far := func(f lab.Family) netip.AddrPort { return netip.AddrPortFrom(w.far.Address(f), 8082) }
	for f := range lab.Dual.Each {
		serve(t, w.far, far(f), probe.Digest)
	}
	inBothFamilies(func(f lab.Family) {
		for _, in := range w.without(e, s) {
			// The wire beyond the gateway is narrow, which a sender has to learn from the gateway.
			if _, err := probe.Transfer(within(t, 30*time.Second), in.host, far(f), 1<<18); err != nil {
				t.Errorf("%s %s: by a narrow wire: %v", f, in.name, err)
			}
		}
	})
	for f := range lab.Dual.Each {
		for i, in := range w.without(e, s) {
			d := talk(t, in.host, w.near, netip.AddrPortFrom(w.near.Address(f), uint16(7530+i)))
			learnsOutside(t, f, in.name, d)
			// The next one may have the same gateway.
			run(t, w.near, "ip", ipFlag[f], "route", "flush", "cache")
		}
	}
}

var ipFlag = map[lab.Family]string{lab.IPv4: "-4", lab.IPv6: "-6"}

// learnsOutside has the other end answer with more than fits the MTU of the one that began, until
// its kernel has learned what fits. Such an answer arrives.
func learnsOutside(t *testing.T, f lab.Family, name string, d *conversation) {
	t.Helper()
	if err := onlyWhole(d.outside, f); err != nil {
		t.Fatal(err)
	}
	const mtu = 1450
	var err error
	becomes(t, f.String()+" "+name+": the other end learns what fits", func(context.Context) error {
		if _, err = d.outside.WriteToUDPAddrPort(make([]byte, mtu+1-headers[f]), d.mapped); errors.Is(err, syscall.EMSGSIZE) {
			return nil
		}
		return fmt.Errorf("%d bytes are sent: %w", mtu+1, errors.Join(err, errLost))
	})
	if _, err := d.outside.WriteToUDPAddrPort(make([]byte, mtu-headers[f]), d.mapped); err != nil {
		t.Errorf("%s %s: an answer that fits: %v", f, name, err)
	}
	_ = d.inside.SetReadDeadline(time.Now().Add(probe.AnswerTimeout))
	if n, err := d.inside.Read(make([]byte, mtu)); err != nil || n != mtu-headers[f] {
		t.Errorf("%s %s: %d bytes of an answer that fits arrive, %v", f, name, n, err)
	}
}

// gatewaySpoofed sends from the VLAN, to the port of a connection, in the name of the cluster, and
// past the translation.
func gatewaySpoofed(t *testing.T, w *external, e exits) {
	mac := wireMAC(t, w.near)
	cluster := map[lab.Family]netip.Addr{lab.IPv4: netip.MustParseAddr("10.96.0.1"), lab.IPv6: netip.MustParseAddr("fd00:10:96::1")}
	eachFamily(t, func(t *testing.T, f lab.Family) {
		red, pod := w.red[0], w.a
		for i, tc := range []struct {
			name    string
			to      inside
			own     netip.Addr
			src     netip.Addr
			dst     netip.Addr // invalid: the gateway's address
			arrives bool
		}{
			{name: "in its own name", to: inside{"", red.Host, e.red}, src: w.near.Address(f), arrives: true},
			{name: "as another pod of the tenant", to: inside{"", red.Host, e.red}, src: own(w.red[1])(f)},
			{name: "as a pod of default", to: inside{"", red.Host, e.red}, src: w.c.Address(f)},
			{name: "as itself", to: inside{"", red.Host, e.red}, src: own(red)(f)},
			{name: "as the gateway", to: inside{"", red.Host, e.red}, src: e.red.address(f)},
			{name: "to the tenant's own address", to: inside{"", red.Host, e.red}, src: w.near.Address(f), dst: own(red)(f)},
			{name: "to its address in the cluster", to: inside{"", red.Host, e.red}, src: w.near.Address(f), dst: red.Address(f)},
			{name: "of default, in its own name", to: inside{"", pod.Host, e.plain}, src: w.near.Address(f), arrives: true},
			{name: "of default, as a pod of another node", to: inside{"", pod.Host, e.plain}, src: w.c.Address(f)},
			{name: "of default, as a Service", to: inside{"", pod.Host, e.plain}, src: cluster[f]},
			{name: "of default, as the node's gateway", to: inside{"", pod.Host, e.plain}, src: w.n1.Gateway(f)},
			{name: "to the pod's own address", to: inside{"", pod.Host, e.plain}, src: w.near.Address(f), dst: pod.Address(f)},
		} {
			d := talk(t, tc.to.host, w.near, netip.AddrPortFrom(w.near.Address(f), uint16(7550+i)))
			dst := d.mapped
			if tc.dst.IsValid() {
				dst = netip.AddrPortFrom(tc.dst, uint16(7550+i))
			}
			packet := probe.UDP(netip.AddrPortFrom(tc.src, uint16(7550+i)), dst, []byte(tc.name))
			heard := wire(t, tc.to.host)
			if err := wire(t, w.near).Send(probe.Ethernet(mac, tc.to.by.mac(f), etherType[f], packet)); err != nil {
				t.Fatal(err)
			}
			came := func(frame probe.Frame) bool { return strings.HasSuffix(string(frame), tc.name) }
			if tc.arrives {
				if _, err := heard.Wait(t.Context(), came); err != nil {
					t.Errorf("%s: %v", tc.name, err)
				}
			} else if err := heard.Quiet(quiet, came); err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
		}
		// Nor does a pod speak in the name of its gateway.
		heard := wire(t, w.near)
		packet := probe.UDP(netip.AddrPortFrom(e.red.address(f), 1000), netip.AddrPortFrom(w.near.Address(f), 8090), []byte("as the gateway"))
		for _, sender := range []net.HardwareAddr{red.MAC, reserved.PodMAC(e.red.address(f)).HardwareAddr()} {
			if err := wire(t, red.Host).Send(probe.Ethernet(sender, router, etherType[f], packet)); err != nil {
				t.Fatal(err)
			}
		}
		if err := heard.Quiet(quiet, func(frame probe.Frame) bool { return strings.HasSuffix(string(frame), "as the gateway") }); err != nil {
			t.Errorf("a pod in the name of its gateway: %v", err)
		}
	})
}
