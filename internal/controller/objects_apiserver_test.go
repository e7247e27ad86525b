// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

// The objects that tests are made of.

func (w *world) node(number int) *corev1.Node {
	w.Helper()
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("worker%d", number)},
		Spec: corev1.NodeSpec{
			PodCIDR:  fmt.Sprintf("10.244.%d.0/24", number),
			PodCIDRs: []string{fmt.Sprintf("10.244.%d.0/24", number), fmt.Sprintf("fd00:10:244:%d::/64", number)},
		},
	}
	w.create(n)
	w.status(n, func() {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.168.33.1%d", number)}}
	})
	return n
}

func (w *world) namespace(name string, labels map[string]string) *corev1.Namespace {
	w.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	w.create(n)
	return n
}

// pod makes one that is on a node already; "": it waits for one.
func (w *world) pod(namespace, name, node string) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	w.create(p)
	return p
}

// podPort makes the Port of a pod, as its agent does.
func (w *world) podPort(pod *corev1.Pod, network, address string) *v1alpha1.Port {
	w.Helper()
	p := &v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name + ".eth0", Labels: map[string]string{v1alpha1.LabelPodPort: "true"}},
		Spec: v1alpha1.PortSpec{
			Network: network,
			Pod:     &v1alpha1.PortPod{Name: pod.Name, UID: string(pod.UID), Interface: "eth0"},
		},
	}
	w.create(p)
	w.status(p, func() {
		p.Status = v1alpha1.PortStatus{
			Phase: v1alpha1.PortBound, Node: pod.Spec.NodeName, Addresses: []string{address}, MAC: "0a:ce:00:00:00:01",
		}
	})
	return p
}

func overlay(name, router string, cidrs ...string) *v1alpha1.Network {
	n := &v1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.NetworkSpec{Type: v1alpha1.Overlay, Role: v1alpha1.Secondary, IPAM: v1alpha1.Blocks, Router: router},
	}
	for _, c := range cidrs {
		n.Spec.Subnets = append(n.Spec.Subnets, v1alpha1.Subnet{CIDR: c})
	}
	return n
}

func router(name string, imports, exports []string) *v1alpha1.Router {
	return &v1alpha1.Router{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.RouterSpec{ImportRouteTargets: imports, ExportRouteTargets: exports},
	}
}

func userPort(namespace, name, network string, addresses ...string) *v1alpha1.Port {
	return &v1alpha1.Port{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.PortSpec{Network: network, Addresses: addresses},
	}
}
