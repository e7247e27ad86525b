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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// Every Service of these tests is at port 80 of its addresses; its pods serve at
// 8080, by every protocol.
const (
	servicePort = 80
	answerPort  = 8080
)

// protocols are those that the machine's kernel has.
func protocols() []string {
	if probe.HasSCTP() {
		return []string{"tcp", "udp", "sctp"}
	}
	return []string{"tcp", "udp"}
}

// publish makes a Service with its endpoints.
func publish(w *world, namespace, name string, number int, change func(*corev1.Service), pods ...*lab.Pod) {
	publishAt(w, namespace, name, number, answerPort, change, pods...)
}

// publishAt gives the endpoints first: for some milliseconds the host's kernel refuses what has got
// endpoints since, or does not yet refuse what has none.
func publishAt(w *world, namespace, name string, number int, target int32, change func(*corev1.Service), pods ...*lab.Pod) {
	var ports []corev1.ServicePort
	for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		ports = append(ports, corev1.ServicePort{
			Name: strings.ToLower(string(p)), Protocol: p, Port: servicePort, TargetPort: intstr.FromInt32(target), NodePort: nodePortOf(number),
		})
	}
	s := labService(name, number, ports...)
	s.Namespace = namespace
	s.Spec.Type = corev1.ServiceTypeNodePort
	if change != nil {
		change(s)
	}
	for f := range lab.Dual.Each {
		slice := labSlice(name, f, corev1.ProtocolTCP, target, pods...)
		slice.Namespace = namespace
		one := slice.Ports[0]
		slice.Ports = nil
		for i := range ports {
			port := one
			port.Name, port.Protocol = &ports[i].Name, &ports[i].Protocol
			slice.Ports = append(slice.Ports, port)
		}
		w.API.SetEndpointSlice(slice)
	}
	w.API.SetService(s)
}

func nodePortOf(number int) int32 { return int32(30100 + number) }

func clusterIPOf(number int, f lab.Family) netip.AddrPort {
	a := map[lab.Family]string{lab.IPv4: "10.96.0.%d", lab.IPv6: "fd00:10:96::%d"}[f]
	return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf(a, number)), servicePort)
}

func externalIPOf(number int, f lab.Family) netip.AddrPort {
	a := map[lab.Family]string{lab.IPv4: "198.51.100.%d", lab.IPv6: "fd00:51::%d"}[f]
	return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf(a, number)), servicePort)
}

func atNode(n *lab.Node, number int, f lab.Family) netip.AddrPort {
	return netip.AddrPortFrom(n.Address(f), uint16(nodePortOf(number)))
}

// answers has a host answer clients with its name and the address that it sees of them, by each
// protocol, until the test ends.
func answers(t *testing.T, h *lab.Host, at netip.AddrPort) {
	t.Helper()
	stream := func(c net.Conn) {
		if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
			_, _ = fmt.Fprintf(c, "%s %s\n", h.Name, c.RemoteAddr())
		}
	}
	serve(t, h, at, stream)
	if probe.HasSCTP() {
		s, err := probe.ServeSCTP(h, at, stream)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
	}
	var c net.PacketConn
	if err := h.Do(func() (err error) { c, err = net.ListenPacket("udp", at.String()); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 100)
		for {
			_, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(fmt.Appendf(nil, "%s %s\n", h.Name, from), from)
		}
	}()
}

// Outcomes without an answer.
const (
	refused    = "refused"
	unanswered = "unanswered"
)

// ask returns the name that answers at an address, refused or unanswered, and the client's address
// as the server sees it.
func ask(ctx context.Context, from probe.Netns, protocol string, to netip.AddrPort, wait time.Duration) (who string, seen netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	who, seen, err = exchange(ctx, from, protocol, to)
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EPERM):
		// The latter is the own kernel's "administratively prohibited".
		return refused, seen, nil
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINPROGRESS):
		return unanswered, seen, nil
	}
	return who, seen, err
}

func exchange(ctx context.Context, from probe.Netns, protocol string, to netip.AddrPort) (who string, seen netip.Addr, err error) {
	var c net.Conn
	if protocol == "sctp" {
		c, err = probe.DialSCTP(ctx, from, to)
	} else {
		err = from.Do(func() (err error) { c, err = (&net.Dialer{}).DialContext(ctx, protocol, to.String()); return err })
	}
	if err != nil {
		return "", seen, err
	}
	defer c.Close()
	end, _ := ctx.Deadline()
	if err := c.SetDeadline(end); err != nil {
		return "", seen, err
	}
	if _, err := fmt.Fprintln(c, "who are you, and who am I?"); err != nil {
		return "", seen, err
	}
	text, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return "", seen, err
	}
	who, client, _ := strings.Cut(strings.TrimSpace(text), " ")
	at, err := netip.ParseAddrPort(client)
	return who, at.Addr().Unmap(), err
}

// asking is a client of a Service and what becomes of it.
type asking struct {
	name string
	from *lab.Host
	to   netip.AddrPort
	want []string   // the names that answer, each at some time; refused; unanswered
	seen netip.Addr // by them; invalid: whatever
	only string     // protocol; empty: all
}

// check asks with every protocol until all wanted servers have answered.
func (a asking) check(t *testing.T) {
	t.Helper()
	for _, protocol := range protocols() {
		if a.only != "" && protocol != a.only {
			continue
		}
		want, wait := a.want, probe.AnswerTimeout
		if protocol == "sctp" && want[0] == refused {
			// Linux's SCTP does not take "port unreachable" for an answer.
			want = []string{unanswered}
		}
		if want[0] == unanswered {
			wait = probe.AnswerTimeout / 4
		}
		missing := slices.Clone(want)
		for try := 0; len(missing) > 0; try++ {
			who, seen, err := ask(t.Context(), a.from, protocol, a.to, wait)
			if protocol == "sctp" && a.from.Name == "outside" && seen == lab.Internet(lab.FamilyOf(a.to.Addr())) {
				seen = a.seen // of its addresses SCTP takes any
			}
			if err != nil || !slices.Contains(want, who) || a.seen.IsValid() && seen.IsValid() && seen != a.seen || try > 40 {
				t.Errorf("%s, %s to %s: %s answers and sees %s, %v; want %v and %s; %v missing", a.name, protocol, a.to, who, seen, err, want, a.seen, missing)
				break
			}
			missing = slices.DeleteFunc(missing, func(name string) bool { return name == who })
		}
	}
}

// The Services of the test of all ways.
const (
	bothNodes = 40 + iota
	nearOnly
	toItself
	nobody
	keptLocal
	insideLocal
	sticky
	reds
	blues
	redsNobody
	redsLocal
)

// TestNativeServices asks for Services of every kind from everywhere, where agents and kernels do
// what they do on real nodes.
func TestNativeServices(t *testing.T) {
	t.Parallel()
	t.Logf("protocols that this kernel has: %v", protocols())
	w := startTenantsWith(t, lab.Options{Configure: nativeServices})
	for f := range lab.Dual.Each {
		for _, p := range []*lab.Pod{w.a, w.b, w.c} {
			answers(t, p.Host, netip.AddrPortFrom(p.Address(f), answerPort))
		}
		for _, p := range slices.Concat(w.red[:], w.blue[:]) {
			answers(t, p.Host, netip.AddrPortFrom(p.Own("eth0", f), answerPort))
		}
		run(t, w.Outside, "ip", "route", "add", map[lab.Family]string{lab.IPv4: "198.51.100.0/24", lab.IPv6: "fd00:51::/64"}[f], "via", w.n1.Address(f).String())
	}
	external := func(number int, policy corev1.ServiceExternalTrafficPolicy) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy = policy
			for f := range lab.Dual.Each {
				s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, externalIPOf(number, f).Addr().String())
			}
		}
	}
	publish(w.world, "lab", "both", bothNodes, external(bothNodes, corev1.ServiceExternalTrafficPolicyCluster), w.b, w.c)
	publish(w.world, "lab", "near", nearOnly, nil, w.b)
	publish(w.world, "lab", "itself", toItself, nil, w.a)
	publish(w.world, "lab", "nobody", nobody, external(nobody, corev1.ServiceExternalTrafficPolicyCluster))
	publish(w.world, "lab", "local", keptLocal, external(keptLocal, corev1.ServiceExternalTrafficPolicyLocal), w.b, w.c)
	publish(w.world, "lab", "inside", insideLocal, func(s *corev1.Service) {
		policy := corev1.ServiceInternalTrafficPolicyLocal
		s.Spec.InternalTrafficPolicy = &policy
	}, w.b, w.c)
	publish(w.world, "lab", "sticky", sticky, func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }, w.b, w.c)
	publish(w.world, "red", "reds", reds, nil, w.red[1], w.red[2])
	publish(w.world, "blue", "blues", blues, nil, w.blue[1])
	publish(w.world, "red", "nobody", redsNobody, nil)
	for _, n := range w.Nodes { // the last Service is there
		becomes(t, n.Name, func(ctx context.Context) error {
			who, _, err := ask(ctx, n, "tcp", clusterIPOf(redsNobody, lab.IPv6), probe.AnswerTimeout/4)
			if who != refused {
				return fmt.Errorf("%q answers, %w", who, err)
			}
			return nil
		})
	}
	eachFamily(t, func(t *testing.T, f lab.Family) {
		for _, a := range nativeWays(w, f) {
			a.check(t)
		}
		testSticky(t, w, f)
	})
	checkAll(t.Context(), t, w.world)
}

func nativeWays(w *tenants, f lab.Family) []asking {
	a, b, c := w.a.Host, w.b.Name, w.c.Name
	r1, r2 := w.red[1].Name, w.red[2].Name
	masked := map[lab.Family]netip.Addr{lab.IPv4: datapath.ServiceSourceIPv4, lab.IPv6: datapath.ServiceSourceIPv6}[f]
	pod, node, node2, out := w.a.Address(f), w.n1.Gateway(f), w.n2.Gateway(f), w.Outside.Address(f)
	red, blue := w.red[0].Address(f), w.blue[0].Address(f)
	ip := func(number int) netip.AddrPort { return clusterIPOf(number, f) }
	ext := func(number int) netip.AddrPort { return externalIPOf(number, f) }
	at := func(n *lab.Node, number int) netip.AddrPort { return atNode(n, number, f) }
	var any netip.Addr
	return []asking{
		{name: "pod", from: a, to: ip(bothNodes), want: []string{b, c}, seen: pod},
		{name: "pod, node port", from: a, to: at(w.n1, bothNodes), want: []string{b, c}, seen: pod},
		{name: "pod, node port of another node", from: a, to: at(w.n2, bothNodes), want: []string{b, c}, seen: any},
		{name: "pod, external address", from: a, to: ext(bothNodes), want: []string{b, c}, seen: pod},
		{name: "pod, itself", from: a, to: ip(toItself), want: []string{w.a.Name}, seen: masked},
		{name: "pod, nobody", from: a, to: ip(nobody), want: []string{refused}},
		{name: "pod, nobody, node port", from: a, to: at(w.n1, nobody), want: []string{refused}},
		{name: "pod, nobody, external address", from: a, to: ext(nobody), want: []string{refused}},
		{name: "pod, local", from: a, to: ip(insideLocal), want: []string{b}, seen: pod},
		{name: "pod of the other node, local", from: w.c.Host, to: ip(insideLocal), want: []string{c}},
		{name: "pod, a tenant's", from: a, to: ip(reds), want: []string{unanswered}},
		{name: "pod, a tenant's node port", from: a, to: at(w.n1, reds), want: []string{r1, r2}},

		{name: "node", from: w.n1.Host, to: ip(bothNodes), want: []string{b, c}, seen: node},
		{name: "other node", from: w.n2.Host, to: ip(nearOnly), want: []string{b}, seen: node2},
		{name: "node, its node port", from: w.n1.Host, to: at(w.n1, bothNodes), want: []string{b, c}, seen: node},
		{name: "node, node port of another node", from: w.n1.Host, to: at(w.n2, bothNodes), want: []string{b, c}, seen: any},
		{name: "node, external address", from: w.n1.Host, to: ext(bothNodes), want: []string{b, c}, seen: node},
		{name: "node, nobody", from: w.n1.Host, to: ip(nobody), want: []string{refused}},
		{name: "node, nobody, node port", from: w.n1.Host, to: at(w.n1, nobody), want: []string{refused}},
		{name: "node, a tenant's", from: w.n1.Host, to: ip(reds), want: []string{r1, r2}, seen: node},

		{name: "outside, node port", from: w.Outside, to: at(w.n1, bothNodes), want: []string{b, c}, seen: node},
		{name: "outside, external address", from: w.Outside, to: ext(bothNodes), want: []string{b, c}, seen: node},
		{name: "outside, nobody", from: w.Outside, to: at(w.n1, nobody), want: []string{refused}},
		{name: "outside, nobody, external address", from: w.Outside, to: ext(nobody), want: []string{refused}},
		{name: "outside, local", from: w.Outside, to: at(w.n1, keptLocal), want: []string{b}, seen: out},
		{name: "outside, local, other node", from: w.Outside, to: at(w.n2, keptLocal), want: []string{c}, seen: out},
		{name: "outside, local, external address", from: w.Outside, to: ext(keptLocal), want: []string{b}, seen: out},
		{name: "outside, a tenant's", from: w.Outside, to: at(w.n1, reds), want: []string{r1, r2}, seen: node},

		{name: "tenant, its own", from: w.red[0].Host, to: ip(reds), want: []string{r1, r2}, seen: red},
		{name: "tenant, itself", from: w.blue[1].Host, to: ip(blues), want: []string{w.blue[1].Name}, seen: masked},
		{name: "tenant, another's", from: w.red[0].Host, to: ip(blues), want: []string{unanswered}},
		{name: "tenant, the default network's", from: w.red[0].Host, to: ip(bothNodes), want: []string{b, c}, seen: red},
		{name: "the other tenant, the default network's", from: w.blue[0].Host, to: ip(bothNodes), want: []string{b, c}, seen: blue},
		// What ICMP errors quote is not rewritten: such ends datagrams of tenants.
		{name: "tenant, nobody", from: w.red[0].Host, to: ip(redsNobody), want: []string{refused}, only: "tcp"},
		{name: "tenant, nobody of the default network", from: w.red[0].Host, to: ip(nobody), want: []string{refused}, only: "tcp"},
	}
}

// testSticky has each client keep its endpoint.
func testSticky(t *testing.T, w *tenants, f lab.Family) {
	t.Helper()
	for _, from := range []*lab.Host{w.a.Host, w.n1.Host, w.red[0].Host, w.c.Host} {
		var first string
		for i := range 15 {
			who, _, err := ask(t.Context(), from, "tcp", clusterIPOf(sticky, f), probe.AnswerTimeout)
			if i == 0 {
				first = who
			}
			if err != nil || who != first {
				t.Errorf("%s: %s answers after %s, %v", from.Name, who, first, err)
				break
			}
		}
	}
}

// serviceTraffic is traffic through Services: from a pod, to an endpoint on its node and to one on
// another, from the node, and from outside.
func serviceTraffic(ctx context.Context, t *testing.T, w *world) *traffic {
	t.Helper()
	ways := []struct {
		name     string
		from     *lab.Host
		endpoint *lab.Pod
		nodePort bool
	}{
		{"pod, same node", w.a.Host, w.b, false}, {"pod, " + otherNode, w.a.Host, w.c, false},
		{"node", w.n1.Host, w.b, false}, {"outside", w.Outside, w.b, true}, {"itself", w.a.Host, w.a, false},
	}
	for i, way := range ways {
		publishAt(w, "lab", fmt.Sprint("stream-", 100+i), 100+i, int32(7100+i), nil, way.endpoint)
	}
	each := func(do func(name string, from *lab.Host, endpoint *lab.Pod, to, at netip.AddrPort)) {
		for i, way := range ways {
			for f := range lab.Dual.Each {
				to, at := clusterIPOf(100+i, f), netip.AddrPortFrom(way.endpoint.Address(f), uint16(7100+i))
				if way.nodePort {
					to = atNode(w.n1, 100+i, f)
				}
				do(f.String()+" "+way.name, way.from, way.endpoint, to, at)
			}
		}
	}
	each(func(name string, from *lab.Host, endpoint *lab.Pod, to, at netip.AddrPort) {
		serve(t, endpoint, at, probe.Echo)
		becomes(t, name, func(ctx context.Context) error {
			c, err := probe.Dial(ctx, from, to)
			if err == nil {
				c.Close()
			}
			return err
		})
	})
	tr := &traffic{}
	each(func(name string, from *lab.Host, endpoint *lab.Pod, to, at netip.AddrPort) {
		udp, err := probe.StartUDP(from, endpoint, to, at, probeInterval)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(udp.Close)
		tcp, err := probe.StartTCP(ctx, from, to, probeInterval)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Cleanup(tcp.Close)
		tr.names, tr.udp, tr.tcp = append(tr.names, name), append(tr.udp, udp), append(tr.tcp, tcp)
	})
	tr.settle(ctx, t)
	return tr
}

// modeGap is how long pods may not hear each other while their node changes over: a packet or two.
const modeGap = 500 * time.Millisecond

// TestNativeServicesThroughRestarts has connections through Services live on while agents restart,
// and those between pods also while agents change the Service mode.
func TestNativeServicesThroughRestarts(t *testing.T) {
	t.Parallel()
	mode := config.NativeServices
	w := start(t, lab.Options{Configure: func(c *config.Config) { c.Services.Mode = mode }})
	ctx := within(t, 5*time.Minute)
	// No connection is lost, and no packet either if no table comes or goes that one may be
	// on its way to.
	lostAtMost := func(t *testing.T, tr *traffic, gap time.Duration) {
		t.Helper()
		tr.settle(ctx, t)
		for name, o := range tr.stop(t) {
			if o.Gap > gap || gap == 0 && len(o.Lost) > 0 {
				t.Errorf("%s: %s", name, o.UDPReport)
			}
		}
	}
	restart := func(t *testing.T, end func(*lab.Node)) {
		t.Helper()
		for _, n := range w.Nodes {
			end(n)
			if err := n.StartAgent(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("agents", func(t *testing.T) {
		tr := serviceTraffic(ctx, t, w)
		restart(t, (*lab.Node).KillAgent)
		restart(t, (*lab.Node).StopAgent)
		lostAtMost(t, tr, 0)
	})
	publish(w, "lab", "web", 50, nil, w.b, w.c)
	works := func(t *testing.T) {
		t.Helper()
		for f := range lab.Dual.Each {
			becomes(t, f.String(), reaches(w.a, clusterIPOf(50, f)))
			becomes(t, f.String()+" from outside", reaches(w.Outside, atNode(w.n1, 50, f)))
		}
	}
	for f := range lab.Dual.Each {
		serve(t, w.b, netip.AddrPortFrom(w.b.Address(f), answerPort), probe.WhoAmI)
		serve(t, w.c, netip.AddrPortFrom(w.c.Address(f), answerPort), probe.WhoAmI)
	}
	works(t)
	t.Run("mode", func(t *testing.T) {
		tr := startTraffic(ctx, t, w)
		mode = config.KubeProxy
		restart(t, (*lab.Node).StopAgent)
		tr.settle(ctx, t)
		if who, _, err := ask(ctx, w.a, "tcp", clusterIPOf(50, lab.IPv4), probe.AnswerTimeout/4); who != unanswered {
			t.Errorf("%q answers where there is no kube-proxy, %v", who, err)
		}
		mode = config.NativeServices
		restart(t, (*lab.Node).StopAgent)
		lostAtMost(t, tr, modeGap)
		works(t)
	})
	t.Run("ovs-vswitchd", func(t *testing.T) {
		for name, do := range map[string]func() error{
			"killed":  func() error { w.n1.OVS.KillVswitchd(); return w.n1.OVS.StartVswitchd(ctx) },
			"stopped": func() error { w.n1.OVS.StopVswitchd(); return w.n1.OVS.StartVswitchd(ctx) },
		} {
			if err := do(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			works(t)
		}
	})
	checkAll(ctx, t, w)
}
