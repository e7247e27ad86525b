// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

const (
	controllerSelector = "app.kubernetes.io/name=coelan,app.kubernetes.io/component=controller"
	leaderLease        = "coelan-controller"
	// takeover is the longest time without a leader after one was killed.
	takeover = 15 * time.Second
)

// testLeader kills the leader of the controllers as its node's loss does: without a word,
// and it does not come back. A pod on a network that is there starts meanwhile, and
// another replica leads soon.
func testLeader(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	old, err := leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := leaderPod(ctx, old)
	if err != nil {
		t.Fatal(err)
	}
	id := strings.TrimPrefix(containerID(pod), "containerd://")
	signal := func(ctx context.Context, s syscall.Signal) error {
		_, err := world.Exec(ctx, pod.Spec.NodeName, "ctr", "tasks", "kill", "--signal", strconv.Itoa(int(s)), id)
		return err
	}
	if err := signal(ctx, syscall.SIGSTOP); err != nil { // kubelet would start it anew
		t.Fatal(err)
	}
	killed := time.Now()
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if err := signal(ctx, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		if _, err := world.Kubectl(ctx, "-n", agents, "rollout", "status", "deployment/coelan-controller", "--timeout=120s"); err != nil {
			t.Error(err)
		}
	})
	makePod(ctx, t, webServer("red/meanwhile", worker1))
	makePod(ctx, t, webServer("meanwhile", worker2))
	apply(ctx, t, "{apiVersion: coelan.io/v1alpha1, kind: Network, metadata: {name: later}, spec: {subnets: [{cidr: 10.73.0.0/24}]}}")
	if err := world.waitReady(ctx, "red/meanwhile", "meanwhile"); err != nil {
		t.Fatal(err)
	}
	if now, err := leader(ctx); err != nil || now != old {
		t.Logf("%s leads already, %v", now, err)
	} else {
		t.Logf("pods were ready without a leader after %s", time.Since(killed))
	}
	var now string
	if err := eventually(ctx, func() (err error) {
		if now, err = leader(ctx); err == nil && now == old {
			err = errors.New("the old leader has the Lease")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	took := time.Since(killed)
	t.Logf("another replica leads after %s", took)
	if took > takeover {
		t.Errorf("another replica leads after %s, want at most %s", took, takeover)
	}
	if err := wait(ctx, named(&v1alpha1.Network{}, "later"), networkReady); err != nil {
		t.Error(err)
	}
	remove(ctx, t, "networks.coelan.io", "later")
	removePods(ctx, t, "red/meanwhile")
	removePods(ctx, t, "meanwhile")
}

// leader is the holder of the Lease: the name of its pod, and an id after it.
func leader(ctx context.Context) (string, error) {
	lease, err := world.api.CoordinationV1().Leases(agents).Get(ctx, leaderLease, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", errors.New("nobody leads")
	}
	return *lease.Spec.HolderIdentity, nil
}

func leaderPod(ctx context.Context, identity string) (*corev1.Pod, error) {
	pods, err := world.api.CoreV1().Pods(agents).List(ctx, metav1.ListOptions{LabelSelector: controllerSelector})
	if err != nil {
		return nil, err
	}
	host, _, _ := strings.Cut(identity, "_")
	for _, p := range pods.Items {
		// In its node's network a pod has the name of its node.
		if p.Name == host || p.Spec.NodeName == host {
			return &p, nil
		}
	}
	return nil, fmt.Errorf("no pod is the leader %s", identity)
}
