// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/internal/sandbox"
	"coelan.io/coelan/test/lab/probe"
)

// What is in manifests and on nodes.
var (
	imageName    = regexp.MustCompile(`image: coelan\.io/coelan:\S+`)
	podInterface = regexp.MustCompile(`^co[0-9a-f]{12}$`)
)

// release is a state of the source that can be installed.
type release struct {
	name, archive string
	// agents and controllers are the manifests of the two, common is that of all else.
	common, agents, controllers string
}

// readRelease reads a manifest as it is in the source, to be installed with the image of that name.
func readRelease(name, manifest, image, archive string) (r release, err error) {
	data, err := os.ReadFile(manifest)
	if err != nil {
		return r, err
	}
	r.name, r.archive = name, archive
	for reader := yamlstream.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return r, fmt.Errorf("%s: %w", manifest, err)
		}
		var object struct{ Kind string }
		if err := yaml.Unmarshal(document, &object); err != nil {
			return r, fmt.Errorf("%s: %w", manifest, err)
		}
		part := &r.common
		switch object.Kind {
		case "DaemonSet":
			part = &r.agents
		case "Deployment":
			part = &r.controllers
		}
		text := string(document)
		if image != "" {
			text = imageName.ReplaceAllString(text, "image: "+image)
		}
		*part += "---\n" + text
	}
}

// apiServerMap tells releases where the API server is that do not find it by themselves without
// kube-proxy. Those that do ignore it.
const apiServerMap = `---
apiVersion: v1
kind: ConfigMap
metadata: {name: coelan-api-server, namespace: coelan-system}
data: {KUBERNETES_SERVICE_HOST: 192.168.33.11, KUBERNETES_SERVICE_PORT: "6443"}
`

// manifest is the whole of it.
func (r release) manifest() string { return r.common + apiServerMap + r.agents + r.controllers }

// releases are the one that the upgrade begins with, and this one.
func releases(ctx context.Context, t *testing.T) (older, newer release) {
	t.Helper()
	source := filepath.Join(filepath.Dir(world.program), "..")
	if out, err := exec.CommandContext(ctx, "make", "-C", source, "upgrade-images").CombinedOutput(); err != nil {
		t.Fatalf("make upgrade-images: %v\n%s", err, out)
	}
	dir := filepath.Join(source, "bin/upgrade")
	older, err := readRelease("the older release", filepath.Join(dir, "coelan.yaml"), "coelan.io/coelan:upgrade-from", filepath.Join(dir, "coelan.tar"))
	if err == nil {
		newer, err = readRelease("this release", filepath.Join(source, "deploy/coelan.yaml"), "", filepath.Join(source, "bin/images/coelan.tar"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return older, newer
}

// put replaces what is installed, as `kubectl apply` of the whole manifest does, but for the order
// of agents and controllers.
func (r release) put(ctx context.Context, first string) error {
	workloads := []struct{ what, manifest string }{
		{"daemonset/coelan-agent", r.agents}, {"deployment/coelan-controller", r.controllers},
	}
	if first == workloads[1].what {
		slices.Reverse(workloads)
	}
	if err := userApplies(ctx, r.common); err != nil {
		return err
	}
	for _, w := range workloads {
		if err := userApplies(ctx, w.manifest); err != nil {
			return err
		}
		if _, err := world.Kubectl(ctx, "-n", agents, "rollout", "status", w.what, "--timeout=150s"); err != nil {
			return err
		}
	}
	return nil
}

// userApplies applies as docs/operate/install.md says, and as sandboxes are installed:
// not on the server.
func userApplies(ctx context.Context, manifest string) error {
	cmd := world.KubectlCommand(ctx, "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply: %w: %s", err, out)
	}
	return nil
}

// TestUpgrade installs an older release, and goes to this one and back, twice, node by node, while
// packets flow. It has a cluster of its own, in which nothing but the older release has ever been.
func TestUpgrade(t *testing.T) {
	ctx := within(t, 20*time.Minute)
	older, newer := releases(ctx, t)
	upCluster(ctx, t, older)
	if err := world.Load(ctx, newer.archive); err != nil {
		t.Fatal(err)
	}
	apply(ctx, t, policiesManifest)
	pods := map[string]place{}
	for _, name := range []string{"web1", "web2", "client1", "client2", "other1"} {
		pods[name] = readyPod(ctx, t, "policies/"+name)
	}
	friend := readyPod(ctx, t, "friends/friend2")
	policy(ctx, t, "web", "podSelector: {matchLabels: {server: web1}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]")
	policy(ctx, t, "other", "podSelector: {matchLabels: {app: other}}, policyTypes: [Egress]")
	judge(ctx, t, func(f family) []try {
		return []try{
			{pods["client1"], web(pods["web1"], f), true}, {friend, web(pods["web1"], f), false}, {pods["other1"], web(pods["web2"], f), false},
		}
	})
	// From here to the end not one packet of those that may not send arrives,
	// and no connection breaks.
	denied := map[string]mailbox{
		"from a pod of another node": listen(t, pods["web1"], floodPort), "from a pod of its node": listen(t, pods["web2"], floodPort),
	}
	flood(ctx, t, friend, pods["web1"], floodPort)
	flood(ctx, t, pods["other1"], pods["web2"], floodPort)
	connections := openMany(ctx, t, podRoutes(ctx, t))
	containers, ports := world.containers(ctx, t), podPorts(ctx, t)
	const agentsFirst, controllersFirst = "daemonset/coelan-agent", "deployment/coelan-controller"
	present := older
	for i, step := range []struct {
		to    release
		first string
	}{{newer, controllersFirst}, {older, controllersFirst}, {newer, agentsFirst}, {older, agentsFirst}} {
		ok := t.Run(fmt.Sprintf("%d to %s, first the %s", i+1, step.to.name, step.first), func(t *testing.T) {
			// The release that takes over removes it.
			made := fmt.Sprintf("made-%d", i)
			makePod(ctx, t, sleeper(namespace+"/"+made, worker1))
			if err := world.waitReady(ctx, made); err != nil {
				t.Fatal(err)
			}
			allowed := listen(t, pods["web1"], floodPort+1)
			flood(ctx, t, pods["client2"], pods["web1"], floodPort+1)
			tr := startTraffic(ctx, t, append(podRoutes(ctx, t),
				route{way: "policy, same node", from: pods["client1"], to: pods["web1"]})...)
			began := time.Now()
			if err := step.to.put(ctx, step.first); err != nil {
				t.Fatalf("from %s to %s: %v", present.name, step.to.name, err)
			}
			tr.settle(ctx, t)
			took := time.Since(began)
			outcomes := tr.stop(t)
			tunneled := maps.Clone(outcomes)
			maps.DeleteFunc(tunneled, func(way string, _ outcome) bool { return !crossesTunnel(way) })
			maps.DeleteFunc(outcomes, func(way string, _ outcome) bool { return crossesTunnel(way) })
			allow(t, outcomes, 0)
			allow(t, tunneled, tunnelGap())
			maps.Copy(outcomes, tunneled)
			measured.add(t, "to "+step.to.name+", first the "+step.first, took, outcomes)
			if err := allowed.every(); err != nil {
				t.Errorf("from a pod that may send: %v", err)
			}
			removePods(ctx, t, namespace+"/"+made)
			if diff := cmp.Diff(containers, world.containers(ctx, t)); diff != "" {
				t.Errorf("containers (-before +after): %s", diff)
			}
			if diff := cmp.Diff(ports, podPorts(ctx, t)); diff != "" {
				t.Errorf("pods' ports (-before +after): %s", diff)
			}
			for i, s := range connections {
				if err := s.Broken(); err != nil {
					t.Errorf("connection %d: %v", i, err)
				}
			}
			for from, m := range denied {
				for f, n := range m {
					if n.Load() > 0 {
						t.Errorf("%s, %s: %d packets came through", from, f, n.Swap(0))
					}
				}
			}
			for _, f := range families {
				web1HostPort(ctx, t, f).answers(ctx, t, world.machine(ctx, t, "fabric"))
			}
			if step.to.name == newer.name {
				world.healthy(ctx, t)
			}
		})
		if !ok {
			world.report(t)
		}
		present = step.to
	}
	for i, s := range connections {
		if r := s.Stop(); r.Err != nil || r.Rounds == 0 {
			t.Errorf("connection %d: %s", i, r)
		}
	}
}

// formerSpelling makes objects those of the older release, in which the values of enumerations were
// in lower case. This release must read them as they are stored (docs/develop/api-conventions.md).
var formerSpelling = strings.NewReplacer("role: Primary", "role: primary")

// upCluster brings up a cluster with the older release, and has it be the world until the test
// ends.
func upCluster(ctx context.Context, t *testing.T, r release) {
	t.Helper()
	name := world.Name + "-upgrade"
	t.Cleanup(func() {
		if err := sandbox.Down(context.WithoutCancel(ctx), name, os.Stderr); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(t.TempDir(), "coelan.yaml")
	if err := os.WriteFile(file, []byte(r.manifest()), 0o644); err != nil {
		t.Fatal(err)
	}
	before := world
	t.Cleanup(func() { world = before })
	spec := sandbox.Spec{Name: name, Zones: 2}
	c, err := newClusterOf(ctx, spec, sandbox.Install{Manifest: file, Archives: []string{r.archive}}, formerSpelling.Replace(tenants))
	if err != nil {
		t.Fatal(err)
	}
	world = c
}

func readyPod(ctx context.Context, t *testing.T, key string) place {
	t.Helper()
	if err := world.waitReady(ctx, key); err != nil {
		t.Fatal(err)
	}
	return world.pod(ctx, t, key)
}

// web1HostPort is the port of the first worker that leads to web1 (testdata/pods.yaml), which the
// older release has attached.
func web1HostPort(ctx context.Context, t *testing.T, f family) question {
	t.Helper()
	return question{corev1.ProtocolTCP, netip.AddrPortFrom(world.nodeAddress(ctx, t, worker1, f), 8090)}
}

// many is how many connections stay open through all.
const many = 100

// openMany opens connections on those routes that do not ask a Service, with a number
// on each every second.
func openMany(ctx context.Context, t *testing.T, routes []route) []*probe.TCPStream {
	t.Helper()
	const port = 7400
	routes = slices.DeleteFunc(routes, func(r route) bool { return r.service != "" })
	var list []*probe.TCPStream
	for i := range many {
		r, f := routes[i%len(routes)], families[i/len(routes)%len(families)]
		at := netip.AddrPortFrom(r.to.address(f), port)
		if i < len(routes)*len(families) {
			server, err := probe.Serve(r.to, at, probe.Echo)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Close)
		}
		s, err := probe.StartTCP(ctx, r.from, at, time.Second)
		if err != nil {
			t.Fatalf("connection %d, %s, %s: %v", i, r.way, f, err)
		}
		t.Cleanup(s.Close)
		list = append(list, s)
	}
	return list
}

// crossesTunnel says so of ways between nodes. The userspace datapath resolves a tunnel's next hop
// by itself, and may lose packets while it does.
func crossesTunnel(way string) bool {
	for _, local := range []string{sameNode, toOutside, "policy, same node"} {
		if strings.HasPrefix(way, local) {
			return false
		}
	}
	return true
}

func tunnelGap() time.Duration {
	if world.Datapath == "netdev" {
		return ovsGap
	}
	return 0
}

// podPorts are the interfaces of pods on all nodes, with their numbers. One that is recreated has
// another UUID.
func podPorts(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	ports := map[string]string{}
	for _, node := range world.Nodes() {
		out, err := world.Exec(ctx, node, "ovs-vsctl", "--columns=name,ofport,_uuid", "--format=csv", "--no-headings", "list", "interface")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			if name, rest, _ := strings.Cut(line, ","); podInterface.MatchString(strings.Trim(name, `"`)) {
				ports[node+" "+name] = rest
			}
		}
	}
	return ports
}
