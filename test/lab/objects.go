// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// setNode publishes a node as kubelet and the controller manager would.
func (a *API) setNode(n *Node) {
	o := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: types.UID("uid-" + n.Name)},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.Name}}},
	}
	for _, p := range n.PodCIDRs {
		o.Spec.PodCIDRs = append(o.Spec.PodCIDRs, p.String())
	}
	o.Spec.PodCIDR = o.Spec.PodCIDRs[0]
	for _, p := range n.Addresses {
		o.Status.Addresses = append(o.Status.Addresses,
			corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: p.Addr().String()})
	}
	a.set("nodes", n.Name, o)
}

// setPod publishes a pod that is bound to its node.
func (a *API) setPod(p *Pod) {
	a.set("pods", p.Name, &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: types.UID(p.UID)},
		Spec:       corev1.PodSpec{NodeName: p.Node.Name},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	})
}

// kubeconfig is how a node's agent finds the API server.
func kubeconfig() string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "http://%s"}}]
users: [{name: agent, user: {}}]
contexts: [{name: lab, context: {cluster: lab, user: agent}}]
current-context: lab
`, apiAddress)
}
