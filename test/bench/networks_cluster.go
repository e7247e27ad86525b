// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
)

// Rounds of the first ping, and pods that start while the controller is down.
const (
	pingRounds  = 5
	podsWithout = 20
)

// measureCluster measures what needs a real API server and the controller.
func measureCluster(ctx context.Context) ([]Result, error) {
	c, down, err := startCluster(ctx)
	defer down()
	if err != nil {
		return nil, err
	}
	results, err := c.firstPings(ctx)
	if err != nil {
		return nil, err
	}
	more, err := c.withoutController(ctx)
	return append(results, more...), err
}

// firstPings is the time from the creation of a Network until a pod on it has had an answer
// from another one, on another node; the reference is two pods on the pod network, from the
// creation of the first.
func (c *cluster) firstPings(ctx context.Context) ([]Result, error) {
	var ready, ours, reference []float64
	for i := range pingRounds {
		tenant, plain := fmt.Sprintf("tenant-%d", i), fmt.Sprintf("plain-%d", i)
		for _, ns := range []string{tenant, plain} {
			if err := c.addNamespace(ctx, ns); err != nil {
				return nil, err
			}
		}
		start := time.Now()
		known, err := c.addNetwork(ctx, tenant)
		if err != nil {
			return nil, err
		}
		if err := c.pingPods(ctx, tenant); err != nil {
			return nil, err
		}
		ours = append(ours, milliseconds(time.Since(start)))
		r := <-known
		if r.err != nil {
			return nil, r.err
		}
		ready = append(ready, milliseconds(r.at.Sub(start)))
		start = time.Now()
		if err := c.pingPods(ctx, plain); err != nil {
			return nil, err
		}
		reference = append(reference, milliseconds(time.Since(start)))
		if err := c.endPods(ctx, plain); err != nil {
			return nil, err
		}
	}
	return []Result{
		absolute("network-ready", "ms", percentile(ready, 0.5)),
		beside("network-first-ping", "ms", percentile(ours, 0.5), percentile(reference, 0.5)),
	}, nil
}

// readiness is when an object was seen to be Ready, or why it was not.
type readiness struct {
	at  time.Time
	err error
}

// addNetwork creates a primary Network for a namespace of the same name; all of them have the same
// subnets. The channel says when it was Ready.
func (c *cluster) addNetwork(ctx context.Context, name string) (<-chan readiness, error) {
	events, err := c.api.Watch(ctx, &v1alpha1.NetworkList{}, client.MatchingFields{"metadata.name": name})
	if err != nil {
		return nil, err
	}
	done := make(chan readiness, 1)
	go func() {
		defer events.Stop()
		limited, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		err := until(limited, events, "network "+name, func(o runtime.Object) bool {
			n, ok := o.(*v1alpha1.Network)
			return ok && meta.IsStatusConditionTrue(n.Status.Conditions, v1alpha1.ConditionReady)
		})
		done <- readiness{time.Now(), err}
	}()
	return done, c.api.Create(ctx, &v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.NetworkSpec{
			Role:              v1alpha1.Primary,
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": name}},
			Subnets:           []v1alpha1.Subnet{{CIDR: "10.10.0.0/16"}, {CIDR: "fd00:10::/64"}},
		},
	})
}

// pingPods starts a pod on each of two workers and returns when the one has had an
// answer from the other.
func (c *cluster) pingPods(ctx context.Context, namespace string) error {
	took, err := c.startPods(ctx, namespace, "a", "b")
	if err != nil {
		return err
	}
	if len(took) < 2 {
		return fmt.Errorf("only %d of 2 pods in namespace %s have started", len(took), namespace)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	out, err := c.Kubectl(ctx, "exec", "-n", namespace, "b", "--", "hostname", "-I")
	if err != nil {
		return err
	}
	address, _, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	_, err = c.Kubectl(ctx, "exec", "-n", namespace, "a", "--", "sh", "-c",
		"until ping -c 1 -W 1 "+address+"; do :; done")
	return err
}

// withoutController starts pods on a Network of which the nodes have a block, with the controller
// and without it.
func (c *cluster) withoutController(ctx context.Context) ([]Result, error) {
	var names []string
	for i := range podsWithout {
		names = append(names, fmt.Sprintf("pod-%d", i))
	}
	// The pods of the first rounds keep a block on each node.
	with, without := "tenant-0", "tenant-1"
	reference, err := c.startPods(ctx, with, names...)
	if err != nil {
		return nil, err
	}
	if len(reference) < podsWithout {
		return nil, fmt.Errorf("only %d of %d pods have started while the controller runs", len(reference), podsWithout)
	}
	if err := c.endPods(ctx, with); err != nil {
		return nil, err
	}
	if err := c.stopController(ctx); err != nil {
		return nil, err
	}
	ours, err := c.startPods(ctx, without, names...)
	if err != nil {
		return nil, err
	}
	started := absolute("controller-down-pods", fmt.Sprintf("of %d", podsWithout), float64(len(ours)))
	if len(ours) == 0 {
		return []Result{started}, nil
	}
	return []Result{started, beside("controller-down-start", "ms", percentile(ours, 0.5), percentile(reference, 0.5))},
		nil
}

// stopController ends all replicas and waits until they are gone.
func (c *cluster) stopController(ctx context.Context) error {
	for _, args := range [][]string{
		{"scale", "deployment/coelan-controller", "--replicas=0"},
		{"wait", "--for=delete", "pod", "-l", "app.kubernetes.io/component=controller", "--timeout",
			startTimeout.String()},
	} {
		if _, err := c.Kubectl(ctx, append([]string{"-n", "coelan-system"}, args...)...); err != nil {
			return err
		}
	}
	return nil
}
