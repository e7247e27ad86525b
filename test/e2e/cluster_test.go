// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/sandbox"
)

// What the cluster has from the beginning: see the files.
var (
	//go:embed testdata/pods.yaml
	manifest string
	//go:embed testdata/tenants.yaml
	tenants string
)

const (
	namespace = "e2e"
	agents    = "coelan-system"
	control   = sandbox.ControlPlaneName
	worker1   = "worker1"
	worker2   = "worker2"
)

// backend is the one that Coelan has in the tests: by these, all backends are the same.
var backend = sandbox.Backend(cmp.Or(os.Getenv("BACKEND"), string(sandbox.OVSBackend)))

// podNames are the pods of the manifests. The digit at the end is their worker's.
var podNames = []string{
	"client1", "client2", "web1", "web2", "host1",
	"red/client1", "red/web1", "red/web2", "blue/shop1", "blue/shop2",
}

// split returns the namespace and the name of a pod or another object, "name" or "namespace/name".
func split(key string) (ns, name string) {
	if ns, name, ok := strings.Cut(key, "/"); ok {
		return ns, name
	}
	return namespace, key
}

// cluster is a sandbox with Coelan and the pods of the manifests.
type cluster struct {
	*sandbox.Sandbox
	api     *kubernetes.Clientset
	objects client.Client // of Coelan's own kinds
	program string        // the coelan command
	// inOffice says that the nodes are connected to the external Network of office_test.go.
	inOffice bool
}

func newCluster(ctx context.Context, name string, install sandbox.Install) (*cluster, error) {
	spec := sandbox.Spec{Name: name, Zones: 2, Backend: backend}
	return newClusterOf(ctx, spec, install, tenants)
}

// newClusterOf brings up a cluster with the objects of testdata/pods.yaml and those of tenants,
// which is testdata/tenants.yaml in the spelling of what is installed.
func newClusterOf(ctx context.Context, spec sandbox.Spec, install sandbox.Install, tenants string) (*cluster, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("find the module: %w", err)
	}
	c := &cluster{program: filepath.Join(string(bytes.TrimSpace(root)), "bin/coelan")}
	if c.Sandbox, err = sandbox.Up(ctx, spec, install, os.Stderr); err != nil {
		return nil, err
	}
	if c.api, err = c.Clientset(); err != nil {
		return nil, err
	}
	if c.objects, err = newObjects(c.Sandbox); err != nil {
		return nil, err
	}
	for _, text := range []string{manifest, tenants} {
		if text == "" {
			continue
		}
		if err := c.Apply(ctx, text); err != nil {
			return nil, err
		}
	}
	return c, c.waitReady(ctx, podNames...)
}

// waitPod returns the pod once done accepts it. The wait outlives the API server.
func (c *cluster) waitPod(ctx context.Context, key string, done func(*corev1.Pod) bool) (*corev1.Pod, error) {
	namespace, name := split(key)
	pods := cache.NewListWatchFromClient(c.api.CoreV1().RESTClient(), "pods", namespace,
		fields.OneTermEqualSelector(metav1.ObjectNameField, name))
	last := &corev1.Pod{}
	_, err := watchtools.UntilWithSync(ctx, pods, &corev1.Pod{}, nil, func(e watch.Event) (bool, error) {
		p, ok := e.Object.(*corev1.Pod)
		if !ok || e.Type == watch.Deleted {
			return false, nil
		}
		last = p
		return done(p), nil
	})
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s (%s, conditions %v): %w", namespace, name, last.Status.Phase, last.Status.Conditions, err)
	}
	return last, nil
}

func (c *cluster) waitReady(ctx context.Context, names ...string) error {
	for _, name := range names {
		if _, err := c.waitPod(ctx, name, ready); err != nil {
			return err
		}
	}
	return nil
}

func ready(p *corev1.Pod) bool {
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// containers are the running containers of all pods but the agents', with how
// often each was restarted.
func (c *cluster) containers(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	pods, err := c.api.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, p := range pods.Items {
		for _, s := range p.Status.ContainerStatuses {
			if p.Namespace != agents {
				ids[p.Namespace+"/"+p.Name+"/"+s.Name] = fmt.Sprintf("%s, restarts %d", s.ContainerID, s.RestartCount)
			}
		}
	}
	return ids
}

// nodeAddress is a node's own address.
func (c *cluster) nodeAddress(ctx context.Context, t *testing.T, node string, f family) netip.Addr {
	t.Helper()
	n, err := c.api.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && f.has(ip) {
			return ip
		}
	}
	t.Fatalf("node %s has no %s address: %v", node, f, n.Status.Addresses)
	return netip.Addr{}
}

// gateway is the first address of a node's range of pod addresses, which is its pods' router.
func (c *cluster) gateway(ctx context.Context, t *testing.T, node string, f family) netip.Addr {
	t.Helper()
	return c.podRange(ctx, t, node, f).Addr().Next()
}

// nodeAmongPods is the address that a node's own processes have among pods.
func (c *cluster) nodeAmongPods(ctx context.Context, t *testing.T, node string, f family) netip.Addr {
	t.Helper()
	if backend != sandbox.OVSBackend {
		address, _ := names.ManagementAddress(c.podRange(ctx, t, node, f))
		return address
	}
	return c.gateway(ctx, t, node, f)
}

// podRange is a node's range of pod addresses.
func (c *cluster) podRange(ctx context.Context, t *testing.T, node string, f family) netip.Prefix {
	t.Helper()
	n, err := c.api.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, cidr := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(cidr); err == nil && f.has(p.Addr()) {
			return p
		}
	}
	t.Fatalf("node %s has no %s pod range", node, f)
	return netip.Prefix{}
}

// serviceAddress is the cluster's address of a Service.
func (c *cluster) serviceAddress(ctx context.Context, t *testing.T, key string, f family) netip.Addr {
	t.Helper()
	namespace, name := split(key)
	s, err := c.api.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range s.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(a); err == nil && f.has(ip) {
			return ip
		}
	}
	t.Fatalf("Service %s has no %s address", name, f)
	return netip.Addr{}
}

// coelan runs the command line as a user of the cluster does.
func (c *cluster) coelan(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("coelan %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

// healthy waits until `coelan check` has no findings. Right after a restart it may have some; a
// Neutron that was away is asked again after up to a minute.
func (c *cluster) healthy(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := eventually(ctx, func() error { _, err := c.coelan(ctx, "check"); return err }); err != nil {
		t.Error(err)
	}
	for _, node := range c.Nodes() {
		out, err := c.Exec(ctx, node, "ovs-vsctl", "--columns=name,ofport,error", "--format=csv", "--no-headings", "find", "interface", "ofport=-1")
		if err != nil || len(out) > 0 {
			t.Errorf("%s: ports without a number: %q, %v", node, out, err)
		}
	}
}

// report shows the state of a cluster in which a test has failed.
func (c *cluster) report(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, args := range [][]string{
		{"get", "pods", "-A", "-o", "wide"},
		{"get", "events", "-A", "--field-selector=type=Warning"},
		{"-n", agents, "logs", "-l", "app.kubernetes.io/component=agent", "--prefix", "--tail=30"},
		{"-n", agents, "logs", "-l", "app.kubernetes.io/component=controller", "--prefix", "--tail=30"},
	} {
		out, err := c.Kubectl(ctx, args...)
		t.Logf("kubectl %v: %v\n%s", args, err, out)
	}
}
