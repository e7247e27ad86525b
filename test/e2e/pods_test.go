// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func makePod(ctx context.Context, t *testing.T, p *corev1.Pod) {
	t.Helper()
	if _, err := world.api.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// removePods deletes pods and waits until they are gone.
func removePods(ctx context.Context, t *testing.T, names ...string) {
	t.Helper()
	args := append([]string{"-n", namespace, "delete", "pod", "--wait=true", "--timeout=60s"}, names...)
	if _, err := world.Kubectl(ctx, args...); err != nil {
		t.Error(err)
	}
}

// ask has a pod ask the web server of another, in both families.
func ask(ctx context.Context, t *testing.T, client, server string) error {
	t.Helper()
	from, to := world.pod(ctx, t, client), world.pod(ctx, t, server)
	for _, f := range families {
		if _, err := clientOf(ctx, from, netip.AddrPortFrom(to.address(f), 8080)); err != nil {
			return fmt.Errorf("pod %s to %s, %s: %w", client, server, f, err)
		}
	}
	return nil
}
