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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/internal/watcher"
	"coelan.io/coelan/internal/watcher/odltest"
)

// odlPort is that of the RESTCONF controller outside of the cluster.
const odlPort = 8181

// watcherManifest is what docs/use/watcher.md has users apply.
func watcherManifest() string {
	return filepath.Join(filepath.Dir(world.program), "../deploy/watcher.yaml")
}

// watched is a RESTCONF controller outside, and the watcher's Deployment in the cluster.
type watched struct{ odl *odltest.Controller }

// TestWatcher has the watcher's Deployment keep a strict RESTCONF controller outside as the cluster
// is, while pods come and go, and the watcher, the API server and the controller end.
func TestWatcher(t *testing.T) {
	ctx := within(t, 5*time.Minute)
	w := watched{odltest.New("refused")}
	w.serve(t)
	w.deploy(ctx, t)
	inOrder(t, []step{
		{"all of the cluster", w.all},
		{"refused", w.refused},
		{"changes while all of them end", w.ends},
		{"the controller forgets", w.forgets},
		{"status", w.status},
	})
}

// serve has the controller answer in the world outside.
func (w watched) serve(t *testing.T) {
	t.Helper()
	var listener net.Listener
	at := netip.AddrPortFrom(outside(families[0]), odlPort)
	if err := world.netns("fabric").Do(func() (err error) {
		listener, err = net.Listen("tcp", at.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: w.odl, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// deploy does what docs/use/watcher.md says.
func (w watched) deploy(ctx context.Context, t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(watcherManifest())
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + netip.AddrPortFrom(outside(families[0]), odlPort).String()
	if _, err := world.Kubectl(ctx, "-n", agents, "create", "secret", "generic", "coelan-watcher",
		"--from-literal=password="+odltest.Password); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		remove(ctx, t, "-n", agents, "secret", "coelan-watcher")
		remove(ctx, t, "-f", watcherManifest())
	})
	settings := strings.NewReplacer("https://odl.example.com:8443", url, "reread: 1m", "reread: 5s")
	apply(ctx, t, settings.Replace(string(data)))
	w.rolledOut(ctx, t)
}

func (w watched) rolledOut(ctx context.Context, t *testing.T) {
	t.Helper()
	if _, err := world.Kubectl(ctx, "-n", agents, "rollout", "status", "deployment/coelan-watcher", "--timeout=120s"); err != nil {
		t.Fatal(err)
	}
}

// equal waits until the controller has exactly what the cluster has.
func (w watched) equal(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := eventually(ctx, func() error {
		want, err := w.wanted(ctx)
		if err != nil {
			return err
		}
		for list, keys := range want {
			if got := w.odl.Keys(list); !slices.Equal(got, keys) {
				return fmt.Errorf("%s: the controller has %d entries %v, want %d %v", list, len(got), got, len(keys), keys)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// wanted are the keys of the entries that the cluster is to have at the controller, sorted, by
// list.
func (w watched) wanted(ctx context.Context) (map[string][]string, error) {
	pods, err := world.api.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	nodes, err2 := world.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	services, err3 := world.api.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, err
	}
	want := map[string][]string{}
	for _, p := range pods.Items {
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if !p.Spec.HostNetwork && len(p.Status.PodIPs) > 0 && !ended && p.Name != "refused" {
			want[odltest.Pods] = append(want[odltest.Pods], string(p.UID))
		}
	}
	for _, n := range nodes.Items {
		want[odltest.Nodes] = append(want[odltest.Nodes], string(n.UID))
	}
	for _, s := range services.Items {
		want[odltest.Services] = append(want[odltest.Services], string(s.UID))
	}
	for _, keys := range want {
		slices.Sort(keys)
	}
	return want, nil
}

// all compares a pod's entry with what its Service, node and addresses are.
func (w watched) all(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	w.equal(ctx, t)
	pod := world.placed(ctx, t, "web1")
	want := []string{pod.Name}
	for _, ip := range pod.Status.PodIPs {
		want = append(want, ip.IP)
	}
	if got := w.odl.Has(odltest.Pods); !slices.Contains(got, strings.Join(want, " ")) {
		t.Errorf("the controller's pods are %q, without %q", got, want)
	}
	if got := w.odl.Has(odltest.Nodes); !slices.Contains(got, worker1) {
		t.Errorf("the controller's nodes are %q", got)
	}
}

// refused makes a pod that the controller refuses: it is told on the pod, and nothing else waits.
func (w watched) refused(t *testing.T) {
	ctx := within(t, time.Minute)
	makePod(ctx, t, sleeper("refused", worker1))
	makePod(ctx, t, sleeper("fine", worker2))
	w.equal(ctx, t)
	if _, err := warning(ctx, "refused", "a foul name"); err != nil {
		t.Error(err)
	}
	removePods(ctx, t, "refused")
}

// ends takes away one of the three after the other while pods come and go.
func (w watched) ends(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	for i, end := range []struct {
		what        string
		away, again func()
	}{
		{"the watchers", func() {
			remove(ctx, t, "-n", agents, "pod", "-l", "app.kubernetes.io/component=watcher", "--wait=false")
		}, func() { w.rolledOut(ctx, t) }},
		{"the controller", func() { w.odl.SetDown(true) }, func() { w.odl.SetDown(false) }},
		{"the API server", func() {
			if err := errors.Join(world.Stop(ctx, control, "kube-apiserver", syscall.SIGKILL), startAPI(ctx, control)); err != nil {
				t.Fatal(err)
			}
		}, func() { w.rolledOut(ctx, t) }},
	} {
		before, after := fmt.Sprintf("before-%d", i), fmt.Sprintf("after-%d", i)
		makePod(ctx, t, sleeper(before, worker1))
		end.away()
		removePods(ctx, t, before)
		makePod(ctx, t, sleeper(after, worker2))
		if err := world.waitReady(ctx, after); err != nil {
			t.Fatal(err)
		}
		end.again()
		w.equal(ctx, t)
		t.Logf("after %s were away, the controller has %d pods", end.what, len(w.odl.Keys(odltest.Pods)))
	}
}

// forgets has the controller lose everything, as after a reinstallation. The watcher notices when
// it reads it anew.
func (w watched) forgets(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	w.odl.Forget()
	w.equal(ctx, t)
}

// status is what the leader's `coelan-watcher status` shows.
func (w watched) status(t *testing.T) {
	ctx := within(t, time.Minute)
	if err := eventually(ctx, func() error {
		pods, err := world.api.CoreV1().Pods(agents).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=watcher"})
		if err != nil {
			return err
		}
		leaders := 0
		for _, p := range pods.Items {
			text, err := world.Kubectl(ctx, "-n", agents, "exec", p.Name, "--", "coelan-watcher", "status")
			if err != nil {
				return err
			}
			var r watcher.Report
			if err := json.Unmarshal(text, &r); err != nil {
				return fmt.Errorf("%w: %s", err, text)
			}
			if r.Leading {
				leaders++
				if !r.Connected || r.OldestSeconds != 0 {
					return fmt.Errorf("the leader's status is %s", text)
				}
			}
		}
		if leaders != 1 {
			return fmt.Errorf("%d of %d watchers lead", leaders, len(pods.Items))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
