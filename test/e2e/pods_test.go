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
	"k8s.io/apimachinery/pkg/util/intstr"
)

const agnhost = "registry.k8s.io/e2e-test-images/agnhost:2.56"

// webPort is where the pods' web servers are.
const webPort = 8080

func makePod(ctx context.Context, t *testing.T, p *corev1.Pod) {
	t.Helper()
	if _, err := world.api.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// removePods deletes pods of one namespace and waits until they are gone.
func removePods(ctx context.Context, t *testing.T, keys ...string) {
	t.Helper()
	var namespace string
	args := []string{"pod", "--wait=true"}
	for _, key := range keys {
		var name string
		namespace, name = split(key)
		args = append(args, name)
	}
	remove(ctx, t, append([]string{"-n", namespace}, args...)...)
}

// ask has a pod ask the web server of another, in both families.
func ask(ctx context.Context, t *testing.T, client, server string) error {
	t.Helper()
	from, to := world.pod(ctx, t, client), world.pod(ctx, t, server)
	for _, f := range families {
		if _, err := clientOf(ctx, from, netip.AddrPortFrom(to.address(f), webPort)); err != nil {
			return fmt.Errorf("pod %s to %s, %s: %w", client, server, f, err)
		}
	}
	return nil
}

// sleeper is a pod that does nothing.
func sleeper(key, node string) *corev1.Pod {
	second := int64(1)
	namespace, name := split(key)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: &second,
			Containers: []corev1.Container{{Name: "agnhost", Image: agnhost, Args: []string{"pause"}}},
		},
	}
}

// webServer is a pod that answers with its name or the client's address, and has
// each kind of probe.
func webServer(key, node string) *corev1.Pod {
	p := sleeper(key, node)
	p.Labels = map[string]string{"app": "web"}
	c := &p.Spec.Containers[0]
	c.Args = []string{"netexec", fmt.Sprintf("--http-port=%d", webPort)}
	get := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/hostname", Port: intstr.FromInt32(webPort)}}
	run := corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}
	connect := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(webPort)}}
	c.StartupProbe = &corev1.Probe{ProbeHandler: run, PeriodSeconds: 1}
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: get, PeriodSeconds: 1, TimeoutSeconds: 3}
	c.LivenessProbe = &corev1.Probe{ProbeHandler: connect, PeriodSeconds: 2, TimeoutSeconds: 3}
	return p
}

// annotated adds an annotation.
func annotated(p *corev1.Pod, key, value string) *corev1.Pod {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[key] = value
	return p
}
