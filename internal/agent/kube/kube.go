// SPDX-License-Identifier: Apache-2.0

// Package kube is the agent's view of the Kubernetes API: all nodes, the pods of its own node, and Events. The API
// server may be away at any time; what was seen last stays until it is back.
package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// Client watches one API server for one node.
type Client struct {
	log  *slog.Logger
	api  kubernetes.Interface
	node string
}

// New makes a client; api may be a fake.
func New(log *slog.Logger, api kubernetes.Interface, node string) *Client {
	return &Client{log: log, api: api, node: node}
}

// Connect makes a client from a kubeconfig file, or from the pod's service account if path is empty. It does not wait
// for the API server.
func Connect(log *slog.Logger, path, node string) (*Client, error) {
	config, err := restConfig(path)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "coelan-agent"
	// Lists of nodes are large; what is written, Events, is not.
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeJSON
	// The agent waits for watches, never for a call of its own.
	config.Timeout = 0
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	return New(log, api, node), nil
}

func restConfig(path string) (*rest.Config, error) {
	if path == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("kubeconfig: not set, and %w", err)
		}
		return config, nil
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return config, nil
}

// WatchNodes calls update with all nodes once they are known and after each change that matters to the agent, until ctx
// ends. Calls do not overlap.
func (c *Client) WatchNodes(ctx context.Context, update func([]*corev1.Node)) error {
	factory := informers.NewSharedInformerFactoryWithOptions(c.api, 0, informers.WithTransform(slim))
	informer := factory.Core().V1().Nodes()
	list := func() {
		nodes, err := informer.Lister().List(labels.Everything())
		if err == nil {
			update(nodes)
		}
	}
	return c.run(ctx, factory, informer.Informer(), nodeRelevant, list)
}

// WatchPods is WatchNodes for the pods that are bound to this node.
func (c *Client) WatchPods(ctx context.Context, update func([]*corev1.Pod)) error {
	mine := fields.OneTermEqualSelector("spec.nodeName", c.node).String()
	factory := informers.NewSharedInformerFactoryWithOptions(c.api, 0, informers.WithTransform(slim),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = mine }))
	informer := factory.Core().V1().Pods()
	list := func() {
		pods, err := informer.Lister().List(labels.Everything())
		if err == nil {
			update(pods)
		}
	}
	return c.run(ctx, factory, informer.Informer(), podRelevant, list)
}

// run calls list after the first synchronisation and then for each event that relevant picks.
func (c *Client) run(ctx context.Context, factory informers.SharedInformerFactory, informer cache.SharedIndexInformer,
	relevant func(old, now any) bool, list func(),
) error {
	wake := make(chan struct{}, 1)
	kick := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	if err := informer.SetWatchErrorHandlerWithContext(c.watchError); err != nil {
		return err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { kick() },
		DeleteFunc: func(any) { kick() },
		UpdateFunc: func(old, now any) {
			if relevant(old, now) {
				kick()
			}
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil
	}
	// A list that is empty has no event.
	kick()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
			list()
		}
	}
}

// watchError logs what client-go retries by itself.
func (c *Client) watchError(ctx context.Context, _ *cache.Reflector, err error) {
	if ctx.Err() == nil && !errors.Is(err, context.Canceled) {
		c.log.Warn("Kubernetes API cannot be watched, trying again", "err", err)
	}
}
