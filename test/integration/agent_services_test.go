// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/diagnose"
	"coelan.io/coelan/internal/localapi"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// nativeServices has agents balance Services themselves.
func nativeServices(c *config.Config) { c.Services.Mode = config.NativeServices }

// labService is a dual-stack Service at x.x.0.n of both ranges of ClusterIPs.
func labService(name string, n int, ports ...corev1.ServicePort) *corev1.Service {
	four, six := fmt.Sprintf("10.96.0.%d", n), fmt.Sprintf("fd00:10:96::%d", n)
	policy := corev1.IPFamilyPolicyRequireDualStack
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: four, ClusterIPs: []string{four, six}, IPFamilyPolicy: &policy,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, Ports: ports,
		},
	}
}

// labSlice are the pods of one family that serve a Service's only port.
func labSlice(service string, f lab.Family, protocol corev1.Protocol, port int32, pods ...*lab.Pod) *discoveryv1.EndpointSlice {
	ready := true
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "lab", Name: strings.ToLower(service + "-" + f.String()),
			Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressType(f.String()),
		Ports:       []discoveryv1.EndpointPort{{Name: new(string), Port: &port, Protocol: &protocol}},
	}
	for _, p := range pods {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{p.Address(f).String()}, NodeName: &p.Node.Name, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return s
}

// becomes waits until check finds nothing wrong.
func becomes(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	becomesWithin(t, 15*time.Second, what, check)
}

func becomesWithin(t *testing.T, bound time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// reaches says whether a TCP connection gets an answer of WhoAmI.
func reaches(from probe.Netns, at netip.AddrPort) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := probe.Seen(ctx, from, at)
		return err
	}
}

// TestAgentServices takes agents through what happens to Services and to agents.
func TestAgentServices(t *testing.T) {
	mode := config.NativeServices
	w := start(t, lab.Options{Configure: func(c *config.Config) { c.Services.Mode = mode }})
	ctx := t.Context()
	tcp := corev1.ServicePort{Port: 80, Protocol: corev1.ProtocolTCP}
	w.API.SetService(labService("web", 10, tcp))
	for f := range lab.Dual.Each {
		w.API.SetEndpointSlice(labSlice("web", f, corev1.ProtocolTCP, 8080, w.c))
		serve(t, w.c, netip.AddrPortFrom(w.c.Address(f), 8080), probe.WhoAmI)
	}
	works := func(t *testing.T) {
		t.Helper()
		for f := range lab.Dual.Each {
			becomes(t, f.String()+" from a pod", reaches(w.a, netip.AddrPortFrom(vip[f], 80)))
			becomes(t, f.String()+" from the node", reaches(w.n1.Host, netip.AddrPortFrom(vip[f], 80)))
		}
	}
	works(t)

	t.Run("what the agent tells", func(t *testing.T) { toldOfServices(t, w) })

	// Without the API server, an agent that starts leaves Services as they are, and writes nothing.
	t.Run("restart without the API server", func(t *testing.T) {
		// What is remembered is written a moment after it came.
		time.Sleep(2 * time.Second)
		w.API.Stop()
		for name, end := range map[string]func(){"stopped": w.n1.StopAgent, "killed": w.n1.KillAgent} {
			end()
			if err := w.n1.StartAgent(ctx); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var s agentapi.Status
			if err := w.n1.Query(ctx, "/v1/status", &s); err != nil {
				t.Fatal(err)
			}
			if s.Sync.Added+s.Sync.Changed+s.Sync.Deleted > 0 {
				t.Errorf("%s: the agent has written flows: %+v", name, s.Sync)
			}
			works(t)
		}
		if err := w.API.Resume(); err != nil {
			t.Fatal(err)
		}
		if err := w.n1.Check(ctx); err != nil {
			t.Error(err)
		}
	})

	// What changed while the agent was away is in effect soon after.
	t.Run("changes while the agent is away", func(t *testing.T) {
		w.n1.StopAgent()
		w.API.SetService(labService("new", 11, tcp))
		for f := range lab.Dual.Each {
			w.API.SetEndpointSlice(labSlice("new", f, corev1.ProtocolTCP, 8080, w.c))
		}
		w.API.RemoveService("lab", "web")
		if err := w.n1.StartAgent(ctx); err != nil {
			t.Fatal(err)
		}
		becomes(t, "a Service that came", reaches(w.a, netip.MustParseAddrPort("10.96.0.11:80")))
		becomes(t, "a Service that went", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			if _, err := probe.Seen(ctx, w.a, netip.MustParseAddrPort("10.96.0.10:80")); err == nil {
				return errors.New("it still answers")
			}
			return nil
		})
		w.API.SetService(labService("web", 10, tcp))
		works(t)
	})

	// The first node port comes before the clients of the next one.
	t.Run("node ports", func(t *testing.T) { nodePortOfProcess(t, w) })
	t.Run("UDP", func(t *testing.T) { udpMoves(t, w) })
	t.Run("the kernel hears first", func(t *testing.T) { kernelHearsFirst(t, w) })
	t.Run("the kernel answers", func(t *testing.T) { kernelAnswers(t, w) })
	t.Run("health checks", func(t *testing.T) { healthChecks(t, w) })

	// A node changes over when its agent starts anew, and connections between pods live on.
	t.Run("change over", func(t *testing.T) {
		at := netip.AddrPortFrom(w.c.Address(lab.IPv4), 8090)
		serve(t, w.c, at, probe.Echo)
		stream, err := probe.StartTCP(ctx, w.a.Host, at, probeInterval)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		for _, mode = range []config.ServiceMode{config.KubeProxy, config.NativeServices} {
			w.n1.StopAgent()
			if err := w.n1.StartAgent(ctx); err != nil {
				t.Fatal(err)
			}
			ids, err := w.n1.OVS.Vsctl(ctx, "get", "Interface", "coelan-gw0", "external_ids")
			if err != nil || strings.Contains(ids, `is-service-gateway="true"`) != (mode == config.KubeProxy) {
				t.Errorf("%s: external_ids of the gateway are %s, %v", mode, ids, err)
			}
			var list []agentapi.ServiceInfo
			if err := w.n1.Query(ctx, "/v1/services", &list); err != nil || (len(list) == 0) != (mode == config.KubeProxy) {
				t.Errorf("%s: the agent has %d Services, %v", mode, len(list), err)
			}
			if err := w.n1.Check(ctx); err != nil {
				t.Errorf("%s: %v", mode, err)
			}
		}
		works(t)
		if r := stream.Stop(); r.Err != nil {
			t.Error(r.Err)
		}
	})
}

// labAgents are a lab's agents, as the coelan command sees those of a cluster.
type labAgents struct{ *lab.Lab }

func (l labAgents) Nodes(context.Context) ([]string, error) { return nil, errors.New("nobody asks") }

func (l labAgents) Query(ctx context.Context, node, path string, body, out any) error {
	i := slices.IndexFunc(l.Lab.Nodes, func(n *lab.Node) bool { return n.Name == node })
	var question io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		question = bytes.NewReader(data)
	}
	var answer bytes.Buffer
	if err := localapi.Query(ctx, "agent", l.Lab.Nodes[i].Config().AgentSocket, path, question, &answer); err != nil {
		return err
	}
	return json.Unmarshal(answer.Bytes(), out)
}

// Answering finds the Port.
func (l labAgents) Answering(ctx context.Context, f agentapi.TracedFloatingIP) (string, error) {
	for _, n := range l.Lab.Nodes {
		ports, err := diagnose.Ports(ctx, l, n.Name)
		if err != nil {
			return "", err
		}
		for _, p := range ports {
			if p.PortKey() == f.Port {
				return n.Name, nil
			}
		}
	}
	return "", nil
}

// toldOfServices asks as `coelan get services` and `coelan trace` do.
func toldOfServices(t *testing.T, w *world) {
	ctx, agents := t.Context(), labAgents{w.Lab}
	w.API.SetService(labService("empty", 12, corev1.ServicePort{Port: 80, Protocol: corev1.ProtocolTCP}))
	s := labService("cannot", 13, corev1.ServicePort{Port: 80, Protocol: corev1.ProtocolTCP})
	s.Spec.ExternalIPs = []string{"127.0.0.1"}
	w.API.SetService(s)
	var list []agentapi.ServiceInfo
	find := func(name string) agentapi.ServiceInfo {
		i := slices.IndexFunc(list, func(s agentapi.ServiceInfo) bool { return s.Namespace == "lab" && s.Name == name })
		if i < 0 {
			return agentapi.ServiceInfo{}
		}
		return list[i]
	}
	becomes(t, "get services", func(ctx context.Context) (err error) {
		if list, err = diagnose.Services(ctx, agents, "n1"); err != nil {
			return err
		}
		web, empty, cannot := find("web"), find("empty"), find("cannot")
		endpoint := netip.AddrPortFrom(w.c.Address(lab.IPv4), 8080)
		switch {
		case len(web.Ports) != 2 || !slices.Equal(web.Ports[0].Endpoints, []netip.AddrPort{endpoint}) || web.Router != "default" || len(web.Problems) > 0:
			return fmt.Errorf("web: %+v", web)
		case len(empty.Ports) != 2 || !empty.Ports[0].Refused:
			return fmt.Errorf("empty: %+v", empty)
		case len(cannot.Problems) != 1 || !strings.Contains(cannot.Problems[0], "127.0.0.1"):
			return fmt.Errorf("cannot: %+v", cannot)
		}
		return nil
	})
	for f := range lab.Dual.Each {
		packet := diagnose.Packet{
			Node: "n1", From: "lab/a", Source: w.a.Address(f), Destination: vip[f], Protocol: "tcp", SourcePort: 49152, DestinationPort: 80,
		}
		way, err := diagnose.Trace(ctx, agents, packet)
		if err != nil || len(way) != 2 {
			t.Fatalf("%s: %d nodes, %v", f, len(way), err)
		}
		want := agentapi.TracedService{Name: "lab/web", Endpoint: netip.AddrPortFrom(w.c.Address(f), 8080), Endpoints: 1}
		if way[0].Service == nil || *way[0].Service != want || way[1].Service != nil {
			t.Errorf("%s: trace names %+v, want %+v", f, way[0].Service, want)
		}
		if o := way[1].Outcome; o.Kind != "pod" || o.Pod != "lab/c/eth0" {
			t.Errorf("%s: the packet ends at %+v", f, o)
		}
		packet.Destination = map[lab.Family]netip.Addr{
			lab.IPv4: netip.MustParseAddr("10.96.0.12"), lab.IPv6: netip.MustParseAddr("fd00:10:96::12"),
		}[f]
		way, err = diagnose.Trace(ctx, agents, packet)
		if err != nil || len(way) != 1 || way[0].Service == nil || !way[0].Service.Refused || way[0].Outcome.Kind != "gateway" {
			t.Errorf("%s: without endpoints: %+v, %v", f, way, err)
		}
	}
}

// nameUDP answers each UDP packet with a name until the test ends.
func nameUDP(t *testing.T, h *lab.Host, at netip.AddrPort, name string) {
	t.Helper()
	answerUDP(t, h, at, func(net.Addr) string { return name })
}

// answerUDP answers each UDP packet with what the function makes of its sender, until the
// test ends.
func answerUDP(t *testing.T, h *lab.Host, at netip.AddrPort, answer func(from net.Addr) string) {
	t.Helper()
	var c net.PacketConn
	err := h.Do(func() (err error) { c, err = net.ListenPacket("udp", at.String()); return err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		b := make([]byte, 100)
		for {
			_, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo([]byte(answer(from)), from)
		}
	}()
}

// asker sends UDP packets from one port.
type asker struct{ net.Conn }

func newAsker(t *testing.T, h *lab.Host, to netip.AddrPort) asker {
	t.Helper()
	var c net.Conn
	if err := h.Do(func() (err error) { c, err = net.Dial("udp", to.String()); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return asker{c}
}

// says sends until want answers, with a pause that is too short for a connection to
// be forgotten by itself.
func (a asker) says(want string) func(context.Context) error {
	return func(context.Context) error {
		if _, err := a.Write([]byte("?")); err != nil {
			return err
		}
		_ = a.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		b := make([]byte, 100)
		n, err := a.Read(b)
		if err != nil || string(b[:n]) != want {
			return fmt.Errorf("%q answers, %w", b[:n], errors.Join(err, errors.New("not "+want)))
		}
		return nil
	}
}

// udpMoves has a client that never pauses get to the endpoint that is left, and to a node
// port that comes late.
func udpMoves(t *testing.T, w *world) {
	port := corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP}
	w.API.SetService(labService("dns", 20, port))
	for f := range lab.Dual.Each {
		nameUDP(t, w.b.Host, netip.AddrPortFrom(w.b.Address(f), 5353), "b")
		nameUDP(t, w.c.Host, netip.AddrPortFrom(w.c.Address(f), 5353), "c")
		at := map[lab.Family]netip.AddrPort{
			lab.IPv4: netip.MustParseAddrPort("10.96.0.20:53"), lab.IPv6: netip.MustParseAddrPort("[fd00:10:96::20]:53"),
		}[f]
		w.API.SetEndpointSlice(labSlice("dns", f, corev1.ProtocolUDP, 5353, w.b))
		pod, host := newAsker(t, w.a.Host, at), newAsker(t, w.n1.Host, at)
		becomes(t, f.String()+" pod to b", pod.says("b"))
		becomes(t, f.String()+" host to b", host.says("b"))
		w.API.SetEndpointSlice(labSlice("dns", f, corev1.ProtocolUDP, 5353, w.c))
		becomes(t, f.String()+" pod to c", pod.says("c"))
		becomes(t, f.String()+" host to c", host.says("c"))
		w.API.SetEndpointSlice(labSlice("dns", f, corev1.ProtocolUDP, 5353))
		time.Sleep(200 * time.Millisecond)
		w.API.SetEndpointSlice(labSlice("dns", f, corev1.ProtocolUDP, 5353, w.b))
		becomes(t, f.String()+" pod to b again", pod.says("b"))
	}
	s := labService("dns", 20, port)
	s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30053
	var outside []asker
	for f := range lab.Dual.Each {
		a := newAsker(t, w.Outside, netip.AddrPortFrom(w.n1.Address(f), 30053))
		for range 5 {
			_, _ = a.Write([]byte("too early"))
		}
		outside = append(outside, a)
	}
	w.API.SetService(s)
	for i, f := range []lab.Family{lab.IPv4, lab.IPv6} {
		becomes(t, f.String()+" outside to b", outside[i].says("b"))
	}
}

// kernelHearsFirst has the kernel know of an endpoint before the bridge does. What a process sends
// meanwhile is lost, and must not keep it from the endpoint.
func kernelHearsFirst(t *testing.T, w *world) {
	ctx := t.Context()
	w.API.SetService(labService("late", 21, corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP}))
	at := map[lab.Family]netip.AddrPort{
		lab.IPv4: netip.MustParseAddrPort("10.96.0.21:53"), lab.IPv6: netip.MustParseAddrPort("[fd00:10:96::21]:53"),
	}
	hosts := map[lab.Family]asker{}
	for f := range lab.Dual.Each {
		hosts[f] = newAsker(t, w.n1.Host, at[f])
		becomes(t, f.String()+": refused", func(context.Context) error {
			if err := hosts[f].says("b")(ctx); !errors.Is(err, unix.ECONNREFUSED) {
				return err
			}
			return nil
		})
	}
	w.n1.StopAgent()
	for f := range lab.Dual.Each {
		set := map[lab.Family]string{lab.IPv4: "reject4", lab.IPv6: "reject6"}[f]
		run(t, w.n1.Host, "nft", fmt.Sprintf("delete element inet coelan-services %s { %s . udp . 53 }", set, at[f].Addr()))
		if err := hosts[f].says("b")(ctx); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v, not lost", f, err)
		}
	}
	if err := w.n1.StartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	for f := range lab.Dual.Each {
		nameUDP(t, w.b.Host, netip.AddrPortFrom(w.b.Address(f), 5354), "b")
		w.API.SetEndpointSlice(labSlice("late", f, corev1.ProtocolUDP, 5354, w.b))
		becomes(t, f.String(), hosts[f].says("b"))
	}
}

// kernelAnswers has the kernel send a pod the answer to a packet that it was given to refuse and
// sent back instead. The pod hears it, and is led to the endpoint directly all the same.
func kernelAnswers(t *testing.T, w *world) {
	ctx := t.Context()
	w.API.SetService(labService("seen", 22, corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP}))
	for f := range lab.Dual.Each {
		at := map[lab.Family]netip.AddrPort{
			lab.IPv4: netip.MustParseAddrPort("10.96.0.22:53"), lab.IPv6: netip.MustParseAddrPort("[fd00:10:96::22]:53"),
		}[f]
		answerUDP(t, w.b.Host, netip.AddrPortFrom(w.b.Address(f), 5355), func(from net.Addr) string {
			return netip.MustParseAddrPort(from.String()).Addr().String()
		})
		pod := newAsker(t, w.a.Host, at)
		kernel, err := probe.ListenForeign(ctx, w.n1, at)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = kernel.Close() }()
		if _, err := kernel.WriteTo([]byte("kernel"), pod.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		_ = pod.SetReadDeadline(time.Now().Add(5 * time.Second))
		b := make([]byte, 100)
		if n, err := pod.Read(b); err != nil || string(b[:n]) != "kernel" {
			t.Errorf("%s: the pod hears %q, %v", f, b[:n], err)
		}
		w.API.SetEndpointSlice(labSlice("seen", f, corev1.ProtocolUDP, 5355, w.b))
		becomes(t, f.String(), pod.says(w.a.Address(f).String()))
	}
}

// nodePortOfProcess has a process of the host keep its port, until it ends.
func nodePortOfProcess(t *testing.T, w *world) {
	var l net.Listener
	if err := w.n1.Do(func() (err error) { l, err = net.Listen("tcp", ":30081"); return err }); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "process\n")
			_ = c.Close()
		}
	}()
	s := labService("taken", 30, corev1.ServicePort{Port: 80, Protocol: corev1.ProtocolTCP, NodePort: 30081})
	s.Spec.Type = corev1.ServiceTypeNodePort
	w.API.SetService(s)
	w.API.SetEndpointSlice(labSlice("taken", lab.IPv4, corev1.ProtocolTCP, 8080, w.c))
	line := func(n *lab.Node) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			c, err := probe.Dial(ctx, w.Outside, netip.AddrPortFrom(n.Address(lab.IPv4), 30081))
			if err != nil {
				return "", err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_ = c.CloseWrite()
			text, err := bufio.NewReader(c).ReadString('\n')
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return text, err
		}
	}
	is := func(n *lab.Node, process bool) func(context.Context) error {
		return func(ctx context.Context) error {
			text, err := line(n)(ctx)
			if err == nil && (text == "process\n") != process {
				err = fmt.Errorf("%q answers", text)
			}
			return err
		}
	}
	becomes(t, "the other node", is(w.n2, false))
	becomes(t, "the node with the process", is(w.n1, true))
	becomes(t, "an Event", func(context.Context) error {
		if !slices.ContainsFunc(w.API.Events(), func(e corev1.Event) bool {
			return e.InvolvedObject.Kind == "Service" && e.InvolvedObject.Name == "taken" && e.Reason == "InUse" && strings.Contains(e.Message, "n1")
		}) {
			return errors.New("there is none")
		}
		return nil
	})
	_ = l.Close()
	becomes(t, "the process has ended", is(w.n1, false))
}

// healthChecks asks as a load balancer does.
func healthChecks(t *testing.T, w *world) {
	s := labService("local", 40, corev1.ServicePort{Port: 80, Protocol: corev1.ProtocolTCP, NodePort: 30082})
	s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, 32000
	w.API.SetService(s)
	w.API.SetEndpointSlice(labSlice("local", lab.IPv4, corev1.ProtocolTCP, 8080, w.c))
	ask := func(n *lab.Node, port int, path string) (int, map[string]any, error) {
		var resp *http.Response
		client := &http.Client{Timeout: time.Second, Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, at string) (net.Conn, error) {
				return probe.Dial(ctx, w.Outside, netip.MustParseAddrPort(at))
			},
		}}
		resp, err := client.Get(fmt.Sprintf("http://%s%s", netip.AddrPortFrom(n.Address(lab.IPv4), uint16(port)), path))
		if err != nil {
			return 0, nil, err
		}
		defer resp.Body.Close()
		var body map[string]any
		err = json.NewDecoder(resp.Body).Decode(&body)
		return resp.StatusCode, body, err
	}
	for n, endpoints := range map[*lab.Node]float64{w.n1: 0, w.n2: 1} {
		want := map[float64]int{0: http.StatusServiceUnavailable, 1: http.StatusOK}[endpoints]
		becomes(t, n.Name, func(context.Context) error {
			code, body, err := ask(n, 32000, "/")
			if err == nil && (code != want || body["localEndpoints"] != endpoints) {
				err = fmt.Errorf("status %d, %v", code, body)
			}
			return err
		})
		if code, _, err := ask(n, 10256, "/healthz"); code != http.StatusOK || err != nil {
			t.Errorf("%s: /healthz: %d, %v", n.Name, code, err)
		}
	}
}
