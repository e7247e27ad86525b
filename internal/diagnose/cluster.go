// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/policy"
)

// agentSelector finds the agents' pods; deploy/helm/coelan gives them these labels.
const agentSelector = "app.kubernetes.io/name=coelan,app.kubernetes.io/component=agent"

// controllerSelector finds the controllers' pods in the same way.
const controllerSelector = "app.kubernetes.io/name=coelan,app.kubernetes.io/component=controller"

// controllerBinary is where the image has the controller.
const controllerBinary = "/usr/bin/coelan-controller"

// agentBinary is where the image of Coelan has the agent (hack/images).
const agentBinary = "/usr/bin/coelan-agent"

// queryTimeout bounds one question to an agent.
const queryTimeout = 30 * time.Second

// Cluster reaches the agents through the API server. It needs the right to list pods and to create
// pods/exec in the agents' namespace.
type Cluster struct {
	config    *rest.Config
	client    kubernetes.Interface
	namespace string
	pods      map[string]string // agent's pod by node; nil until asked for
}

// NewCluster makes the client of the agents in a namespace.
func NewCluster(config *rest.Config, namespace string) (*Cluster, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Cluster{config: config, client: client, namespace: namespace}, nil
}

// Nodes implements Agents.
func (c *Cluster) Nodes(ctx context.Context) ([]string, error) {
	if err := c.find(ctx); err != nil {
		return nil, err
	}
	nodes := make([]string, 0, len(c.pods))
	for n := range c.pods {
		nodes = append(nodes, n)
	}
	slices.Sort(nodes)
	return nodes, nil
}

// find lists the agents' pods, once. Where a node has two, as during an update, the one
// that runs is asked.
func (c *Cluster) find(ctx context.Context) error {
	if c.pods != nil {
		return nil
	}
	list, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: agentSelector})
	if err != nil {
		return fmt.Errorf("list the agents' pods: %w", err)
	}
	if len(list.Items) == 0 {
		return fmt.Errorf("namespace %s has no pod with the labels %s: is Coelan installed there?", c.namespace,
			agentSelector)
	}
	c.pods = map[string]string{}
	for _, p := range list.Items {
		_, known := c.pods[p.Spec.NodeName]
		if p.Spec.NodeName != "" && (!known || p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil) {
			c.pods[p.Spec.NodeName] = p.Name
		}
	}
	return nil
}

// Query implements Agents.
func (c *Cluster) Query(ctx context.Context, node, path string, body, out any) error {
	if err := c.find(ctx); err != nil {
		return err
	}
	pod, ok := c.pods[node]
	if !ok {
		return fmt.Errorf("node %s has no agent in namespace %s", node, c.namespace)
	}
	command := []string{agentBinary, "query", path}
	if body != nil {
		question, err := json.Marshal(body)
		if err != nil {
			return err
		}
		command = append(command, string(question))
	}
	return c.ask(ctx, "agent of node "+node, pod, command, out)
}

// ask runs the command of a query in the pod of what it asks, and decodes the answer into out.
func (c *Cluster) ask(ctx context.Context, what, pod string, command []string, out any) error {
	answer, err := c.exec(ctx, pod, command)
	if err != nil {
		return fmt.Errorf("%s (pod %s/%s): %w", what, c.namespace, pod, err)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s (pod %s/%s): answer to %s: %w", what, c.namespace, pod, command[2], err)
	}
	return nil
}

// Policies are what has become of all policies.
func (c *Cluster) Policies(ctx context.Context) (statuses []policy.EnforcementStatus, err error) {
	err = c.askControllers(ctx, "/v1/policies", &statuses)
	return statuses, err
}

// OVN is how long OVN takes to follow; nil if the backend is another.
func (c *Cluster) OVN(ctx context.Context) (progress *agentapi.OVNProgress, err error) {
	err = c.askControllers(ctx, "/v1/ovn", &progress)
	return progress, err
}

// OVNCheck is how OVN's northbound database differs from what is wanted; nil if the backend is
// another.
func (c *Cluster) OVNCheck(ctx context.Context) (check *agentapi.OVNCheck, err error) {
	err = c.askControllers(ctx, "/v1/ovn/check", &check)
	return check, err
}

// Neutron is what the leading controller knows of Neutron; nil: the backend is another.
func (c *Cluster) Neutron(ctx context.Context) (status *agentapi.NeutronStatus, err error) {
	err = c.askControllers(ctx, "/v1/neutron", &status)
	return status, err
}

// NeutronCheck is what Neutron does not do of the cluster's objects; nil: the backend is another.
func (c *Cluster) NeutronCheck(ctx context.Context) (check *agentapi.NeutronCheck, err error) {
	err = c.askControllers(ctx, "/v1/neutron/check", &check)
	return check, err
}

// askControllers asks the controllers that are Ready, until one gives an answer that can be read.
func (c *Cluster) askControllers(ctx context.Context, path string, answer any) error {
	list, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: controllerSelector})
	if err != nil {
		return fmt.Errorf("list the controllers' pods: %w", err)
	}
	var errs []error
	for _, pod := range list.Items {
		if !isReady(pod) {
			continue
		}
		err := c.ask(ctx, "controller", pod.Name, []string{controllerBinary, "query", path}, answer)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	if errs == nil {
		return fmt.Errorf("namespace %s has no controller that is Ready: see kubectl -n %[1]s get pods -l %s",
			c.namespace, controllerSelector)
	}
	return errors.Join(errs...)
}

func isReady(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// execAttempts is how often a command is run if its connection breaks.
const execAttempts = 3

// exec runs a command in a pod and returns what it prints. The command must only read: an API
// server may close the connection before it has passed on how the command ended
// (kubernetes/kubernetes#140102), and it is run again then.
func (c *Cluster) exec(ctx context.Context, pod string, command []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		out, err := c.execOnce(ctx, pod, command)
		if broken := (*websocket.CloseError)(nil); !errors.As(err, &broken) || attempt == execAttempts {
			return out, err
		}
	}
}

func (c *Cluster) execOnce(ctx context.Context, pod string, command []string) ([]byte, error) {
	req := c.client.CoreV1().RESTClient().Post().Namespace(c.namespace).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.config, "GET", req.URL().String())
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr})
	if text := strings.TrimSpace(stderr.String()); err != nil && text != "" {
		return nil, fmt.Errorf("%s", strings.TrimPrefix(text, "Error: "))
	}
	return stdout.Bytes(), err
}
