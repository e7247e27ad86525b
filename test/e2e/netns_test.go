// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// place is where traffic starts or ends: the network namespace of a pod or of a machine, and its
// addresses. Without a namespace it is that of the tests.
type place struct {
	name      string
	netns     string
	addresses []netip.Addr
}

// Do runs fn on a thread that is in the namespace. Sockets that fn opens stay there, whichever
// thread uses them later.
func (p place) Do(fn func() error) error {
	if p.netns == "" {
		return fn()
	}
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		f, err := os.Open(p.netns)
		if err != nil {
			done <- fmt.Errorf("%s: %w", p.name, err)
			return
		}
		err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		f.Close()
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	return <-done
}

// run runs a program in the namespace and returns what it printed.
func (p place) run(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	var out []byte
	err := p.Do(func() (err error) { // a child starts in the namespaces of its parent's thread
		out, err = exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Errorf("%s: %v: %v: %s", p.name, args, err, out)
	}
	return string(out)
}

func (p place) address(f family) netip.Addr {
	for _, a := range p.addresses {
		if f.has(a) {
			return a
		}
	}
	return netip.Addr{}
}

// netns is the network of a node or of the fabric.
func (c *cluster) netns(name string) place {
	return place{name: name, netns: fmt.Sprintf("/proc/%d/ns/net", c.PID(name))}
}

// machine is a node or the fabric; a node's address is in the Kubernetes API.
func (c *cluster) machine(ctx context.Context, t *testing.T, name string) place {
	t.Helper()
	p := c.netns(name)
	for _, f := range families {
		if name == "fabric" {
			p.addresses = append(p.addresses, outside(f))
		} else {
			p.addresses = append(p.addresses, c.nodeAddress(ctx, t, name, f))
		}
	}
	return p
}

// pod is a pod as it is now, with the addresses that Kubernetes knows: a reboot gives it
// others and another namespace.
func (c *cluster) pod(ctx context.Context, t *testing.T, key string) place {
	t.Helper()
	pod := c.placed(ctx, t, key)
	p := c.container(ctx, t, pod)
	for _, ip := range pod.Status.PodIPs {
		p.addresses = append(p.addresses, netip.MustParseAddr(ip.IP))
	}
	return p
}

// tenant is a pod with the addresses of its eth0: to Kubernetes those of a
// private Router mean nothing.
func (c *cluster) tenant(ctx context.Context, t *testing.T, key string) place {
	t.Helper()
	p := c.container(ctx, t, c.placed(ctx, t, key))
	p.addresses = p.on(t, "eth0")
	return p
}

// on are the addresses of an interface.
func (p place) on(t *testing.T, ifname string) (list []netip.Addr) {
	t.Helper()
	err := p.Do(func() error {
		i, err := net.InterfaceByName(ifname)
		if err != nil {
			return err
		}
		addresses, err := i.Addrs()
		for _, a := range addresses {
			ip, _ := netip.AddrFromSlice(a.(*net.IPNet).IP)
			if !ip.Unmap().IsLinkLocalUnicast() {
				list = append(list, ip.Unmap())
			}
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s, %s: %v", p.name, ifname, err)
	}
	return list
}

func (c *cluster) placed(ctx context.Context, t *testing.T, key string) *corev1.Pod {
	t.Helper()
	namespace, name := split(key)
	pod, err := c.api.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(pod.Status.ContainerStatuses) == 0 {
		t.Fatalf("pod %s has no container", key)
	}
	return pod
}

// container is the network namespace of a pod.
func (c *cluster) container(ctx context.Context, t *testing.T, pod *corev1.Pod) place {
	t.Helper()
	id := strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "containerd://")
	pid, err := c.taskPID(ctx, pod.Spec.NodeName, id)
	if err != nil {
		t.Fatalf("pod %s/%s: %v", pod.Namespace, pod.Name, err)
	}
	// Numbers of processes are those of the node.
	return place{
		name:  pod.Namespace + "/" + pod.Name,
		netns: fmt.Sprintf("/proc/%d/root/proc/%s/ns/net", c.PID(pod.Spec.NodeName), pid),
	}
}

// taskPID is the process of a container as its node sees it.
func (c *cluster) taskPID(ctx context.Context, node, id string) (string, error) {
	out, err := c.Exec(ctx, node, "ctr", "tasks", "list")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == id && f[2] == "RUNNING" {
			return f[1], nil
		}
	}
	return "", fmt.Errorf("container %s does not run on %s", id, node)
}
