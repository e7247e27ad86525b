// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"coelan.io/coelan/internal/sandbox/machine"
)

// WaitPods returns when every pod of the namespace, or of all with "", is ready or has succeeded,
// and every container of it was started in its node's present life: what the API server says of a
// pod before kubelet has seen to it again is of the life before.
func (s *Sandbox) WaitPods(ctx context.Context, namespace string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	boots := map[string]time.Time{}
	for _, node := range s.Nodes() {
		_, at, err := machine.LastBoot(s.machineDir(node))
		if err != nil {
			return err
		}
		boots[node] = at
	}
	w := &podWait{boots: boots}
	if err := s.watch(ctx, "pods", namespace, "", w); err != nil {
		return fmt.Errorf("pods are not ready: %s: %w", strings.Join(w.missing(), ", "), err)
	}
	return nil
}

// podWait is a condition: all pods are ready, and of their nodes' present lives.
type podWait struct {
	boots map[string]time.Time
	pods  map[string]*corev1.Pod
}

func (w *podWait) list(objects []runtime.Object) bool {
	w.pods = map[string]*corev1.Pod{}
	for _, o := range objects {
		w.change(o, false)
	}
	return len(w.missing()) == 0
}

func (w *podWait) change(object runtime.Object, deleted bool) bool {
	if p, ok := object.(*corev1.Pod); ok {
		key := p.Namespace + "/" + p.Name
		w.pods[key] = p
		if deleted {
			delete(w.pods, key)
		}
	}
	return len(w.missing()) == 0
}

func (w *podWait) missing() []string {
	var keys []string
	for key, p := range w.pods {
		if p.Status.Phase != corev1.PodSucceeded && (!podReady(p) || !startedAfter(p, w.boots[p.Spec.NodeName])) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func podReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// startedAfter compares whole seconds, the API's measure.
func startedAfter(p *corev1.Pod, boot time.Time) bool {
	return !slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running == nil || c.State.Running.StartedAt.Time.Before(boot.Truncate(time.Second))
	})
}
