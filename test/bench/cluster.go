// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/sandbox"
)

// clusterName is the sandbox that exists for one run.
const clusterName = "bench"

// upTimeout bounds the start of the sandbox, startTimeout the start of pods, which share the
// machine with it.
const (
	upTimeout    = 8 * time.Minute
	startTimeout = 2 * time.Minute
)

// image is on every node of a sandbox.
const image = "registry.k8s.io/e2e-test-images/agnhost:2.56"

// cluster is a sandbox with Coelan: the API server, the controller and the agents are real.
type cluster struct {
	*sandbox.Sandbox
	api client.WithWatch
}

// startCluster brings it up; it lasts until the returned function is called, also after an error.
func startCluster(ctx context.Context) (*cluster, func(), error) {
	down := func() {
		if err := sandbox.Down(context.Background(), clusterName, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	s, err := sandbox.Up(ctx, sandbox.Spec{Name: clusterName}, sandbox.Install{}, os.Stderr)
	if err != nil {
		return nil, down, err
	}
	config, err := s.RESTConfig()
	if err != nil {
		return nil, down, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, down, err
		}
	}
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	return &cluster{s, api}, down, err
}

// addNamespace makes a namespace in which pods can be made: its service account is there.
func (c *cluster) addNamespace(ctx context.Context, name string) error {
	events, err := c.api.Watch(ctx, &corev1.ServiceAccountList{}, client.InNamespace(name))
	if err != nil {
		return err
	}
	defer events.Stop()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tenant": name}}}
	if err := c.api.Create(ctx, ns); err != nil {
		return err
	}
	return until(ctx, events, "service account of namespace "+name, func(o runtime.Object) bool {
		a, ok := o.(*corev1.ServiceAccount)
		return ok && a.Name == "default"
	})
}

// until reads events until one is of an object that done accepts.
func until(ctx context.Context, events watch.Interface, what string, done func(runtime.Object) bool) error {
	for {
		select {
		case e, open := <-events.ResultChan():
			if !open {
				return fmt.Errorf("%s: the watch has ended", what)
			}
			if e.Type != watch.Deleted && done(e.Object) {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
	}
}

// startPods creates pods that pause in a namespace, by turns on the workers, and returns the
// milliseconds from the creation of each to its being Ready. Those that are not by
// startTimeout are left out.
func (c *cluster) startPods(ctx context.Context, namespace string, names ...string) ([]float64, error) {
	events, err := c.api.Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	defer events.Stop()
	began := map[string]time.Time{}
	for i, name := range names {
		began[name] = time.Now()
		if err := c.api.Create(ctx, pausing(namespace, name, c.WorkerNames()[i%c.Workers])); err != nil {
			return nil, err
		}
	}
	var took []float64
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = until(limited, events, "pods of namespace "+namespace, func(o runtime.Object) bool {
		p, ok := o.(*corev1.Pod)
		if start, new := began[p.GetName()]; ok && new && podReady(p) {
			took = append(took, milliseconds(time.Since(start)))
			delete(began, p.Name)
		}
		return len(began) == 0
	})
	if limited.Err() != nil && ctx.Err() == nil {
		return took, nil
	}
	return took, err
}

func pausing(namespace, name, node string) *corev1.Pod {
	none := int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{corev1.LabelHostname: node},
			TerminationGracePeriodSeconds: &none,
			Containers:                    []corev1.Container{{Name: "main", Image: image, Args: []string{"pause"}}},
		},
	}
}

func podReady(p *corev1.Pod) bool {
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// endPods deletes all pods of a namespace and waits until they are gone.
func (c *cluster) endPods(ctx context.Context, namespace string) error {
	_, err := c.Kubectl(ctx, "delete", "pods", "--all", "-n", namespace, "--timeout", startTimeout.String())
	return err
}
