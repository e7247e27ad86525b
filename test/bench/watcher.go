// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/internal/child"
	"coelan.io/coelan/internal/watcher/odltest"
)

// Pods of the cluster, and changes that are measured one after the other.
const (
	watcherPods    = 5000
	watcherChanges = 100
	watcherTimeout = 5 * time.Minute
)

// Bars and aims of the watcher.
const (
	watcherFillBar, watcherFillAim     = 30_000, 10_000 // ms
	watcherChangeBar, watcherChangeAim = 100, 50        // ms
	watcherRSSBar, watcherRSSAim       = 150, 100       // MiB
)

// watched is a controller that says when it was written to.
type watched struct {
	*odltest.Controller
	mu      sync.Mutex
	pods    map[string]time.Time // when each pod's entry was last written
	changed chan struct{}
}

// ServeHTTP implements http.Handler.
func (w *watched) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	w.Controller.ServeHTTP(answer, r)
	if r.Method != http.MethodPut || path.Dir(r.URL.Path) != "/restconf/config/"+odltest.Pods {
		return
	}
	w.mu.Lock()
	w.pods[path.Base(r.URL.Path)] = time.Now()
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// until waits until something is so, looking after each write.
func (w *watched) until(ctx context.Context, done func(pods map[string]time.Time) bool) error {
	ctx, cancel := context.WithTimeout(ctx, watcherTimeout)
	defer cancel()
	for {
		w.mu.Lock()
		so := done(w.pods)
		w.mu.Unlock()
		if so {
			return nil
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			return fmt.Errorf("the controller does not get it: %w", ctx.Err())
		}
	}
}

// measureWatcher measures a watcher's process between an API server with many pods and a strict
// controller: the first writes of all, single changes, and its memory.
func measureWatcher(ctx context.Context) ([]Result, error) {
	a, c, end, err := launchAPI(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	pods := make([]*corev1.Pod, watcherPods)
	if err := fill(ctx, watcherPods, func(ctx context.Context, i int) (err error) {
		pods[i], err = runningPod(ctx, c, i)
		return err
	}); err != nil {
		return nil, err
	}
	w := &watched{Controller: odltest.New("none"), pods: map[string]time.Time{}, changed: make(chan struct{}, 1)}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: w, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // it ends by Close
	defer server.Close()
	start, stop, err := buildWatcher(ctx, a.Kubeconfig, "http://"+l.Addr().String())
	if err != nil {
		return nil, err
	}
	defer stop()
	began := time.Now()
	process, err := start()
	if err != nil {
		return nil, err
	}
	if err := w.until(ctx, func(pods map[string]time.Time) bool { return len(pods) == watcherPods }); err != nil {
		return nil, err
	}
	filled := time.Since(began)
	var took []float64
	for i := range watcherChanges {
		ms, err := w.change(ctx, c, pods[i], i)
		if err != nil {
			return nil, err
		}
		took = append(took, ms)
	}
	peak, err := peakMiB(process.Pid)
	if err != nil {
		return nil, err
	}
	return []Result{
		absolute("watcher-5000-from-nothing", "ms", milliseconds(filled)).atMost(watcherFillBar, watcherFillAim),
		absolute("watcher-change-p50", "ms", percentile(took, 0.5)),
		absolute("watcher-change-p99", "ms", percentile(took, 0.99)).atMost(watcherChangeBar, watcherChangeAim),
		absolute("watcher-rss-peak", "MiB", peak).atMost(watcherRSSBar, watcherRSSAim),
	}, nil
}

// change gives a pod another address, and returns the milliseconds from then until the controller
// has it.
func (w *watched) change(ctx context.Context, c client.Client, p *corev1.Pod, i int) (float64, error) {
	p.Status.PodIP = fmt.Sprintf("10.99.%d.%d", i/250, i%250+1)
	p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
	began := time.Now()
	if err := c.Status().Update(ctx, p); err != nil {
		return 0, err
	}
	var at time.Time
	err := w.until(ctx, func(pods map[string]time.Time) bool {
		at = pods[string(p.UID)]
		return at.After(began)
	})
	return milliseconds(at.Sub(began)), err
}

func runningPod(ctx context.Context, c client.Client, i int) (*corev1.Pod, error) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("p%d", i)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}
	if err := c.Create(ctx, p); err != nil {
		return nil, err
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.98.%d.%d", i/250, i%250+1)}
	p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
	return p, c.Status().Update(ctx, p)
}

// buildWatcher builds the program. It runs from start to stop.
func buildWatcher(ctx context.Context, kubeconfig, controller string,
) (start func() (*os.Process, error), stop func(), err error) {
	dir, err := os.MkdirTemp("", "bench-watcher")
	if err != nil {
		return nil, nil, err
	}
	binary, file := filepath.Join(dir, "coelan-watcher"), filepath.Join(dir, "coe.yaml")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary,
		"coelan.io/coelan/cmd/coelan-watcher")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("coelan-watcher: %w: %s", err, out)
	}
	config := fmt.Appendf(nil, "kube: {config: %q}\nodl: {host: %q}\nsocket: %q\nlogLevel: error\n",
		kubeconfig, controller, filepath.Join(dir, "s"))
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, binary, "odl", "--config", file)
	cmd.Stderr = os.Stderr
	start = func() (*os.Process, error) {
		err := child.Start(cmd)
		return cmd.Process, err
	}
	stop = func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		}
		_ = os.RemoveAll(dir)
	}
	return start, stop, nil
}
