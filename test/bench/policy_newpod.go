// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// newPods is how many start for each of the two servers.
const newPods = 20

// newPodPort is that of both servers.
const newPodPort = 7301

// newPodLabels are what the policy allows.
var newPodLabels = map[string]string{"app": "new"}

// firstConnections takes the time from the start of a pod's process until its first connection: to
// a server that a policy isolates, which allows the pod by its label, against one that no policy is
// for, by turns. The pods are of both nodes.
func (c *cluster) firstConnections(ctx context.Context, isolated, open podPlace) (results []Result, err error) {
	only := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: guardedNamespace, Name: "only-new"},
		Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From: []networkingv1.NetworkPolicyPeer{{
				NamespaceSelector: &metav1.LabelSelector{},
				PodSelector:       &metav1.LabelSelector{MatchLabels: newPodLabels},
			}},
		}}},
	}
	if err := c.api.Create(ctx, only); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.api.Delete(ctx, only)) }()
	var took [2][]float64
	for i, server := range []podPlace{isolated, open} {
		stop, err := server.accept(newPodPort)
		if err != nil {
			return nil, err
		}
		defer stop()
		took[i] = make([]float64, newPods)
	}
	for n := range newPods {
		for i, server := range []podPlace{isolated, open} {
			name := fmt.Sprintf("new-%d-%d", n, i)
			if took[i][n], err = c.firstConnection(ctx, name, c.WorkerNames()[n%c.Workers],
				netip.AddrPortFrom(server.address, newPodPort)); err != nil {
				return nil, err
			}
		}
	}
	var slowest [2]float64
	for i := range took {
		slowest[i] = percentile(took[i], 1)
	}
	return []Result{
		paired("policy-new-pod", "ms", took[0], took[1]),
		beside("policy-new-pod-slowest", "ms", slowest[0], slowest[1]),
	}, nil
}

// accept has a server in the pod accept connections until stop is called.
func (p podPlace) accept(port uint16) (stop func(), err error) {
	var l net.Listener
	if err := p.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(p.address, port).String())
		return err
	}); err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	return func() { _ = l.Close() }, nil
}

// firstConnection starts a pod that connects until it is answered, each time for a moment, and
// returns the milliseconds that it says it has taken.
func (c *cluster) firstConnection(ctx context.Context, name, node string, server netip.AddrPort) (float64, error) {
	events, err := c.api.Watch(ctx, &corev1.PodList{})
	if err != nil {
		return 0, err
	}
	defer events.Stop()
	pod := pausing(callersNamespace, name, node)
	pod.Labels, pod.Spec.RestartPolicy = newPodLabels, corev1.RestartPolicyNever
	script := `start=$(date +%s%N); until /agnhost connect "$0" --timeout=20ms --protocol=tcp; do :; done; echo -n $(($(date +%s%N)-start)) >/dev/termination-log`
	pod.Spec.Containers[0].Command, pod.Spec.Containers[0].Args = []string{"sh", "-c", script, server.String()}, nil
	if err := c.api.Create(ctx, pod); err != nil {
		return 0, err
	}
	message := ""
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := until(ctx, events, "the end of pod "+name, func(o runtime.Object) bool {
		p, ok := o.(*corev1.Pod)
		if !ok || p.Name != name || p.Status.Phase != corev1.PodSucceeded || len(p.Status.ContainerStatuses) == 0 {
			return false
		}
		ended := p.Status.ContainerStatuses[0].State.Terminated
		if ended != nil {
			message = ended.Message
		}
		return ended != nil
	}); err != nil {
		return 0, err
	}
	nanoseconds, err := strconv.ParseInt(message, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("pod %s: says %q: %w", name, message, err)
	}
	return float64(nanoseconds) / 1e6, c.api.Delete(ctx, pod)
}
