// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Coelan's agent is not a component of the machine but a pod of a DaemonSet; its
// controller is a Deployment.
const (
	agentNamespace = "coelan-system"
	agentName      = "coelan-agent"
	agentSelector  = "app.kubernetes.io/name=coelan,app.kubernetes.io/component=agent"
	agentContainer = "agent"
	controllerName = "coelan-controller"

	// agentLabel with the value agentOff keeps the DaemonSet off a node.
	agentLabel = "coelan.io/agent"
	agentOff   = "disabled"
)

// AgentPod is the agent's pod on the node. There is none while the agent is stopped.
func (s *Sandbox) AgentPod(ctx context.Context, node string) (*corev1.Pod, error) {
	client, err := s.Clientset()
	if err != nil {
		return nil, err
	}
	pods, err := client.CoreV1().Pods(agentNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: agentSelector, FieldSelector: "spec.nodeName=" + node,
	})
	if err != nil {
		return nil, err
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			return &p, nil
		}
	}
	return nil, fmt.Errorf("no agent runs on %s", node)
}

// agentState is a pod's container: its id without the runtime's scheme, and whether it is ready.
func agentState(p *corev1.Pod) (id string, ready bool) {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == agentContainer {
			return strings.TrimPrefix(c.ContainerID, "containerd://"), c.Ready
		}
	}
	return "", false
}

func (s *Sandbox) signalAgent(ctx context.Context, node string, signal syscall.Signal) error {
	pod, err := s.AgentPod(ctx, node)
	if err != nil {
		return err
	}
	id, _ := agentState(pod)
	if id == "" {
		return errors.New("the agent's container has not started yet")
	}
	_, err = s.Exec(ctx, node, "ctr", "-n", "k8s.io", "tasks", "kill", "--signal", strconv.Itoa(int(signal)), id)
	return err
}

// restartAgent ends the agent's process and waits for that which kubelet starts in its place.
func (s *Sandbox) restartAgent(ctx context.Context, node string, signal syscall.Signal) error {
	pod, err := s.AgentPod(ctx, node)
	if err != nil {
		return err
	}
	old, _ := agentState(pod)
	if err := s.signalAgent(ctx, node, signal); err != nil {
		return err
	}
	return s.waitAgentPod(ctx, node, func(p *corev1.Pod) bool {
		id, ready := agentState(p)
		return ready && id != old
	})
}

// stopAgent keeps the DaemonSet off the node and waits until its pod is gone.
func (s *Sandbox) stopAgent(ctx context.Context, node string) error {
	if err := s.labelAgent(ctx, node, `"`+agentOff+`"`); err != nil {
		return err
	}
	pod, err := s.AgentPod(ctx, node)
	if err != nil {
		return nil //nolint:nilerr // it is stopped
	}
	_, err = s.Kubectl(ctx, "-n", agentNamespace, "wait", "--for=delete", "pod/"+pod.Name, "--timeout=60s")
	return err
}

func (s *Sandbox) startAgent(ctx context.Context, node string) error {
	if err := s.labelAgent(ctx, node, "null"); err != nil {
		return err
	}
	return s.waitAgentPod(ctx, node, func(p *corev1.Pod) bool {
		_, ready := agentState(p)
		return ready
	})
}

// labelAgent sets the node's label to a JSON value.
func (s *Sandbox) labelAgent(ctx context.Context, node, value string) error {
	client, err := s.Clientset()
	if err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, agentLabel, value)
	_, err = client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("label node %s: %w", node, err)
	}
	return nil
}

func (s *Sandbox) waitAgentPod(ctx context.Context, node string, done func(*corev1.Pod) bool) error {
	err := s.watch(ctx, "pods", agentNamespace, "", anyObject(func(object runtime.Object) bool {
		p, ok := object.(*corev1.Pod)
		return ok && p.Spec.NodeName == node && p.DeletionTimestamp == nil &&
			p.Labels["app.kubernetes.io/component"] == "agent" && done(p)
	}))
	if err != nil {
		return fmt.Errorf("the agent on %s is not ready: %w; see `coelan sandbox logs --name %s %s agent`",
			node, err, s.Name, node)
	}
	return nil
}
