// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/internal/sandbox"
)

// The pods that kwok plays, on nodes that it plays, and the policies that are for them. A node's
// podCIDR has room for 250.
const (
	crowdPods       = 10_000
	crowdNodes      = 125
	crowdNamespaces = 100
	crowdPolicies   = 1000
)

const (
	crowdApps    = 10 // of each namespace
	crowdLabel   = "crowd"
	crowdTimeout = 5 * time.Minute
	crowdWriters = 8 // calls of the API at a time
)

// addCrowd fills the cluster and has the clients be isolated for egress, by a policy that allows
// them every pod of the cluster, so that their nodes have to know all of these. It returns when
// they do, with the number of flows of a node.
func (c *cluster) addCrowd(ctx context.Context) (flows float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, crowdTimeout)
	defer cancel()
	if err := c.addCrowdNodes(ctx); err != nil {
		return 0, err
	}
	for _, step := range []struct {
		number int
		add    func(context.Context, int) error
	}{
		{crowdNamespaces, func(ctx context.Context, i int) error { return c.addNamespace(ctx, crowdNamespace(i)) }},
		{crowdPolicies, func(ctx context.Context, i int) error { return c.api.Create(ctx, crowdPolicy(i)) }},
	} {
		if err := parallel(ctx, step.number, step.add); err != nil {
			return 0, err
		}
	}
	if err := c.api.Create(ctx, callersPolicy()); err != nil {
		return 0, err
	}
	addresses, err := c.addCrowdPods(ctx)
	if err != nil {
		return 0, err
	}
	for _, node := range c.WorkerNames() {
		if flows, err = c.waitFlows(ctx, node, addresses); err != nil {
			return 0, err
		}
	}
	return flows, nil
}

// parallel does a number of things, some at a time.
func parallel(ctx context.Context, number int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(crowdWriters)
	for i := range number {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// addCrowdNodes returns when the nodes are Ready and have subnets for pods.
func (c *cluster) addCrowdNodes(ctx context.Context) error {
	events, err := c.api.Watch(ctx, &corev1.NodeList{}, client.MatchingLabels{crowdLabel: ""})
	if err != nil {
		return err
	}
	defer events.Stop()
	if err := parallel(ctx, crowdNodes, func(ctx context.Context, i int) error {
		return c.api.Create(ctx, crowdNode(i))
	}); err != nil {
		return err
	}
	ready := map[string]bool{}
	return until(ctx, events, "nodes that kwok plays", func(o runtime.Object) bool {
		if n, ok := o.(*corev1.Node); ok && len(n.Spec.PodCIDRs) > 0 && nodeReady(n) {
			ready[n.Name] = true
		}
		return len(ready) == crowdNodes
	})
}

func nodeReady(n *corev1.Node) bool {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// addCrowdPods returns when all pods are Running, and how many addresses they have.
func (c *cluster) addCrowdPods(ctx context.Context) (addresses int, err error) {
	err = parallel(ctx, crowdPods, func(ctx context.Context, i int) error { return c.api.Create(ctx, crowdPod(i)) })
	if err != nil {
		return 0, err
	}
	clients, err := c.Clientset()
	if err != nil {
		return 0, err
	}
	running := cache.NewFilteredListWatchFromClient(clients.CoreV1().RESTClient(), "pods", "",
		func(o *metav1.ListOptions) {
			o.LabelSelector, o.FieldSelector = crowdLabel, "status.phase="+string(corev1.PodRunning)
		})
	seen := map[string]bool{}
	// Of so many pods one watch might end early.
	_, err = watchtools.UntilWithSync(ctx, running, &corev1.Pod{}, nil, func(e watch.Event) (bool, error) {
		if p, ok := e.Object.(*corev1.Pod); ok && !seen[string(p.UID)] {
			seen[string(p.UID)] = true
			addresses += len(p.Status.PodIPs)
		}
		return len(seen) == crowdPods, nil
	})
	if err != nil {
		return 0, fmt.Errorf("%d of %d pods that kwok plays are Running: %w", len(seen), crowdPods, err)
	}
	return addresses, nil
}

// crowdNode has an address of its own, of those that are for documentation. It has no label
// kubernetes.io/os, so that no DaemonSet has pods there.
func crowdNode(i int) *corev1.Node {
	name := crowdNodeName(i)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{crowdLabel: ""},
			Annotations: map[string]string{sandbox.AnnotationFakeNode: sandbox.FakeNode},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: sandbox.AnnotationFakeNode, Value: sandbox.FakeNode, Effect: corev1.TaintEffectNoSchedule},
		}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: nth(netip.MustParseAddr("198.51.100.1"), i).String()},
			{Type: corev1.NodeHostName, Address: name},
		}},
	}
}

func crowdNodeName(i int) string  { return fmt.Sprintf("fake-%d", i) }
func crowdNamespace(i int) string { return fmt.Sprintf("crowd-%d", i) }
func crowdApp(i int) string       { return fmt.Sprintf("app-%d", i%crowdApps) }

func crowdPod(i int) *corev1.Pod {
	number, token := i/crowdNamespaces, false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: crowdNamespace(i % crowdNamespaces), Name: fmt.Sprintf("pod-%d", number),
			Labels: map[string]string{crowdLabel: "", "app": crowdApp(number)},
		},
		Spec: corev1.PodSpec{
			NodeName:                     crowdNodeName(i % crowdNodes),
			AutomountServiceAccountToken: &token,
			Containers:                   []corev1.Container{{Name: "main", Image: image}},
		},
	}
}

// crowdPolicy is for one application of a namespace: another one may talk to it, and the same of
// the next namespace.
func crowdPolicy(i int) *networkingv1.NetworkPolicy {
	namespace, number := i%crowdNamespaces, i/crowdNamespaces
	tcp, port := corev1.ProtocolTCP, intstr.FromInt32(int32(8000+number)) //nolint:gosec // less than crowdApps
	next := map[string]string{corev1.LabelMetadataName: crowdNamespace((namespace + 1) % crowdNamespaces)}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: crowdNamespace(namespace), Name: crowdApp(number)},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: applicationSelector(number),
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				From: []networkingv1.NetworkPolicyPeer{
					{PodSelector: new(applicationSelector(number + 1))},
					{PodSelector: new(applicationSelector(number)),
						NamespaceSelector: &metav1.LabelSelector{MatchLabels: next}},
				},
				Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &port}},
			}},
		},
	}
}

func applicationSelector(i int) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{"app": crowdApp(i)}}
}

func callersPolicy() *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: callersNamespace, Name: "all-pods"},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress: []networkingv1.NetworkPolicyEgressRule{{
				To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}},
			}},
		},
	}
}

// waitFlows returns when the node has at least so many flows, and how many it has. There is no
// event for that, so it polls.
func (c *cluster) waitFlows(ctx context.Context, node string, most int) (float64, error) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := c.Exec(ctx, node, "ovs-ofctl", "--timeout=60", "-O", "OpenFlow15", "dump-aggregate", "br-int")
		if err != nil {
			return 0, err
		}
		m := regexp.MustCompile(`flow_count=(\d+)`).FindSubmatch(out)
		if m == nil {
			return 0, fmt.Errorf("dump-aggregate printed no flow_count: %q", out)
		}
		flows, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil || flows >= float64(most) {
			return flows, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("node %s has %.0f flows, and there are %d addresses of pods: %w", node, flows, most,
				ctx.Err())
		}
	}
}
