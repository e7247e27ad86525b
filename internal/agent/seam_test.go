// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/agent/kube/kubetest"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/config"
)

// TestAnotherBackend has two agents on a backend that is not Open vSwitch attach pods, answer CHECK
// and DEL, and follow Networks and Services, with nothing of the agent knowing the difference.
func TestAnotherBackend(t *testing.T) {
	f := newFabric()
	c := newInMemoryCluster()
	n1, n2 := startInMemory(t, "n1", c, f), startInMemory(t, "n2", c, f)
	c.add("n1", "a")
	c.add("n2", "b")
	c.add("n2", "late")
	a, b := n1.cni(t, "ADD", "a"), n2.cni(t, "ADD", "b")
	reaches := func(from string, to netip.AddrPort, want string) {
		t.Helper()
		if got := f.send(namespaceOf(from)+"/"+from+"/eth0", to); got != want {
			t.Errorf("%s to %s reaches %q, want %q", from, to, got, want)
		}
	}
	reaches("a", netip.AddrPortFrom(b, 80), "default/b/eth0")
	reaches("b", netip.AddrPortFrom(a, 80), "default/a/eth0")
	n1.cni(t, "CHECK", "a")

	vip := netip.MustParseAddrPort("10.96.0.7:80")
	reaches("a", vip, "")
	c.serve("web", vip, netip.AddrPortFrom(b, 8080))
	n1.until(t, "the Service leads to its endpoint", func() bool {
		return f.send("default/a/eth0", vip) == "default/b/eth0"
	})

	// A tenant's Network: another Router, and its pods reach nothing of the first.
	c.network(t, "red", "10.50.0.0/24")
	n2.until(t, "the Network is in effect", func() bool {
		_, ok := n2.agent.intent.State().Networks().Get("red")
		return ok
	})
	late := n2.cni(t, "ADD", "late")
	if late.String()[:6] != "10.50." {
		t.Fatalf("the pod has %s, want an address of its Network", late)
	}
	reaches("a", netip.AddrPortFrom(late, 80), "")
	reaches("late", netip.AddrPortFrom(a, 80), "")

	// What a machine has by DHCP is in the status of its Port.
	for p := range n2.agent.intent.State().PortsAt("n2") {
		if p.Pod == "late" {
			f.nodes["n2"].Hooks.Leased(backend.Lease{Port: p, HostName: "db", Addresses: p.Addresses, Duration: time.Hour})
		}
	}
	n2.until(t, "the Port has its lease", func() bool {
		return slices.ContainsFunc(c.apis["n2"].AllPorts(), func(o *v1alpha1.Port) bool {
			return o.Status.Lease != nil && o.Status.Lease.HostName == "db" && o.Status.Lease.Addresses[0] == late.String()
		})
	})

	n2.cni(t, "DEL", "b")
	n2.cni(t, "DEL", "b")
	reaches("a", netip.AddrPortFrom(b, 80), "")
	if err := n2.try("CHECK", "b"); err == nil {
		t.Error("CHECK of a pod that is gone succeeds")
	}
	var status agentapi.Status
	n1.query(t, "/v1/status", &status)
	if !status.OVS.Connected || status.Ports != 1 || status.Conditions["fabric"] != "" || len(status.Peers) != 1 {
		t.Errorf("status: %+v", status)
	}
	diagnosed(t, n2)
}

// diagnosed fails unless an agent tells of its Networks, Routers and Services, and finds nothing
// wrong but what this test leaves out: there is no plugin to install.
func diagnosed(t *testing.T, n *inMemoryNode) {
	t.Helper()
	var check agentapi.Check
	n.query(t, "/v1/check", &check)
	if check.OK || len(check.Findings) != 1 || check.Findings[0].Kind != "condition" || check.Attachments != 1 || check.Interfaces != 1 {
		t.Errorf("check: %+v", check)
	}
	var networks []agentapi.NetworkInfo
	n.query(t, "/v1/networks", &networks)
	ports, ids := map[string]int{}, map[string]string{}
	for _, i := range networks {
		ports[i.Name], ids[i.Name] = i.Ports, i.Neutron
	}
	if len(ports) != 2 || ports["default"] != 0 || ports["red"] != 1 || ids["default"] != "" || ids["red"] != "uuid-red" {
		t.Errorf("networks: %+v", networks)
	}
	var routers []agentapi.RouterInfo
	n.query(t, "/v1/routers", &routers)
	if i := slices.IndexFunc(routers, func(r agentapi.RouterInfo) bool { return r.Name == "red" }); i < 0 || routers[i].Shared {
		t.Errorf("routers: %+v", routers)
	}
	var services []agentapi.ServiceInfo
	n.query(t, "/v1/services", &services)
	if len(services) != 1 || services[0].Name != "web" || len(services[0].Ports) != 1 || len(services[0].Ports[0].Endpoints) != 1 {
		t.Errorf("services: %+v", services)
	}
}

// inMemoryNode is an agent and what a container runtime sees of it.
type inMemoryNode struct {
	agent *Agent
	cfg   config.Config
	// results are those of ADDs, by pod, which the runtime gives to CHECK.
	results map[string]json.RawMessage
}

func startInMemory(t *testing.T, name string, c *inMemoryCluster, f *fabric) *inMemoryNode {
	t.Helper()
	n := newInMemory(t)
	var err error
	n.agent, err = New(Options{
		Config: n.cfg, Backend: f.factory(), Links: &noLinks{made: map[string]bool{}}, NodeName: name,
		Cluster: &inMemoryView{c, c.apis[name]}, Events: &quietEvents{}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	n.run(t, n.agent.Run)
	n.until(t, "pods can be attached", func() bool {
		return n.agent.health.conditions.Attaching() == nil && n.listens()
	})
	return n
}

// newInMemory has a configuration and no agent yet.
func newInMemory(t *testing.T) *inMemoryNode {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent") //nolint:usetesting // sockets want a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &inMemoryNode{cfg: config.Default(), results: map[string]json.RawMessage{}}
	n.cfg.StateDir, n.cfg.MetricsBindAddress = dir, "0"
	n.cfg.Policy.Mode, n.cfg.Services.Mode, n.cfg.Services.HealthzBindAddress = config.PoliciesOff, config.NativeServices, "0"
	n.cfg.CNI.Socket, n.cfg.AgentSocket = filepath.Join(dir, "cni.sock"), filepath.Join(dir, "agent.sock")
	n.cfg.CNI.BinDir, n.cfg.CNI.ConfDir, n.cfg.CNI.Binary = filepath.Join(dir, "bin"), filepath.Join(dir, "net.d"), filepath.Join(dir, "plugin")
	if err := os.WriteFile(n.cfg.CNI.Binary, []byte("#!"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return n
}

// listens says that the agent has its sockets.
func (n *inMemoryNode) listens() bool {
	for _, path := range []string{n.cfg.CNI.Socket, n.cfg.AgentSocket} {
		if _, err := os.Stat(path); err != nil {
			return false
		}
	}
	return true
}

// run runs until the test ends.
func (n *inMemoryNode) run(t *testing.T, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (n *inMemoryNode) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not so: %s; %v", what, n.agent.health.conditions.All())
		}
		time.Sleep(time.Millisecond)
	}
}

func over(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
}

func (n *inMemoryNode) query(t *testing.T, path string, answer any) {
	t.Helper()
	r, err := over(n.cfg.AgentSocket).Get("http://agent" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(answer); err != nil {
		t.Fatal(err)
	}
}

// call is one of the plugin's, of which it returns what the runtime gets.
func (n *inMemoryNode) call(command, pod string) ([]byte, error) {
	conf := map[string]any{"cniVersion": "1.0.0", "name": "coelan", "type": "coelan-cni"}
	if command == "CHECK" {
		conf["prevResult"] = n.results[pod]
	}
	stdin, err := json.Marshal(conf)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(wire.Request{
		Command: command, ContainerID: "container-" + pod, Netns: "/run/netns/" + pod, IfName: "eth0", TimeoutMillis: 20_000,
		Args:   fmt.Sprintf("K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=uid-%s", namespaceOf(pod), pod, pod),
		Config: stdin,
	})
	if err != nil {
		return nil, err
	}
	r, err := over(n.cfg.CNI.Socket).Post("http://agent"+wire.Path, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = errors.New(string(answer))
	}
	return answer, err
}

func (n *inMemoryNode) try(command, pod string) error { _, err := n.call(command, pod); return err }

// cni has a call succeed, and returns the address of an ADD's pod on its Network.
func (n *inMemoryNode) cni(t *testing.T, command, pod string) (address netip.Addr) {
	t.Helper()
	answer, err := n.call(command, pod)
	if err != nil {
		t.Fatalf("%s of %s: %v", command, pod, err)
	}
	if command != "ADD" {
		return address
	}
	n.results[pod] = answer
	for _, at := range n.agent.store.List() {
		if at.PodName == pod {
			address = at.Addresses[0].Addr()
		}
	}
	return address
}

// noLinks are pods' interfaces that exist by name alone.
type noLinks struct {
	mu   sync.Mutex
	made map[string]bool
}

func (l *noLinks) Verify(string) error { return nil }
func (l *noLinks) Gone(string) bool    { return false }

func (l *noLinks) Create(i podnet.Interface) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made[i.HostInterface] = true
	return nil
}

func (l *noLinks) Configure(podnet.Interface) error { return nil }

func (l *noLinks) Check(i podnet.Interface) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.made[i.HostInterface] {
		return &podnet.MissingError{Name: i.HostInterface, Where: "memory"}
	}
	return nil
}

func (l *noLinks) Remove(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.made, name)
	return nil
}

func (l *noLinks) Existing() (map[string]bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := map[string]bool{}
	for n := range l.made {
		names[n] = true
	}
	return names, nil
}

type quietEvents struct{}

func (quietEvents) PodWarning(_, _, _, _, _ string)       {}
func (quietEvents) NodeWarning(_, _, _, _ string)         {}
func (quietEvents) PortWarning(_, _, _, _, _ string)      {}
func (quietEvents) ServiceWarning(_, _, _, _, _ string)   {}
func (quietEvents) ObjectWarning(_, _, _, _, _, _ string) {}
func (quietEvents) ServiceNotice(_, _, _, _, _ string)    {}

// inMemoryCluster is the API that all agents see.
type inMemoryCluster struct {
	apis map[string]*kubetest.API
	// served has all agents hear of a Service; it is set while they watch.
	mu       sync.Mutex
	watching []kube.ServiceUpdates
}

func newInMemoryCluster() *inMemoryCluster {
	c := &inMemoryCluster{apis: map[string]*kubetest.API{"n1": kubetest.New("n1"), "n2": kubetest.New("n2")}}
	for _, a := range c.apis {
		a.Add(memoryNode("n1", 1), memoryNode("n2", 2))
		for _, name := range []string{"default", "red"} {
			a.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tenant": name}}})
		}
	}
	return c
}

// namespaceOf is a pod's: that of the tenant red for one called late.
func namespaceOf(pod string) string {
	if pod == "late" {
		return "red"
	}
	return "default"
}

// add makes a pod on a node.
func (c *inMemoryCluster) add(node, name string) {
	c.apis[node].Add(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(name), Name: name, UID: types.UID("uid-" + name)}, Spec: corev1.PodSpec{NodeName: node},
	})
}

func (c *inMemoryCluster) network(t *testing.T, name, cidr string) {
	t.Helper()
	for _, a := range c.apis {
		a.Add(
			&v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.RouterStatus{
				ID: 7, VNI: 77, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}},
			}},
			&v1alpha1.Network{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: v1alpha1.NetworkSpec{
					Router: name, Subnets: []v1alpha1.Subnet{{CIDR: cidr}}, Role: v1alpha1.Primary,
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": name}},
				},
				Status: v1alpha1.NetworkStatus{
					ID: 8, VNI: 78, Router: name, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}},
					Neutron: &v1alpha1.NeutronNetwork{ID: "uuid-" + name},
				},
			})
	}
}

// serve makes a Service with one endpoint.
func (c *inMemoryCluster) serve(name string, vip, endpoint netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	meta := metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}
	port, protocol, ready := int32(endpoint.Port()), corev1.ProtocolTCP, true
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol, Name: new(string)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{endpoint.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: name}
	for _, u := range c.watching {
		u.Services.Set(&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: vip.Addr().String(), ClusterIPs: []string{vip.Addr().String()},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{{Port: int32(vip.Port()), Protocol: protocol}},
		}})
		u.Slices.Set(slice)
	}
}

// inMemoryView is what one agent sees of it.
type inMemoryView struct {
	cluster *inMemoryCluster
	*kubetest.API
}

func memoryNode(name string, n int) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.244.%d.0/24", n)}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", n)}}},
	}
}

func (v *inMemoryView) WatchPods(ctx context.Context, _ func(kube.Delta[*corev1.Pod])) error {
	<-ctx.Done()
	return nil
}

func (v *inMemoryView) WatchServices(ctx context.Context, u kube.ServiceUpdates) error {
	v.cluster.mu.Lock()
	v.cluster.watching = append(v.cluster.watching, u)
	v.cluster.mu.Unlock()
	u.Services.Listed(func(types.NamespacedName) bool { return true })
	u.Slices.Listed(func(types.NamespacedName) bool { return true })
	u.CIDRs(kube.Whole([]*networkingv1.ServiceCIDR{}))
	<-ctx.Done()
	return nil
}

// WatchObjects leaves out pools: nothing here answers for addresses of load balancers.
func (v *inMemoryView) WatchObjects(ctx context.Context, u kube.Updates) error {
	u.Pools = func(kube.Delta[*v1alpha1.LoadBalancerPool]) {}
	u.FloatingIPs = func(kube.Delta[*v1alpha1.FloatingIP]) {}
	u.Egresses = func(kube.Delta[*v1alpha1.Egress]) {}
	hide := v.Show(u, nil)
	defer hide()
	<-ctx.Done()
	return nil
}

func (v *inMemoryView) Reviews() (authentication.TokenReviewInterface, authorization.SubjectAccessReviewInterface) {
	return nil, nil
}
