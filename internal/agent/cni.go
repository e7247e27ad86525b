// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/cni"
)

// newCNI makes the server of the plugin's requests.
func (a *Agent) newCNI() *cni.Server {
	return cni.New(cni.Options{
		Store: a.store, Dataplane: dataplane{a}, Node: dataplane{a}, Interfaces: a.plumber, Bridge: a.cfg.Bridge,
		Recorder: a.opts.Events, Logger: a.log, Observe: a.metrics.request,
		Planner: a.newPlanner(), Changed: a.attachmentsChanged,
	})
}

// serveCNI answers the plugin from the start: a DEL works also while the agent is not ready, and an ADD gets an answer
// that says why it cannot be done.
func (a *Agent) serveCNI(ctx context.Context) error {
	l, err := cni.Listen(a.cfg.CNI.Socket)
	if err != nil {
		return err
	}
	return a.cni.Serve(ctx, l)
}

// The pause between attempts to make attachments and interfaces agree.
const (
	minCollectBackoff = 200 * time.Millisecond
	maxCollectBackoff = 30 * time.Second
)

// collectLoop makes attachments and the pods' interfaces agree when the agent has become ready, and each time something
// suggests that they do not.
func (a *Agent) collectLoop(ctx context.Context) error {
	if !a.awaitReady(ctx) {
		return nil
	}
	backoff := minCollectBackoff
	for {
		report, err := a.cni.Reconcile(ctx)
		a.metrics.swept("attachment", len(report.Released))
		a.metrics.swept("interface", len(report.Removed))
		a.metrics.repaired(len(report.Repaired))
		var retry <-chan time.Time
		if err != nil && ctx.Err() == nil {
			a.log.Warn("attachments and interfaces do not agree", "err", err)
			retry = time.After(backoff)
			backoff = min(2*backoff, maxCollectBackoff)
		} else {
			backoff = minCollectBackoff
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.collect:
		case <-retry:
		}
	}
}

// awaitReady waits until all conditions are met; false if ctx ends before.
func (a *Agent) awaitReady(ctx context.Context) bool {
	for {
		changed := a.conditions.changes()
		err := a.conditions.unmet()
		if err == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

func (a *Agent) kickCollect() {
	select {
	case a.collect <- struct{}{}:
	default:
	}
}

// watchPods looks for attachments of pods that are gone: their DEL may have got lost.
func (a *Agent) watchPods(ctx context.Context) error {
	return a.opts.Cluster.WatchPods(ctx, func(pods []*corev1.Pod) {
		a.view.SetPods(pods)
		a.publisher.PodsChanged()
		alive := a.view.State().Pods
		for _, at := range a.store.List() {
			if !at.IsPort() && alive[at.PodUID] == nil {
				a.kickCollect()
				return
			}
		}
	})
}
