// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/sandbox"
)

// requestTimeout bounds one request. None needs more than a second, not even on a busy machine, but
// for a packet that was lost and is sent again.
const requestTimeout = 5 * time.Second

// get asks a web server and returns its answer.
func get(ctx context.Context, from place, server netip.AddrPort, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client := http.Client{Transport: transport(from)}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server.String()+path, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}

// transport makes a connection from the place for each request.
func transport(from place) *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = from.Do(func() (err error) {
				conn, err = new(net.Dialer).DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}
}

// clientOf is the address of the client as the server sees it.
func clientOf(ctx context.Context, from place, server netip.AddrPort) (netip.Addr, error) {
	text, err := get(ctx, from, server, "/clientip")
	if err != nil {
		return netip.Addr{}, err
	}
	client, err := netip.ParseAddrPort(strings.TrimSpace(text))
	return client.Addr().Unmap(), err
}

// way is from one place to a server, which must see one of the addresses.
type way struct {
	name   string
	from   place
	server netip.AddrPort
	seen   netip.Addr // invalid: whatever
	// service says that a Service is on the way, or something else of which nothing tells when all
	// nodes know it.
	service bool
}

func testReach(t *testing.T) { checkWays(t, ways) }

// checkWays checks the ways of each family.
func checkWays(t *testing.T, ways func(context.Context, *testing.T, family) []way) {
	t.Helper()
	for _, f := range families {
		t.Run(string(f), func(t *testing.T) {
			ctx := within(t, 3*time.Minute)
			for _, w := range ways(ctx, t, f) {
				t.Run(w.name, func(t *testing.T) { w.check(ctx, t) })
			}
		})
	}
}

func (w way) check(ctx context.Context, t *testing.T) {
	t.Helper()
	ask := func() error {
		seen, err := clientOf(ctx, w.from, w.server)
		if err == nil && w.seen.IsValid() && seen != w.seen {
			err = fmt.Errorf("%s sees the client %s, want %s", w.server, seen, w.seen)
		}
		return err
	}
	err := ask()
	if err != nil && w.service {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		err = eventually(ctx, ask)
	}
	if err != nil {
		t.Errorf("from %s: %v", w.from.name, err)
	}
}

func ways(ctx context.Context, t *testing.T, f family) []way {
	t.Helper()
	pods := map[string]place{}
	for _, name := range podNames {
		pods[name] = world.pod(ctx, t, name)
		if strings.Contains(name, "/") {
			pods[name+" inside"] = world.tenant(ctx, t, name)
		}
	}
	nodes := map[string]place{}
	for _, name := range world.Machines() {
		nodes[name] = world.machine(ctx, t, name)
	}
	port := func(p place, number uint16) netip.AddrPort { return netip.AddrPortFrom(p.address(f), number) }
	service := func(name string) netip.AddrPort {
		return netip.AddrPortFrom(world.serviceAddress(ctx, t, name, f), 80)
	}
	client1, client2, web1, web2, host1 := pods["client1"], pods["client2"], pods["web1"], pods["web2"], pods["host1"]
	red := pods["red/client1 inside"]
	list := []way{
		{name: "pod to pod, same node", from: client1, server: port(web1, 8080), seen: client1.address(f)},
		{name: "pod to pod, other node", from: client1, server: port(web2, 8080), seen: client1.address(f)},
		{name: "pod to its node", from: client1, server: port(host1, 8082), seen: client1.address(f)},
		{name: "pod to another node", from: client2, server: port(host1, 8082), seen: nodes[worker2].address(f)},
		{name: "node to its pod", from: nodes[worker1], server: port(web1, 8080), seen: world.nodeAmongPods(ctx, t, worker1, f)},
		{name: "node to another node's pod", from: nodes[worker2], server: port(web1, 8080), seen: world.nodeAmongPods(ctx, t, worker2, f)},
		{name: "host-network pod to pod", from: host1, server: port(web2, 8080), seen: world.nodeAmongPods(ctx, t, worker1, f)},
		{name: "pod to the outside", from: client1, server: netip.AddrPortFrom(outside(f), 80), seen: nodes[worker1].address(f)},
		{name: "Service, endpoint on the same node", from: client1, server: service("web1"), seen: client1.address(f), service: true},
		{name: "Service, endpoint on another node", from: client1, server: service("web2"), seen: client1.address(f), service: true},
		{name: "Service, endpoint is the client", from: web1, server: service("web1"), service: true},
		{name: "Service, client is a node", from: nodes[worker2], server: service("web1"), service: true},
		{name: "NodePort of the endpoint's node", from: nodes["cp"], server: port(nodes[worker1], 30080), service: true},
		{name: "NodePort of another node", from: nodes["cp"], server: port(nodes[worker2], 30080), service: true},
		{name: "NodePort from the outside", from: nodes["fabric"], server: port(nodes[worker2], 30080), service: true},
		{name: "NodePort from a pod", from: client2, server: port(nodes[worker1], 30080), service: true},
		{name: "tenant, same node", from: red, server: port(pods["red/web1 inside"], 8080), seen: red.address(f)},
		{name: "tenant, other node", from: red, server: port(pods["red/web2 inside"], 8080), seen: red.address(f)},
		{name: "other tenant, other node", from: pods["blue/shop1 inside"], server: port(pods["blue/shop2 inside"], 8080), seen: pods["blue/shop1 inside"].address(f)},
		{name: "node to its tenant's pod", from: nodes[worker1], server: port(pods["red/web1"], 8080)},
		{name: "tenant's pod to its node", from: red, server: port(host1, 8082), seen: pods["red/client1"].address(f)},
		{name: "tenant's pod to the outside", from: red, server: netip.AddrPortFrom(outside(f), 80), seen: nodes[worker1].address(f)},
		{name: "tenant's pod to a Service of all, same node", from: red, server: service("web1"), service: true},
		{name: "tenant's pod to a Service of all, other node", from: red, server: service("web2"), service: true},
		{name: "hostPort from another node", from: nodes[worker2], server: port(nodes[worker1], 8090), seen: nodes[worker2].address(f)},
		{name: "hostPort from a pod of another node", from: client2, server: port(nodes[worker1], 8090), seen: nodes[worker2].address(f)},
	}
	if backend == sandbox.NeutronBackend {
		// Nothing tells when the router leads what leaves the cluster to the sender's node.
		for i := range list {
			list[i].service = true
		}
	}
	return list
}

// testNames resolves names of Services, of the cluster and of the outside, from a
// pod on each worker.
func testNames(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	for _, client := range []string{"client1", "client2"} {
		for _, f := range families {
			kind := map[family]string{ipv4: "A", ipv6: "AAAA"}[f]
			for name, want := range map[string]netip.Addr{
				"web":                        world.serviceAddress(ctx, t, "web", f),
				"web1.e2e":                   world.serviceAddress(ctx, t, "web1", f),
				"web2.e2e.svc.cluster.local": world.serviceAddress(ctx, t, "web2", f),
				"outside.test":               outside(f),
			} {
				err := eventually(ctx, func() error {
					out, err := world.Kubectl(ctx, "-n", namespace, "exec", client, "--", "dig", "+short", "+search", name, kind)
					if err == nil && strings.TrimSpace(string(out)) != want.String() {
						err = fmt.Errorf("%s is %q, want %s", name, out, want)
					}
					return err
				})
				if err != nil {
					t.Errorf("%s: %v", client, err)
				}
			}
		}
	}
}

// testKubectl uses what goes from the API server to kubelets and pods.
func testKubectl(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	for _, name := range []string{"web1", "web2", "host1"} {
		out, err := world.Kubectl(ctx, "-n", namespace, "logs", name)
		if err != nil || !strings.Contains(string(out), "Started HTTP server") {
			t.Errorf("logs of %s: %q, %v", name, out, err)
		}
	}
	out, err := world.Kubectl(ctx, "-n", namespace, "exec", "web2", "--", "hostname")
	if err != nil || strings.TrimSpace(string(out)) != "web2" {
		t.Errorf("exec: %q, %v", out, err)
	}
	// The API server is in no pod: it reaches pods as a node does.
	out, err = world.Kubectl(ctx, "get", "--raw", "/api/v1/namespaces/e2e/pods/web2:8080/proxy/hostname")
	if err != nil || strings.TrimSpace(string(out)) != "web2" {
		t.Errorf("proxy to pod: %q, %v", out, err)
	}
}
