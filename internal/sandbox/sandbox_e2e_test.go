// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/image"
	"coelan.io/coelan/internal/sandbox/artifact"
)

// traces are what a sandbox could leave behind on this computer.
func traces(t *testing.T, name string) map[string]string {
	t.Helper()
	list := map[string]string{}
	for what, args := range map[string][]string{
		"links": {"ip", "-o", "link"}, "routes": {"ip", "route", "show", "table", "all"}, "rules": {"nft", "list", "ruleset"},
	} {
		out, err := exec.Command(args[0], args[1:]...).Output()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		list[what] = string(out)
	}
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	list["mounts"] = string(data)
	list["directory"] = strings.Join(glob(t, filepath.Join(StateDir(), name)), "\n")
	list["cgroups"] = strings.Join(append(
		glob(t, "/sys/fs/cgroup/coelan-sandbox-"+name), glob(t, "/sys/fs/cgroup/*/coelan-sandbox-"+name)...), "\n")
	for _, process := range glob(t, "/proc/[0-9]*/cmdline") {
		if line, err := os.ReadFile(process); err == nil && bytes.Contains(line, []byte("/"+name+"/machines/")) {
			list["processes"] += process + " "
		}
	}
	return list
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	list, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// TestSandbox goes once through the life of a sandbox over the reference plugins.
func TestSandbox(t *testing.T) {
	name := fmt.Sprintf("e2e-%d", os.Getpid())
	ctx, cancel := context.WithTimeout(context.Background(), 9*time.Minute)
	defer cancel()
	before := traces(t, name)
	t.Cleanup(func() {
		if err := Down(context.Background(), name, nil); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(before, traces(t, name)); diff != "" {
			t.Errorf("left behind: %s", diff)
		}
	})
	spec := Spec{Name: name, CNI: Bridge}
	s := bringUp(ctx, t, spec)

	t.Run("a second up changes nothing", func(t *testing.T) {
		pid, _ := s.client(ControlPlaneName).Status(ctx)
		bringUp(ctx, t, Spec{Name: name})
		again, _ := s.client(ControlPlaneName).Status(ctx)
		if diff := cmp.Diff(pid, again); diff != "" {
			t.Error(diff)
		}
	})
	startPods(ctx, t, s)
	t.Run("pods talk", func(t *testing.T) { checkPods(ctx, t, s) })
	t.Run("load", func(t *testing.T) { checkLoad(ctx, t, s) })
	t.Run("a component that crashes comes back", func(t *testing.T) { checkCrash(ctx, t, s) })
	t.Run("the fabric cannot be switched off", func(t *testing.T) {
		if err := s.Stop(ctx, FabricName, Node, syscall.SIGTERM); err == nil {
			t.Error("no error")
		}
	})
	t.Run("a stopped component stays stopped", func(t *testing.T) { checkStop(ctx, t, s) })
	for _, restart := range [][2]string{{"worker1", OVS}, {"worker1", Node}, {All, Node}, {All, Node}} {
		t.Run("restart "+restart[0]+" "+restart[1], func(t *testing.T) {
			if err := s.Restart(ctx, restart[0], restart[1], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if err := s.WaitPods(ctx, "", time.Minute); err != nil {
				t.Fatal(err)
			}
			checkPods(ctx, t, s)
		})
	}
	for _, m := range s.Status(ctx) {
		if !m.Healthy(s.CNI) {
			t.Errorf("%+v", m)
		}
	}
}

// bringUp interrupts the first try when the machines have booted, as Ctrl-C does.
func bringUp(ctx context.Context, t *testing.T, spec Spec) *Sandbox {
	t.Helper()
	interrupted, interrupt := context.WithCancel(ctx)
	defer interrupt()
	w := &interrupter{testWriter{t}, interrupt}
	if _, err := Up(interrupted, spec, Install{}, w); !errors.Is(err, context.Canceled) {
		t.Fatalf("an interrupted up: %v", err)
	}
	s, err := Up(ctx, spec, Install{}, testWriter{t})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type interrupter struct {
	testWriter
	interrupt func()
}

func (w *interrupter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "API server") {
		w.interrupt()
	}
	return w.testWriter.Write(p)
}

func startPods(ctx context.Context, t *testing.T, s *Sandbox) {
	t.Helper()
	for _, node := range s.WorkerNames() {
		manifest := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "on-%s"}, "spec": {
			"nodeName": %q, "containers": [{"name": "c", "image": %q, "args": ["netexec"]}]}}`,
			node, node, artifact.AgnhostImage)
		if err := s.Apply(ctx, manifest); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.WaitPods(ctx, "", time.Minute); err != nil {
		t.Fatal(err)
	}
}

func kubectl(ctx context.Context, t *testing.T, s *Sandbox, args ...string) string {
	t.Helper()
	out, err := s.Kubectl(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// checkPods asks the pod on the other worker for the address that it sees, the outside for the one
// that it sees, and the cluster's DNS for a Service.
func checkPods(ctx context.Context, t *testing.T, s *Sandbox) {
	t.Helper()
	ips := func(pod string) []string {
		return strings.Fields(kubectl(ctx, t, s, "get", "pod", pod, "-o", "jsonpath={.status.podIPs[*].ip}"))
	}
	own, others := ips("on-worker1"), ips("on-worker2")
	run := func(args ...string) string {
		return kubectl(ctx, t, s, append([]string{"exec", "on-worker1", "--"}, args...)...)
	}
	seen := func(address, port string) string {
		out := run("curl", "-sS", "-m", "5", "--retry", "5", "--retry-connrefused", "http://"+address+":"+port+"/clientip")
		client, err := netip.ParseAddrPort(out)
		if err != nil {
			t.Fatal(err)
		}
		return client.Addr().String()
	}
	bracketed := func(address string) string {
		if strings.Contains(address, ":") {
			return "[" + address + "]"
		}
		return address
	}
	for i, other := range others {
		if got := seen(bracketed(other), "8080"); got != own[i] {
			t.Errorf("the pod %s sees %s, not the pod %s", other, got, own[i])
		}
		out := bracketed(of(s.Family, outside)[i].String())
		if got, want := seen(out, "80"), s.addresses("worker1")[i].String(); got != want {
			t.Errorf("the outside %s sees %s, not the node %s", out, got, want)
		}
	}
	if got := run("dig", "+short", "+tries=5", "kubernetes.default.svc.cluster.local"); got != firstServes.v4.String() {
		t.Errorf("DNS of a Service: %q", got)
	}
	if got := run("dig", "+short", "+tries=5", outsideName); got != outside.v4.String() {
		t.Errorf("DNS of the outside: %q", got)
	}
}

func checkLoad(ctx context.Context, t *testing.T, s *Sandbox) {
	archive, tag := filepath.Join(t.TempDir(), "a.tar"), "example.test/loaded:1"
	i := image.Image{
		Tag: tag, Entrypoint: []string{"/agnhost", "pause"},
		Files: []image.File{{Path: "/agnhost", Source: s.cache.Binary("agnhost")}},
	}
	if err := i.Write(archive); err != nil {
		t.Fatal(err)
	}
	if err := s.Load(ctx, archive); err != nil {
		t.Fatal(err)
	}
	kubectl(ctx, t, s, "run", "loaded", "--image="+tag, "--image-pull-policy=Never")
	if err := s.WaitPods(ctx, "default", time.Minute); err != nil {
		t.Error(err)
	}
	kubectl(ctx, t, s, "delete", "pod", "loaded", "--grace-period=0", "--force")
	if err := s.Load(ctx, archive+".none"); err == nil {
		t.Error("no error for a file that is not there")
	}
}

func checkCrash(ctx context.Context, t *testing.T, s *Sandbox) {
	status := func() int {
		list, err := s.client("worker1").Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			if c.Name == ovsVswitchd {
				return c.PID
			}
		}
		return 0
	}
	old := status()
	if err := s.Kill(ctx, "worker1", ovsVswitchd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitComponent(ctx, "worker1", ovsVswitchd, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := status(); got == old {
		t.Errorf("still process %d", got)
	}
	checkPods(ctx, t, s)
}

func checkStop(ctx context.Context, t *testing.T, s *Sandbox) {
	if err := s.Stop(ctx, "worker2", kubelet, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(s.Status(ctx), func(m MachineStatus) bool { return m.Name == "worker2" && m.Healthy(s.CNI) }) {
		t.Error("worker2 is said to be healthy without kubelet")
	}
	if err := s.Start(ctx, "worker2", kubelet); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(ctx, "worker2", "nonsense", syscall.SIGTERM); err == nil {
		t.Error("no error for a component that is not there")
	}
}
