// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/diagnose"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// The numbers of the Services with a FloatingIP, which are the last parts of its addresses as well.
const (
	fipBoth = 140 + iota
	fipNear
	fipOther
	fipLocal
	fipReds
	fipNobody
	fipClosed // its endpoints' port is closed
	fipMuch   // its endpoint sends much
	fipMuchLocal
	fipBalanced // an address of its load balancer, for the host far away only
)

// closedPort has no listener, at muchPort much is sent.
const (
	closedPort = 9
	muchPort   = 8082
)

// atOffice is the FloatingIP of a Service, at its port.
func atOffice(number int, f lab.Family) netip.AddrPort {
	return netip.AddrPortFrom(office(f, number), servicePort)
}

// bindService publishes FloatingIPs of a Service.
func (w *external) bindService(namespace, service string, number int) {
	for f := range lab.Dual.Each {
		w.API.AddServiceFloatingIP(namespace, fmt.Sprint(service, "-", f), "office", office(f, number).String(), service)
	}
}

// startFloatingServices makes Services of all kinds, each with a FloatingIP of each family.
func startFloatingServices(t *testing.T) *external {
	t.Helper()
	w := startExternal(t)
	w.API.AddMembershipKey()
	for f := range lab.Dual.Each {
		for _, p := range []*lab.Pod{w.a, w.b, w.c} {
			answers(t, p.Host, netip.AddrPortFrom(p.Address(f), answerPort))
		}
		answers(t, w.red[2].Host, netip.AddrPortFrom(w.red[2].Own("eth0", f), answerPort))
	}
	local := func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
	publish(w.world, "lab", "both", fipBoth, nil, w.b, w.c)
	publish(w.world, "lab", "near", fipNear, nil, w.a)
	publish(w.world, "lab", "other", fipOther, nil, w.c)
	publish(w.world, "lab", "local", fipLocal, local, w.c)
	publish(w.world, "red", "reds", fipReds, nil, w.red[2])
	publish(w.world, "lab", "nobody", fipNobody, nil)
	publishAt(w.world, "lab", "closed", fipClosed, closedPort, nil, w.a, w.c)
	publishAt(w.world, "lab", "much", fipMuch, muchPort, nil, w.a)
	publishAt(w.world, "lab", "much-local", fipMuchLocal, muchPort, local, w.c)
	publish(w.world, "lab", "balanced", fipBalanced, func(s *corev1.Service) {
		for f := range lab.Dual.Each {
			allowed := netip.PrefixFrom(w.far.Address(f), w.far.Address(f).BitLen())
			s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, allowed.String())
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
				corev1.LoadBalancerIngress{IP: office(f, fipBalanced).String()})
		}
	}, w.a)
	heard := wire(t, w.near)
	for name, number := range map[string]int{
		"both": fipBoth, "near": fipNear, "other": fipOther, "local": fipLocal, "nobody": fipNobody, "closed": fipClosed,
		"much": fipMuch, "much-local": fipMuchLocal, "balanced": fipBalanced,
	} {
		w.bindService("lab", name, number)
	}
	w.bindService("red", "reds", fipReds)
	for f := range lab.Dual.Each {
		for number := fipBoth; number <= fipBalanced; number++ {
			if err := awaitAnnouncement(t, heard, number, f); err != nil {
				t.Fatalf("%s is not announced: %v", office(f, number), err)
			}
		}
	}
	return w
}

// awaitAnnouncement waits until a node announces a FloatingIP: for as long as nodes may need to
// agree on one.
func awaitAnnouncement(t *testing.T, heard *probe.Wire, number int, f lab.Family) error {
	t.Helper()
	ctx := within(t, time.Minute)
	for {
		_, err := heard.Wait(ctx, announcement(office(f, number), fipMAC(number, f)))
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// reachesService waits until a host reaches a Service by its FloatingIP.
func reachesService(t *testing.T, from *lab.Host, number int, name string) {
	t.Helper()
	for f := range lab.Dual.Each {
		becomes(t, fmt.Sprint(from.Name, " to ", atOffice(number, f)), func(ctx context.Context) error {
			who, _, err := ask(ctx, from, "tcp", atOffice(number, f), time.Second)
			if err == nil && name != "" && who != name || who == unanswered || who == refused {
				err = fmt.Errorf("%q answers", who)
			}
			return err
		})
	}
}

// TestFloatingIPsOfServices takes FloatingIPs of Services through everything that they are for.
func TestFloatingIPsOfServices(t *testing.T) {
	t.Parallel()
	w := startFloatingServices(t)
	for number, name := range map[int]string{
		fipBoth: "", fipNear: w.a.Name, fipOther: w.c.Name, fipLocal: w.c.Name, fipReds: w.red[2].Name,
	} {
		reachesService(t, w.near, number, name)
	}
	t.Run("ways", func(t *testing.T) { floatingServiceWays(t, w) })
	t.Run("one node answers", func(t *testing.T) { floatingServiceNeighbours(t, w) })
	t.Run("errors", func(t *testing.T) { floatingServiceErrors(t, w) })
	t.Run("sizes", func(t *testing.T) { floatingServiceSizes(t, w) })
	t.Run("trace", func(t *testing.T) { floatingServiceTraces(t, w) })
	t.Run("policies", func(t *testing.T) { floatingServicePolicies(t, w) })
	t.Run("a pod with a FloatingIP", func(t *testing.T) { floatingServiceHairpin(t, w) })
	t.Run("an agent that starts anew", func(t *testing.T) { floatingServiceRestart(t, w) })
	t.Run("moves", func(t *testing.T) { floatingServiceMoves(t, w) })
	t.Run("removed", func(t *testing.T) { floatingServiceRemoved(t, w) })
	awaitCheck(within(t, time.Minute), t, w.world)
	t.Run("a node that is disconnected", func(t *testing.T) { floatingServiceDisconnected(t, w) })
}

func floatingServiceWays(t *testing.T, w *external) {
	a, b, c, r := w.a.Name, w.b.Name, w.c.Name, w.red[2].Name
	inBothFamilies(func(f lab.Family) {
		at := func(number int) netip.AddrPort { return atOffice(number, f) }
		for _, ask := range []asking{
			{name: "VLAN", from: w.near, to: at(fipBoth), want: []string{b, c}},
			{name: "beyond the gateway", from: w.far, to: at(fipBoth), want: []string{b, c}},
			{name: "VLAN, one endpoint", from: w.near, to: at(fipNear), want: []string{a}},
			{name: "beyond, one endpoint", from: w.far, to: at(fipOther), want: []string{c}},
			{name: "VLAN, local", from: w.near, to: at(fipLocal), want: []string{c}, seen: w.near.Address(f)},
			{name: "beyond, local", from: w.far, to: at(fipLocal), want: []string{c}, seen: w.far.Address(f)},
			{name: "VLAN, a tenant's", from: w.near, to: at(fipReds), want: []string{r}},
			{name: "beyond, a tenant's", from: w.far, to: at(fipReds), want: []string{r}},
			{name: "beyond, of the source ranges", from: w.far, to: at(fipBalanced), want: []string{a}},
			{name: "VLAN, not of the source ranges", from: w.near, to: at(fipBalanced), want: []string{unanswered}},
			{name: "a pod, not of the source ranges", from: w.b.Host, to: at(fipBalanced), want: []string{unanswered}},
			{name: "a node, not of the source ranges", from: w.n1.Host, to: at(fipBalanced), want: []string{unanswered}, only: "tcp"},
			{name: "beyond, nobody", from: w.far, to: at(fipNobody), want: []string{refused}, only: "tcp"},

			{name: "a pod", from: w.a.Host, to: at(fipBoth), want: []string{b, c}, seen: w.a.Address(f)},
			{name: "a pod, local", from: w.a.Host, to: at(fipLocal), want: []string{c}, seen: w.a.Address(f)},
			{name: "a pod, itself", from: w.a.Host, to: at(fipNear), want: []string{a}},
			{name: "a pod, a tenant's", from: w.a.Host, to: at(fipReds), want: []string{r}},
			{name: "a tenant", from: w.red[0].Host, to: at(fipReds), want: []string{r}, seen: w.red[0].Address(f)},
			{name: "a tenant, of default", from: w.red[0].Host, to: at(fipNear), want: []string{a}, seen: w.red[0].Address(f)},
			{name: "another tenant", from: w.blue[0].Host, to: at(fipReds), want: []string{r}},
			{name: "a node", from: w.n1.Host, to: at(fipBoth), want: []string{b, c}, seen: w.n1.Gateway(f)},
			{name: "another node", from: w.n2.Host, to: at(fipNear), want: []string{a}, seen: w.n2.Gateway(f)},
		} {
			ask.check(t)
		}
	})
}

// fipMAC is the MAC that a FloatingIP is announced with.
func fipMAC(number int, f lab.Family) net.HardwareAddr {
	return reserved.PodMAC(office(f, number)).HardwareAddr()
}

// answeringNode is the node with the bridge that answers for a FloatingIP.
func (w *external) answeringNode(t *testing.T, number int, f lab.Family) *lab.Node {
	t.Helper()
	var found []*lab.Node
	for _, n := range w.Nodes {
		entries := run(t, n.Host, "ip", "neigh", "show", "proxy", "dev", "coelan-gw0")
		if slices.Contains(strings.Fields(entries), office(f, number).String()) {
			found = append(found, n)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s: %d nodes answer", office(f, number), len(found))
	}
	return found[0]
}

// floatingServiceNeighbours asks by ARP for the address: one node answers.
func floatingServiceNeighbours(t *testing.T, w *external) {
	near := wire(t, w.near)
	asker := net.HardwareAddr{0x02, 0, 0, 0, 0, 0x43}
	v4 := office(lab.IPv4, fipBoth)
	answers := func(frame probe.Frame) bool {
		return bytes.Equal(frame.Dst(), asker) && isAnswer(frame, fipMAC(fipBoth, lab.IPv4), v4, netip.Addr{}, "ARP")
	}
	question := probe.ARP(probe.ARPRequest, asker, office(lab.IPv4, 66), make([]byte, 6), v4)
	if err := near.Send(probe.Ethernet(asker, probe.Broadcast, probe.EtherARP, question)); err != nil {
		t.Fatal(err)
	}
	if _, err := near.Wait(t.Context(), answers); err != nil {
		t.Errorf("ARP for %s: %v", v4, err)
	}
	reachesService(t, w.near, fipBoth, "") // an answer of the other node would have come meanwhile
	if n := len(near.Frames(answers)); n != 1 {
		t.Errorf("%d answers to one ARP for %s", n, v4)
	}
}

// floatingServiceErrors has endpoints with a closed port answer datagrams: clients outside get the
// errors, which quote what they have sent.
func floatingServiceErrors(t *testing.T, w *external) {
	inBothFamilies(func(f lab.Family) {
		for _, from := range []*lab.Host{w.near, w.far, w.b.Host, w.n1.Host} {
			if err := refusedUDP(from, atOffice(fipClosed, f)); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s: from %s to a closed port: %v", f, from.Name, err)
			}
		}
	})
}

// floatingServiceSizes sends what is too big, on both ways.
func floatingServiceSizes(t *testing.T, w *external) {
	for _, p := range []*lab.Pod{w.a, w.c} {
		for f := range lab.Dual.Each {
			serve(t, p.Host, netip.AddrPortFrom(p.Address(f), muchPort), sendMuch)
		}
	}
	inBothFamilies(func(f lab.Family) {
		want := tooBig[f]
		for _, number := range []int{fipMuch, fipMuchLocal} {
			r, err := (probe.Ping{Dst: office(f, number), Size: 1500 - headers[f]}).Run(t.Context(), w.near)
			tooBig := probe.ICMPError{From: office(f, number), Type: want[0], Code: want[1], MTU: 1450}
			if err != nil || len(r.Errors) != 1 || r.Errors[0] != tooBig {
				t.Errorf("%s to %s: replies %v, errors %v, %v; want %v", f, office(f, number), r.Replies, r.Errors, err, tooBig)
			}
		}
	})
	floatingServiceSends(t, w)
}

// floatingServiceSends has Services send more than the way takes: the wire beyond the gateway is
// narrow, which a sender in the cluster has to learn.
func floatingServiceSends(t *testing.T, w *external) {
	inBothFamilies(func(f lab.Family) {
		for _, number := range []int{fipMuch, fipMuchLocal} {
			for _, to := range []*lab.Host{w.near, w.far} {
				if err := getMuch(within(t, 10*time.Second), to, atOffice(number, f)); err != nil {
					t.Errorf("%s: %s gets from %s: %v", f, to.Name, atOffice(number, f), err)
				}
			}
		}
	})
}

// much is more than any queue on the way holds.
const much = 1 << 19

func sendMuch(c net.Conn) { _, _ = c.Write(make([]byte, much)) }

// getMuch connects to what sends much, and has to get all of it.
func getMuch(ctx context.Context, from *lab.Host, at netip.AddrPort) error {
	c, err := probe.Dial(ctx, from, at)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, err := io.Copy(io.Discard, c)
	if err == nil && n != much {
		err = fmt.Errorf("%d bytes", n)
	}
	return err
}

// floatingServiceTraces asks as `coelan trace` does, from outside and from inside.
func floatingServiceTraces(t *testing.T, w *external) {
	for f := range lab.Dual.Each {
		packet := func(node, from string, source netip.Addr, number int, port uint16) diagnose.Packet {
			return diagnose.Packet{
				Node: node, From: from, Source: source, Destination: office(f, number), Protocol: "tcp", SourcePort: 49152,
				DestinationPort: port,
			}
		}
		for _, tc := range []struct {
			name, service string
			number        int
			port          uint16
			at, end       string // the node with the endpoint, and what becomes of the packet there
		}{
			{"one endpoint", "near", fipNear, servicePort, "n1", "pod lab/a/eth0"},
			{"of clients that it sees", "local", fipLocal, servicePort, "n2", "pod lab/c/eth0"},
			{"of a load balancer", "balanced", fipBalanced, servicePort, "n1", "pod lab/a/eth0"},
			{"of a tenant", "reds", fipReds, servicePort, "n2", "pod red/r2/eth0"},
			{"at another port", "near", fipNear, servicePort + 1, "", "drop no route"},
			{"without endpoints", "nobody", fipNobody, servicePort, "", "refused"},
		} {
			node := w.answeringNode(t, tc.number, f).Name
			want := fmt.Sprintf("%[1]s to %[2]s of %[1]s gateway", node, tc.service)
			switch tc.at {
			case "":
				want += map[bool]string{true: " refused", false: ", " + node + " " + tc.end}[tc.end == "refused"]
			case node:
				want += ", " + node + " " + tc.end
			default:
				want += ", " + node + " tunnel, " + tc.at + " " + tc.end
			}
			way, err := diagnose.Trace(t.Context(), labAgents{w.Lab}, packet(node, "outside", w.far.Address(f), tc.number, tc.port))
			if got := wayOf(way, f); err != nil || got != want {
				t.Errorf("%s %s: %q, %v; want %q", f, tc.name, got, err, want)
			}
		}
		node := w.answeringNode(t, fipBalanced, f).Name
		way, err := diagnose.Trace(t.Context(), labAgents{w.Lab}, packet(node, "outside", w.near.Address(f), fipBalanced, servicePort))
		want := fmt.Sprintf("%[1]s to balanced of %[1]s drop spec.loadBalancerSourceRanges of service lab/balanced do not have the sender", node)
		if got := wayOf(way, f); err != nil || got != want {
			t.Errorf("%s of a client that may not: %q, %v; want %q", f, got, err, want)
		}
		way, err = diagnose.Trace(t.Context(), labAgents{w.Lab}, packet("n1", "lab/b", w.b.Address(f), fipLocal, servicePort))
		if got, want := wayOf(way, f), "n1 tunnel, n2 pod lab/c/eth0"; err != nil || got != want {
			t.Errorf("%s from inside: %q, %v; want %q", f, got, err, want)
		}
		_, err = diagnose.Trace(t.Context(), labAgents{w.Lab}, packet("n1", "outside", w.far.Address(f), fipLocal, servicePort))
		want = fmt.Sprintf("node n1 does not answer for %s: FloatingIP lab/local-%s: another node has been chosen to answer for its Service", office(f, fipLocal), f)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s from outside at the wrong node: %v, want %q", f, err, want)
		}
	}
}

// floatingServicePolicies has an ingress rule see true clients where the Service keeps them.
func floatingServicePolicies(t *testing.T, w *external) {
	w.rules.isolate(w.c, intent.Ingress, intent.Rule{Blocks: blocks(both(w.far.Address)...)})
	w.rules.publish(t)
	for f := range lab.Dual.Each {
		becomes(t, f.String()+" the client that is allowed", func(ctx context.Context) error {
			who, _, err := ask(ctx, w.far, "tcp", atOffice(fipLocal, f), time.Second)
			if err == nil && who != w.c.Name {
				err = fmt.Errorf("%q answers", who)
			}
			return err
		})
		becomes(t, f.String()+" another client", func(ctx context.Context) error {
			who, _, err := ask(ctx, w.near, "tcp", atOffice(fipLocal, f), 300*time.Millisecond)
			if err == nil && who != unanswered {
				err = fmt.Errorf("%q answers", who)
			}
			return err
		})
	}
	w.rules.open(w.c)
	w.rules.publish(t)
	reachesService(t, w.near, fipLocal, w.c.Name)
}

// floatingServiceHairpin takes a pod with a FloatingIP of its own to the Services.
func floatingServiceHairpin(t *testing.T, w *external) {
	x := ofPod(w.a, 101)
	w.bind(x)
	w.awaitAnswers(t, x)
	inBothFamilies(func(f lab.Family) {
		for _, ask := range []asking{
			{name: "a pod", from: w.a.Host, to: atOffice(fipBoth, f), want: []string{w.b.Name, w.c.Name}, seen: w.a.Address(f)},
			{name: "itself", from: w.a.Host, to: atOffice(fipNear, f), want: []string{w.a.Name}},
			{name: "from outside", from: w.far, to: atOffice(fipNear, f), want: []string{w.a.Name}},
		} {
			ask.check(t)
		}
	})
	w.release(x)
}

// floatingServiceRestart ends an agent and starts it again: its node goes on answering, and writes
// no flow.
func floatingServiceRestart(t *testing.T, w *external) {
	n := w.answeringNode(t, fipLocal, lab.IPv4)
	n.StopAgent()
	reachesService(t, w.near, fipLocal, w.c.Name)
	if err := n.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	reachesService(t, w.near, fipLocal, w.c.Name)
}

// floatingServiceMoves takes the agent of the node that answers away: another node announces the
// address and answers, until the agent is back.
func floatingServiceMoves(t *testing.T, w *external) {
	for f := range lab.Dual.Each {
		from := w.answeringNode(t, fipBoth, f)
		heard := wire(t, w.near)
		from.KillAgent()
		if err := awaitAnnouncement(t, heard, fipBoth, f); err != nil {
			t.Errorf("%s is not announced when the agent of %s is dead: %v", office(f, fipBoth), from.Name, err)
		}
		reachesService(t, w.near, fipBoth, "")
		reachesService(t, w.far, fipOther, w.c.Name)
		heard = wire(t, w.near)
		if err := from.StartAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := awaitAnnouncement(t, heard, fipBoth, f); err != nil {
			t.Errorf("%s is not announced when the agent of %s is back: %v", office(f, fipBoth), from.Name, err)
		}
		reachesService(t, w.near, fipBoth, "")
	}
}

// floatingServiceDisconnected takes n2 from the physical network: n1 answers for what n2 did.
func floatingServiceDisconnected(t *testing.T, w *external) {
	moved := map[int]string{fipNear: w.c.Name, fipOther: w.c.Name, fipReds: w.red[2].Name}
	if _, err := w.n2.OVS.Vsctl(t.Context(), "del-br", "br-ext"); err != nil {
		t.Fatal(err)
	}
	for number, name := range moved {
		reachesService(t, w.near, number, name)
		for f := range lab.Dual.Each {
			if n := w.answeringNode(t, number, f); n != w.n1 {
				t.Errorf("node %s answers for %s", n.Name, office(f, number))
			}
		}
	}
}

// floatingServiceRemoved deletes what makes nodes answer, in different ways.
func floatingServiceRemoved(t *testing.T, w *external) {
	for f := range lab.Dual.Each {
		w.API.RemoveFloatingIP("lab", fmt.Sprint("both-", f))
		w.API.AddServiceFloatingIP("lab", fmt.Sprint("near-", f), "office", office(f, fipNear).String(), "other")
	}
	w.API.RemoveService("lab", "local")
	for f := range lab.Dual.Each {
		for _, number := range []int{fipBoth, fipLocal} {
			becomes(t, office(f, number).String(), func(ctx context.Context) error {
				who, _, err := ask(ctx, w.near, "tcp", atOffice(number, f), 300*time.Millisecond)
				if err == nil && who != unanswered {
					return fmt.Errorf("%q answers", who)
				}
				return nil
			})
		}
	}
	reachesService(t, w.far, fipNear, w.c.Name) // it stands for another Service now
}
