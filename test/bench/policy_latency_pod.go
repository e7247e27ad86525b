// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podPlace is the network namespace of a pod, and the pod's first address.
type podPlace struct {
	netns   string
	address netip.Addr
}

// place finds a pod's. Numbers of processes are those of its node.
func (c *cluster) place(ctx context.Context, namespace, name string) (podPlace, error) {
	var pod corev1.Pod
	if err := c.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
		return podPlace{}, err
	}
	address, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil {
		return podPlace{}, fmt.Errorf("pod %s/%s: %w", namespace, name, err)
	}
	tasks, err := c.Exec(ctx, pod.Spec.NodeName, "ctr", "tasks", "list")
	if err != nil {
		return podPlace{}, err
	}
	for _, status := range pod.Status.ContainerStatuses {
		id := strings.TrimPrefix(status.ContainerID, "containerd://")
		for line := range strings.Lines(string(tasks)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == id {
				return podPlace{fmt.Sprintf("/proc/%d/root/proc/%s/ns/net", c.PID(pod.Spec.NodeName), f[1]), address},
					nil
			}
		}
	}
	return podPlace{}, fmt.Errorf("pod %s/%s has no container that runs", namespace, name)
}

// Do runs fn on a thread that is in the namespace. Sockets that fn opens stay there, whichever
// thread uses them later.
func (p podPlace) Do(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		f, err := os.Open(p.netns)
		if err == nil {
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
			f.Close()
		}
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	return <-done
}
