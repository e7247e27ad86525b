// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/config"
)

// Options are what an Agent is made of.
type Options struct {
	Config config.Config
	// NodeName is the name of this node's Node object.
	NodeName string
	// Cluster is where nodes and pods come from.
	Cluster Cluster
	// Events tells users what keeps their pods or nodes from working.
	Events Recorder
	// Log may be nil: slog.Default.
	Log *slog.Logger
}

// Cluster is what the agent sees of Kubernetes. kube.Client is one, and Static.
type Cluster interface {
	// WatchNodes calls update with all nodes once they are known and after each change, until ctx ends.
	WatchNodes(ctx context.Context, update func([]*corev1.Node)) error
	// WatchPods does the same for the pods that are bound to this node.
	WatchPods(ctx context.Context, update func([]*corev1.Pod)) error
}

// Recorder tells users by Events of type Warning. Its methods do not block.
type Recorder interface {
	PodWarning(namespace, name, uid, reason, message string)
	NodeWarning(name, uid, reason, message string)
}

// Static is a Cluster without an API server: its nodes are set by the program. It knows nothing about pods.
type Static struct {
	mu      sync.Mutex
	nodes   []*corev1.Node
	changed chan struct{}
}

// NewStatic makes a Static of these nodes.
func NewStatic(nodes ...*corev1.Node) *Static {
	return &Static{nodes: nodes, changed: make(chan struct{})}
}

// Set replaces the nodes.
func (s *Static) Set(nodes ...*corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = slices.Clone(nodes)
	close(s.changed)
	s.changed = make(chan struct{})
}

// WatchNodes implements Cluster.
func (s *Static) WatchNodes(ctx context.Context, update func([]*corev1.Node)) error {
	for {
		s.mu.Lock()
		nodes, changed := s.nodes, s.changed
		s.mu.Unlock()
		update(nodes)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// WatchPods implements Cluster; it never calls update.
func (s *Static) WatchPods(ctx context.Context, _ func([]*corev1.Pod)) error {
	<-ctx.Done()
	return nil
}
