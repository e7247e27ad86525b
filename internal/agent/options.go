// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/agent/blocks"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/agent/plan"
	"coelan.io/coelan/internal/agent/publish"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/policystream/client"
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
	// Controllers tells until ctx ends which controllers there are to hear of policies from. It may be nil where these are not enforced.
	Controllers func(ctx context.Context) client.Controllers
	// Namespace is the one that Coelan is installed in.
	Namespace string
	// Log may be nil: slog.Default.
	Log *slog.Logger
}

// Cluster is what the agent sees of Kubernetes. kube.Client is one.
type Cluster interface {
	Watcher
	API
}

// API is what the agent asks for and writes by calls of its own.
type API interface {
	plan.API
	blocks.API
	publish.API
}

// Watcher tells of objects.
type Watcher interface {
	// WatchNodes calls update with all nodes once they are known and after each change, until ctx ends.
	WatchNodes(ctx context.Context, update func([]*corev1.Node)) error
	// WatchPods does the same for the pods that are bound to this node.
	WatchPods(ctx context.Context, update func([]*corev1.Pod)) error
	// WatchServices tells of Services, and of all that they lead to.
	WatchServices(ctx context.Context, updates kube.ServiceUpdates) error
	// WatchObjects does the same for namespaces and all that Networks are made of.
	WatchObjects(ctx context.Context, updates kube.Updates) error
}

// Recorder tells users by Events, all but notices of type Warning. Its methods do not block.
type Recorder interface {
	PodWarning(namespace, name, uid, reason, message string)
	NodeWarning(name, uid, reason, message string)
	PortWarning(namespace, name, uid, reason, message string)
	ServiceWarning(namespace, name, uid, reason, message string)
	ServiceNotice(namespace, name, uid, reason, message string)
}
