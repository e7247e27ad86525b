// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func (s *Sandbox) waitAPI(ctx context.Context) error {
	return each(ctx, s.ControlPlaneNames(), func(ctx context.Context, node string) error {
		for _, component := range []string{etcd, apiServer, controllerManager, scheduler} {
			if err := s.WaitComponent(ctx, node, component, apiTimeout); err != nil {
				return err
			}
		}
		return nil
	})
}

// waitRegistered returns when the nodes have registered themselves and have got their pod subnets.
func (s *Sandbox) waitRegistered(ctx context.Context, nodes []string) error {
	if err := each(ctx, nodes, func(ctx context.Context, node string) error {
		return s.WaitComponent(ctx, node, kubelet, apiTimeout)
	}); err != nil {
		return err
	}
	_, err := s.waitNodes(ctx, nodes, "register and get their pod subnets", func(n *corev1.Node) bool {
		return len(n.Spec.PodCIDRs) == len(of(s.Family, podNets))
	})
	if err != nil {
		return err
	}
	return s.labelNodes(ctx, nodes)
}

// labelNodes gives the nodes the labels that kubelet may not give itself: their roles, and their
// zones if there are any.
func (s *Sandbox) labelNodes(ctx context.Context, nodes []string) error {
	client, err := s.Clientset()
	if err != nil {
		return err
	}
	for _, node := range nodes {
		role := "worker"
		if s.isControlPlane(node) {
			role = "control-plane"
		}
		labels := map[string]string{"node-role.kubernetes.io/" + role: ""}
		if zone := s.zone(node); zone != "" {
			labels[corev1.LabelTopologyZone] = zone
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		if err != nil {
			return err
		}
		_, err = client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("label node %s: %w", node, err)
		}
	}
	return nil
}

// waitReady returns when every node is Ready.
func (s *Sandbox) waitReady(ctx context.Context) error {
	_, err := s.waitNodes(ctx, s.Nodes(), "become Ready", nodeReady)
	return err
}

func nodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// nodeWait is a condition: all the named nodes are there and satisfy done.
type nodeWait struct {
	names []string
	done  func(*corev1.Node) bool
	nodes map[string]*corev1.Node
}

func (w *nodeWait) list(objects []runtime.Object) bool {
	w.nodes = map[string]*corev1.Node{}
	for _, o := range objects {
		w.change(o, false)
	}
	return len(w.missing()) == 0
}

func (w *nodeWait) change(object runtime.Object, deleted bool) bool {
	if n, ok := object.(*corev1.Node); ok {
		w.nodes[n.Name] = n
		if deleted {
			delete(w.nodes, n.Name)
		}
	}
	return len(w.missing()) == 0
}

func (w *nodeWait) missing() []string {
	return slices.DeleteFunc(slices.Clone(w.names), func(name string) bool {
		return w.nodes[name] != nil && w.done(w.nodes[name])
	})
}

// waitNodes watches the nodes until all that are named satisfy done.
func (s *Sandbox) waitNodes(ctx context.Context, names []string, what string,
	done func(*corev1.Node) bool,
) (map[string]*corev1.Node, error) {
	w := &nodeWait{names: names, done: done}
	if err := s.watch(ctx, "nodes", "", "", w); err != nil {
		var lines []string
		for _, name := range w.missing() {
			lines = append(lines, fmt.Sprintf("%s: %s; see %s", name, notReady(w.nodes[name]), s.Log(name, kubelet)))
		}
		return nil, fmt.Errorf("not all nodes %s: %w\n%s", what, err, strings.Join(lines, "\n"))
	}
	return w.nodes, nil
}

// notReady is why, in kubelet's words.
func notReady(n *corev1.Node) string {
	if n == nil {
		return "has not registered"
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return c.Message
		}
	}
	return "registered"
}

// waitCoreDNS returns when every replica serves.
func (s *Sandbox) waitCoreDNS(ctx context.Context) error {
	return s.waitDeployment(ctx, "kube-system", "coredns")
}

// watch follows a resource, one object of it if named, until the condition is
// true, or for clusterTimeout.
func (s *Sandbox) watch(ctx context.Context, resource, namespace, name string, c condition) error {
	client, err := s.Clientset()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	var getter rest.Interface = client.CoreV1().RESTClient()
	if resource == "deployments" || resource == "daemonsets" {
		getter = client.AppsV1().RESTClient()
	}
	selector := fields.Everything()
	if name != "" {
		selector = fields.OneTermEqualSelector("metadata.name", name)
	}
	return follow(ctx, cache.NewListWatchFromClient(getter, resource, namespace, selector), c)
}

func (s *Sandbox) applyCoreDNS(ctx context.Context) error {
	manifest, err := s.render("coredns.yaml", ControlPlaneName)
	if err != nil {
		return err
	}
	return s.Apply(ctx, manifest)
}

// install applies Coelan's manifest. If it was installed before from other images or to balance
// Services in another way, agents and controller start anew: a manifest that has not changed would
// leave them as they are.
func (s *Sandbox) install(ctx context.Context, install Install) error {
	now, err := fingerprint(install.Archives)
	if err != nil {
		return err
	}
	now += " " + string(s.Services)
	manifest, err := s.manifest(install.manifests())
	if err != nil {
		return err
	}
	marker := filepath.Join(s.dir, "installed")
	before, err := os.ReadFile(marker)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// As users do, and not on the server: else another manifest that they apply later would not
	// take away what is only in this one.
	cmd := s.KubectlCommand(ctx, "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	if _, err := output(cmd, "kubectl apply "+install.Manifest); err != nil {
		return err
	}
	if len(before) > 0 && string(before) != now {
		_, err := s.Kubectl(ctx, "-n", agentNamespace, "rollout", "restart", "daemonset,deployment")
		if err != nil {
			return err
		}
	}
	return os.WriteFile(marker, []byte(now), 0o644)
}

// waitAgents returns when every node's agent is ready and of the newest revision.
func (s *Sandbox) waitAgents(ctx context.Context) error {
	if err := s.waitDaemonSet(ctx, agentNamespace, agentName); err != nil {
		return fmt.Errorf("%w; see `coelan sandbox logs --name %s %s agent`", err, s.Name, ControlPlaneName)
	}
	return nil
}

// waitController returns when every replica of the controller is ready and of the newest revision;
// at once if what was installed has none.
func (s *Sandbox) waitController(ctx context.Context) error {
	client, err := s.Clientset()
	if err != nil {
		return err
	}
	_, err = client.AppsV1().Deployments(agentNamespace).Get(ctx, controllerName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.waitDeployment(ctx, agentNamespace, controllerName)
}

// waitDaemonSet returns when every node's pod of the DaemonSet is ready and of the newest revision.
func (s *Sandbox) waitDaemonSet(ctx context.Context, namespace, name string) error {
	var last appsv1.DaemonSetStatus
	err := s.watch(ctx, "daemonsets", namespace, name, anyObject(func(object runtime.Object) bool {
		d, ok := object.(*appsv1.DaemonSet)
		if !ok {
			return false
		}
		last = d.Status
		return last.ObservedGeneration >= d.Generation && last.DesiredNumberScheduled > 0 &&
			last.UpdatedNumberScheduled == last.DesiredNumberScheduled &&
			last.NumberReady == last.DesiredNumberScheduled
	}))
	if err != nil {
		return fmt.Errorf("%d of %d pods of %s are ready: %w", last.NumberReady, last.DesiredNumberScheduled, name, err)
	}
	return nil
}

// waitDeployment returns when all replicas of the Deployment, and no others, are ready and
// of the newest revision.
func (s *Sandbox) waitDeployment(ctx context.Context, namespace, name string) error {
	var last appsv1.DeploymentStatus
	err := s.watch(ctx, "deployments", namespace, name, anyObject(func(object runtime.Object) bool {
		d, ok := object.(*appsv1.Deployment)
		if !ok {
			return false
		}
		last = d.Status
		return last.ObservedGeneration >= d.Generation && last.UpdatedReplicas == *d.Spec.Replicas &&
			last.ReadyReplicas == *d.Spec.Replicas && last.Replicas == *d.Spec.Replicas
	}))
	if err != nil {
		return fmt.Errorf("%d of %d replicas of %s are ready: %w; see `coelan sandbox kubectl --name %s -- -n %s "+
			"describe pods`", last.ReadyReplicas, last.Replicas, name, err, s.Name, namespace)
	}
	return nil
}
