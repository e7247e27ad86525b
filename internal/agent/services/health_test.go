// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/internal/intent"
)

// freePort is one that is not in use now.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// reply is what a server has answered.
type reply struct {
	code   int
	header http.Header
	body   map[string]any
}

// get asks until there is an answer.
func get(t *testing.T, port uint16, path string) reply {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var r reply
	eventually(t, func() string {
		resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			return err.Error()
		}
		r = reply{code: resp.StatusCode, header: resp.Header}
		if err := json.Unmarshal(data, &r.body); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		return ""
	})
	return r
}

func TestHealthCheck(t *testing.T) {
	w := newWorld(t, "", nil)
	w.hearNetworks()
	w.listed()
	<-w.Ready()
	port := freePort(t)
	check := func(endpoints int, port uint16) intent.NodeService {
		return intent.NodeService{Namespace: "shop", Name: "web", ExternalLocal: true, HealthCheckNodePort: port, LocalEndpoints: endpoints}
	}
	expect := func(code, endpoints int, healthy bool) {
		t.Helper()
		r := get(t, port, "/")
		want := map[string]any{
			"service":        map[string]any{"namespace": "shop", "name": "web"},
			"localEndpoints": float64(endpoints), "serviceProxyHealthy": healthy,
		}
		if diff := cmp.Diff(want, r.body); diff != "" {
			t.Errorf("body (-want +got):\n%s", diff)
		}
		if r.code != code {
			t.Errorf("status %d, want %d", r.code, code)
		}
		for name, want := range map[string]string{
			"Content-Type": "application/json", "X-Content-Type-Options": "nosniff", "X-Load-Balancing-Endpoint-Weight": fmt.Sprint(endpoints),
		} {
			if got := r.header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	}
	w.health.set(check(2, port))
	expect(http.StatusOK, 2, true)
	w.health.set(check(0, port))
	expect(http.StatusServiceUnavailable, 0, true)
	w.health.set(check(1, port))
	w.mu.Lock()
	w.unhealthy = errors.New("the switch does not answer")
	w.mu.Unlock()
	expect(http.StatusServiceUnavailable, 1, false)
	// A Service without a local policy has no check.
	gone := check(1, port)
	gone.ExternalLocal = false
	w.health.set(gone)
	eventually(t, func() string {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = c.Close()
			return "the check of a Service without a local policy still answers"
		}
		return ""
	})
}

// A port that a process has is served as soon as that ends.
func TestHealthCheckPortInUse(t *testing.T) {
	w := newWorld(t, "", nil)
	w.hearNetworks()
	w.listed()
	<-w.Ready()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	w.health.set(intent.NodeService{Namespace: "shop", Name: "web", ExternalLocal: true, HealthCheckNodePort: port, LocalEndpoints: 1})
	eventually(t, func() string {
		if len(w.health.problems()) == 0 {
			return "a port in use is no problem"
		}
		return ""
	})
	_ = l.Close()
	if r := get(t, port, "/"); r.code != http.StatusOK {
		t.Errorf("status %d", r.code)
	}
	eventually(t, func() string {
		if p := w.ServiceProblems(); len(p) > 0 {
			return fmt.Sprint(p)
		}
		return ""
	})
}

func TestHealthz(t *testing.T) {
	port := freePort(t)
	w := newWorld(t, "", func(o *Options) { o.Config.HealthzBindAddress = fmt.Sprintf("127.0.0.1:%d", port) })
	done := make(chan error, 1)
	go func() { done <- w.ServeHealthz(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	now := metav1.Now()
	leaving := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", DeletionTimestamp: &now}}
	for _, tc := range []struct {
		name           string
		node           *corev1.Node
		err            error
		healthz, livez int
	}{
		{"well", node, nil, 200, 200},
		{"about to go", leaving, nil, 503, 200},
		{"without a switch", node, errors.New("no switch"), 503, 503},
	} {
		w.SetNode(tc.node)
		w.mu.Lock()
		w.unhealthy = tc.err
		w.mu.Unlock()
		r := get(t, port, "/healthz")
		if _, ok := r.body["nodeEligible"].(bool); r.code != tc.healthz || !ok || r.body["lastUpdated"] == nil || r.body["currentTime"] == nil {
			t.Errorf("%s: /healthz says %d %v, want %d", tc.name, r.code, r.body, tc.healthz)
		}
		if r := get(t, port, "/livez"); r.code != tc.livez || r.body["nodeEligible"] != nil {
			t.Errorf("%s: /livez says %d %v, want %d", tc.name, r.code, r.body, tc.livez)
		}
	}
}

// Sockets that wait for clients are found, and those of clients are not.
func TestListeners(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	u, err := net.ListenPacket("udp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	connected, err := net.Dial("udp", u.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	list, err := listeners()
	if err != nil {
		t.Fatal(err)
	}
	found := map[listener]bool{}
	for _, f := range list {
		found[f] = true
	}
	at := func(p intent.Protocol, a net.Addr) listener {
		ap := netip.MustParseAddrPort(a.String())
		return listener{p, ap.Addr(), ap.Port()}
	}
	for name, tc := range map[string]struct {
		l    listener
		want bool
	}{
		"TCP listener": {at(intent.TCP, l.Addr()), true}, "TCP client": {at(intent.TCP, c.LocalAddr()), false},
		"UDP server": {at(intent.UDP, u.LocalAddr()), true}, "UDP client": {at(intent.UDP, connected.LocalAddr()), false},
	} {
		if found[tc.l] != tc.want {
			t.Errorf("%s %v: found %v, want %v", name, tc.l, found[tc.l], tc.want)
		}
	}
}

func TestWhoseNodePorts(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	for _, tc := range []struct {
		at   []netip.Prefix
		addr netip.Addr
		want bool
	}{
		{nil, netip.IPv4Unspecified(), true},
		{nil, netip.IPv6Unspecified(), true},
		{nil, addr("192.0.2.1"), true},
		{nil, addr("127.0.0.1"), false},
		{nil, addr("::1"), false},
		{[]netip.Prefix{prefix("192.0.2.0/24")}, addr("192.0.2.1"), true},
		{[]netip.Prefix{prefix("192.0.2.0/24")}, addr("198.51.100.1"), false},
		{[]netip.Prefix{prefix("192.0.2.0/24")}, netip.IPv4Unspecified(), true},
	} {
		if got := newNodePorts(tc.at, nil).concerns(tc.addr); got != tc.want {
			t.Errorf("node ports at %v, a process at %v: %v, want %v", tc.at, tc.addr, got, tc.want)
		}
	}
}

// A port that is given back is checked anew when a Service asks for it again.
func TestNodePortsAreReleased(t *testing.T) {
	asked := 0
	n := newNodePorts(nil, func() ([]listener, error) { asked++; return nil, nil })
	of := func(ports ...uint16) []intent.Service {
		var v intent.Service
		for _, p := range ports {
			v.Ports = append(v.Ports, intent.ServicePort{Protocol: intent.TCP, NodePort: p})
		}
		return []intent.Service{v}
	}
	for _, p := range []uint16{1, 2, 1} {
		n.takenBy(nodePort{intent.TCP, p})
	}
	n.forgetSnapshot()
	n.takenBy(nodePort{intent.TCP, 1})
	if asked != 1 {
		t.Errorf("the kernel was asked %d times, want once for a batch", asked)
	}
	n.release(of(1, 2), of(2))
	n.takenBy(nodePort{intent.TCP, 2})
	if asked != 1 {
		t.Error("the kernel was asked about a port that a Service has")
	}
	n.takenBy(nodePort{intent.TCP, 1})
	if asked != 2 {
		t.Error("the kernel was not asked about a port that comes again")
	}
	failing := newNodePorts(nil, func() ([]listener, error) { return nil, errors.New("no sock_diag") })
	if failing.takenBy(nodePort{intent.TCP, 1}) {
		t.Error("a port is taken because the kernel does not tell")
	}
}
