// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"coelan.io/coelan/internal/sandbox"
)

// TestNeutron is the backend neutron with a real Neutron, which other programs use as well:
// BACKEND=neutron make e2e RUN='^TestNeutron$'. TestBackend has what it shares with others.
func TestNeutron(t *testing.T) {
	if backend != sandbox.NeutronBackend {
		t.Skip("BACKEND=neutron chooses the backend that this is about")
	}
	inOrder(t, []step{
		{"reach", testReach},
		{"command", testNeutronCommand},
		{"variables of Services", testServiceVariables},
		{"endpoints of Services", testNeutronServices},
		{"tenants", testTenants},
		{"several interfaces", testNeutronInterfaces},
		{"project of a namespace", testNeutronProject},
		{"ports that are ready", testNeutronReadyPorts},
		{"policies", testBackendPolicies},
		{"machine of OpenStack", testOpenStackMachine},
		{"Neutron away", testNeutronAway},
		{"controllers killed", testNeutronControllers},
		{"reboot", testNeutronReboot},
		{"node that is a machine", testMachineNode},
	})
}

// The ports of OpenStack's APIs.
const (
	neutronAPI = "9696"
	octaviaAPI = "9876"
)

// openStackEndpoint is where an API of OpenStack is, as the control plane's node reaches it.
func openStackEndpoint(ctx context.Context, api string) (string, error) {
	node, err := world.Exec(ctx, control, "sh", "-c", "sed -n 's/^bind_host = //p' /etc/neutron/neutron.conf")
	return "http://" + net.JoinHostPort(strings.TrimSpace(string(node)), api), err
}

// openStack runs OpenStack's own command on the control plane's node, about what Neutron has.
func openStack(ctx context.Context, args ...string) ([]byte, error) {
	return openStackOf(ctx, neutronAPI, args...)
}

func openStackOf(ctx context.Context, api string, args ...string) ([]byte, error) {
	endpoint, err := openStackEndpoint(ctx, api)
	if err != nil {
		return nil, err
	}
	out, err := world.Exec(ctx, control, append([]string{"openstack", "--os-auth-type", "none", "--os-endpoint", endpoint}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("openstack %v: %w", args, err)
	}
	return out, nil
}

// openStackPort is a port as `openstack port list --long` and `port create` have it.
type openStackPort struct {
	ID     string `json:"id"`
	Name   string
	MAC    string `json:"mac_address"`
	Status string
	Fixed  []openStackAddress `json:"fixed_ips"`
	// Listed are those of a list, in which columns have titles for names.
	Listed []openStackAddress `json:"Fixed IP Addresses"`
	Owner  string             `json:"Device Owner"`
}

// openStackAddress is a port's. Tenants may have the same ones, in subnets of their own.
type openStackAddress struct {
	Subnet  string     `json:"subnet_id"`
	Address netip.Addr `json:"ip_address"`
}

func openStackPorts(ctx context.Context, args ...string) (ports []openStackPort, err error) {
	out, err := openStack(ctx, append([]string{"port", "list", "--long", "-f", "json"}, args...)...)
	if err != nil {
		return nil, err
	}
	return ports, json.Unmarshal(out, &ports)
}

const machineNetwork = `
apiVersion: coelan.io/v1alpha1
kind: Network
metadata: {name: cloud}
spec:
  role: Primary
  router: default
  namespaceSelector: {matchLabels: {cloud: "true"}}
  subnets:
    - {cidr: 10.60.0.0/24, ranges: [{from: 10.60.0.2, to: 10.60.0.127}]}
    - {cidr: "fd00:60::/64", ranges: [{from: "fd00:60::2", to: "fd00:60::ffff"}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: cloud, labels: {cloud: "true"}}
`

// makeMachineNetwork makes the Network cloud and its namespace, for as long as the test runs.
func makeMachineNetwork(ctx context.Context, t *testing.T) {
	t.Helper()
	apply(ctx, t, machineNetwork)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		remove(ctx, t, "namespace", "cloud")
		remove(ctx, t, "networks.coelan.io", "cloud")
	})
}

// testOpenStackMachine has OpenStack make a port of a Network for a machine of its own, as Nova
// does. The machine and a pod of that Network reach each other, both ways and through the router.
// What is the cluster's goes; what is OpenStack's stays.
func testOpenStackMachine(t *testing.T) {
	ctx := within(t, 5*time.Minute)
	makeMachineNetwork(ctx, t)
	clean := func(undo func(context.Context)) { t.Cleanup(func() { undo(context.WithoutCancel(ctx)) }) }
	makePod(ctx, t, webServer("cloud/web", worker1))
	if err := world.waitReady(ctx, "cloud/web"); err != nil {
		t.Fatal(err)
	}
	call := func(args ...string) []byte {
		t.Helper()
		out, err := openStack(ctx, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	call("security", "group", "create", "machines")
	clean(func(ctx context.Context) { _, _ = openStack(ctx, "security", "group", "delete", "machines") })
	for _, f := range families {
		call("security", "group", "rule", "create", "--ingress", "--protocol", "tcp", "--ethertype", string(f), "machines")
	}
	var port openStackPort
	if err := json.Unmarshal(call("port", "create", "--network", "net-cloud", "--host", worker2, "--security-group", "machines",
		"-f", "json", "machine"), &port); err != nil {
		t.Fatal(err)
	}
	clean(func(ctx context.Context) { _, _ = openStack(ctx, "port", "delete", "machine") })
	machine := plugMachine(ctx, t, worker2, "machine", port)
	pod, near := world.pod(ctx, t, "cloud/web"), world.pod(ctx, t, "client2")
	for _, f := range families {
		at := serveClients(t, machine, f)
		for _, w := range []way{
			{name: "machine to pod", from: machine, server: netip.AddrPortFrom(pod.address(f), webPort), seen: machine.address(f)},
			{name: "machine to a pod of another Network", from: machine, server: netip.AddrPortFrom(world.pod(ctx, t, "web1").address(f), webPort), seen: machine.address(f)},
			{name: "pod to machine", from: pod, server: at, seen: pod.address(f)},
			{name: "pod of another Network to machine", from: near, server: at, seen: near.address(f)},
		} {
			w.service = true // nothing tells when all nodes know the machine
			t.Run(fmt.Sprintf("%s %s", w.name, f), func(t *testing.T) { w.check(ctx, t) })
		}
	}
	removePods(ctx, t, "cloud/web")
	call("port", "show", "machine")
}

// plugMachine makes a network namespace of a node what a machine with that port is. Gateways of its
// subnets have the first address.
func plugMachine(ctx context.Context, t *testing.T, node, name string, port openStackPort) place {
	t.Helper()
	p := place{name: name, netns: fmt.Sprintf("/proc/%d/root/run/netns/%s", world.PID(node), name)}
	link := name + "0"
	script := []string{
		"ip netns add " + name,
		"ip link add " + link + " type veth peer name eth0 netns " + name,
		"ip -n " + name + " link set eth0 address " + port.MAC + " mtu 1400",
		"ip netns exec " + name + " ethtool -K eth0 tx off >/dev/null",
		"ip -n " + name + " link set lo up", "ip -n " + name + " link set eth0 up", "ip link set " + link + " up",
	}
	for _, fixed := range port.Fixed {
		bits := 24
		if fixed.Address.Is6() {
			bits = 64
		}
		subnet := netip.PrefixFrom(fixed.Address, bits).Masked()
		p.addresses = append(p.addresses, fixed.Address)
		script = append(script, fmt.Sprintf("ip -n %s addr add %s/%d dev eth0 nodad", name, fixed.Address, bits),
			fmt.Sprintf("ip -n %s route add default via %s", name, subnet.Addr().Next()))
	}
	script = append(script, fmt.Sprintf("ovs-vsctl add-port br-int %s -- set interface %s external_ids:iface-id=%s", link, link, port.ID))
	t.Cleanup(func() {
		undo := fmt.Sprintf("ovs-vsctl --if-exists del-port %s; ip link del %s; ip netns del %s", link, link, name)
		if out, err := world.Exec(context.WithoutCancel(ctx), node, "sh", "-c", undo); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	if out, err := world.Exec(ctx, node, "sh", "-c", strings.Join(script, " && ")); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return p
}

// serveClients runs a web server in a place that answers with the client's address.
func serveClients(t *testing.T, at place, f family) netip.AddrPort {
	t.Helper()
	where := netip.AddrPortFrom(at.address(f), webPort)
	var listener net.Listener
	if err := at.Do(func() (err error) {
		listener, err = net.Listen("tcp", where.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.RemoteAddr)
	})}
	t.Cleanup(func() { server.Close() })
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("web server at %s: %v", where, err)
		}
	}()
	return where
}

// awaitReadyPorts returns when each worker has a port for a pod to come.
func awaitReadyPorts(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, node := range []string{worker1, worker2} {
		if err := eventually(ctx, func() error {
			ports, err := openStackPorts(ctx, "--device-id", node)
			if err == nil && !slices.ContainsFunc(ports, func(p openStackPort) bool { return p.Status == "DOWN" }) {
				err = fmt.Errorf("%s has no port that is ready: %+v", node, ports)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// testNeutronAway stops neutron-server: running pods notice nothing, and others start. The coelan
// command says that it is away.
func testNeutronAway(t *testing.T) {
	ctx := within(t, 5*time.Minute)
	awaitReadyPorts(ctx, t)
	tr := startTraffic(ctx, t, podRoutes(ctx, t)...)
	if err := world.Stop(ctx, control, "neutron-server", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	start := func(ctx context.Context) {
		if err := world.Start(ctx, control, "neutron-server"); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { start(context.WithoutCancel(ctx)) })
	if _, err := openStack(ctx, "network", "list"); err == nil {
		t.Error("neutron-server answers")
	}
	makePod(ctx, t, webServer("without1", worker1))
	makePod(ctx, t, webServer("without2", worker2))
	if err := world.waitReady(ctx, "without1", "without2"); err != nil {
		t.Error(err)
	}
	for _, pair := range [][2]string{{"without1", "web2"}, {"client1", "without2"}, {"without2", "without1"}} {
		if err := ask(ctx, t, pair[0], pair[1]); err != nil {
			t.Error(err)
		}
	}
	if err := eventually(ctx, func() error {
		if out, err := world.coelan(ctx, "check"); err == nil || !strings.Contains(out, ": Neutron cannot be used: ") {
			return fmt.Errorf("Neutron is away, and coelan check says:\n%s", out)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if out, err := world.coelan(ctx, "status"); err != nil || !strings.Contains(out, " CANNOT BE USED since ") {
		t.Errorf("error %v: Neutron is away, and coelan status says:\n%s", err, out)
	}
	start(ctx)
	tr.settle(ctx, t)
	undisturbed(t, tr, 0)
	removePods(ctx, t, "without1", "without2")
	world.healthy(ctx, t)
}

// testNeutronControllers kills the controllers while pods come: each pod gets its port, no port is
// lost, and no address has two.
func testNeutronControllers(t *testing.T) {
	ctx := within(t, 5*time.Minute)
	awaitReadyPorts(ctx, t)
	before, err := openStackPorts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range 12 { // more than there are ports that are ready
		names = append(names, fmt.Sprintf("crowd%d", i))
		makePod(ctx, t, webServer(names[i], []string{worker1, worker2}[i%2]))
		if i == 6 {
			if err := world.killControllers(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(func() { removePods(context.WithoutCancel(ctx), t, names...) })
	if err := world.waitReady(ctx, names...); err != nil {
		t.Error(err)
	}
	if err := world.killControllers(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := world.Kubectl(ctx, "-n", agents, "rollout", "status", "deployment/coelan-controller", "--timeout=2m"); err != nil {
		t.Fatal(err)
	}
	pods := map[netip.Addr]string{}
	for _, name := range names {
		for _, a := range world.pod(ctx, t, name).addresses {
			pods[a] = name
		}
		if err := ask(ctx, t, "client1", name); err != nil {
			t.Error(err)
		}
	}
	// Until the new leader has read all, an answer may be of before.
	if err := eventually(ctx, func() error { return portsOf(ctx, pods, before) }); err != nil {
		t.Error(err)
	}
	world.healthy(ctx, t)
}

// portsOf is an objection unless Neutron has one plugged port for each address of pods, no address
// or name twice in a subnet, and all ports that it had before.
func portsOf(ctx context.Context, pods map[netip.Addr]string, before []openStackPort) error {
	ports, err := openStackPorts(ctx)
	if err != nil {
		return err
	}
	var errs []error
	ids, plugged := map[string]bool{}, map[netip.Addr]openStackPort{}
	addresses, names := map[openStackAddress]string{}, map[[2]string]string{}
	for _, p := range ports {
		ids[p.ID] = true
		for _, fixed := range p.Listed {
			if other, twice := addresses[fixed]; twice {
				errs = append(errs, fmt.Errorf("ports %s and %s have %s", other, p.ID, fixed.Address))
			}
			name := [2]string{fixed.Subnet, p.Name}
			if other, twice := names[name]; twice && other != p.ID && p.Name != "" {
				errs = append(errs, fmt.Errorf("ports %s and %s are both %q", other, p.ID, p.Name))
			}
			addresses[fixed], names[name], plugged[fixed.Address] = p.ID, p.ID, p
		}
	}
	for a, name := range pods {
		if p, there := plugged[a]; !there || p.Status != "ACTIVE" {
			errs = append(errs, fmt.Errorf("pod %s with %s has the port %+v", name, a, p))
		}
	}
	for _, p := range before {
		if !ids[p.ID] {
			errs = append(errs, fmt.Errorf("port %s %q is gone", p.ID, p.Name))
		}
	}
	return errors.Join(errs...)
}

// testNeutronReboot cuts the power of the node with Neutron, its database and OVN's: between nodes
// that have it pods go on, and afterwards there is all that was there, and pods start.
func testNeutronReboot(t *testing.T) {
	ctx := within(t, 6*time.Minute)
	before, err := openStackPorts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tr := startTraffic(ctx, t, podRoutes(ctx, t)...)
	if err := world.Restart(ctx, control, sandbox.Node, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	makePod(ctx, t, webServer("afterwards", worker1))
	t.Cleanup(func() { removePods(context.WithoutCancel(ctx), t, "afterwards") })
	if err := world.waitReady(ctx, "afterwards"); err != nil {
		t.Error(err)
	}
	if err := ask(ctx, t, "client2", "afterwards"); err != nil {
		t.Error(err)
	}
	undisturbed(t, tr, 0)
	pods := map[netip.Addr]string{}
	for _, a := range world.pod(ctx, t, "afterwards").addresses {
		pods[a] = "afterwards"
	}
	if err := eventually(ctx, func() error { return portsOf(ctx, pods, before) }); err != nil {
		t.Error(err)
	}
	world.healthy(ctx, t)
}
