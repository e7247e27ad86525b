// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apiaccess"
)

// Updates are called with all objects of a kind once they are known, and then with what differs
// after changes that matter to the agent. Calls for one kind do not overlap, those for several may.
type Updates struct {
	Nodes       func(Delta[*corev1.Node])
	Namespaces  func(Delta[*corev1.Namespace])
	Networks    func(Delta[*v1alpha1.Network])
	Routers     func(Delta[*v1alpha1.Router])
	Blocks      func(Delta[*v1alpha1.AddressBlock])
	Ports       func(Delta[*v1alpha1.Port])
	Pools       func(Delta[*v1alpha1.LoadBalancerPool])
	FloatingIPs func(Delta[*v1alpha1.FloatingIP])
	Egresses    func(Delta[*v1alpha1.Egress])
	Definitions func(Delta[*Definition])
	// Absent is told of a kind that the API does not have, or not yet: its CustomResourceDefinition
	// is missing.
	Absent func(resource string)
}

// WatchPods calls update with all pods that are bound to this node once they are known, and then
// with what differs after changes that matter to the agent, until ctx ends. Calls do not overlap.
func (c *Client) WatchPods(ctx context.Context, update func(Delta[*corev1.Pod])) error {
	mine := fields.OneTermEqualSelector("spec.nodeName", c.node).String()
	informer := informers.NewFilteredPodInformer(c.api, metav1.NamespaceAll, 0, nil,
		func(o *metav1.ListOptions) { o.FieldSelector = mine })
	return follow(ctx, c, informer, podRelevant, update, nil)
}

// WatchNodePorts is like WatchPods, for the Ports that this agent has made for the pods of its
// node.
func (c *Client) WatchNodePorts(ctx context.Context, update func(Delta[*v1alpha1.Port])) error {
	return follow(ctx, c, informer(c.coelan, Ports, c.madeHere().String(), &v1alpha1.Port{}), changed[*v1alpha1.Port],
		update, nil)
}

// WatchOwnNode is like WatchPods, for this node's object.
func (c *Client) WatchOwnNode(ctx context.Context, update func(Delta[*corev1.Node])) error {
	own := fields.OneTermEqualSelector(metav1.ObjectNameField, c.node).String()
	lw := cache.NewFilteredListWatchFromClient(c.api.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll,
		func(o *metav1.ListOptions) { o.FieldSelector = own })
	return follow(ctx, c, cache.NewSharedIndexInformer(lw, &corev1.Node{}, 0, nil), nodeRelevant, update, nil)
}

// WatchObjects watches nodes, namespaces, the kinds of coelan.io and NetworkAttachmentDefinitions
// until ctx ends. Of the Ports it leaves out those that only their own node needs to know. A kind
// that the API does not have is asked for again and again, ever more seldom.
func (c *Client) WatchObjects(ctx context.Context, u Updates) error {
	absent := func(resource string) func() { return func() { u.Absent(resource) } }
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.watchNodes(ctx, u.Nodes) })
	g.Go(func() error {
		return follow(ctx, c, informers.NewNamespaceInformer(c.api, 0, nil), namespaceRelevant, u.Namespaces, nil)
	})
	g.Go(func() error {
		return follow(ctx, c, informer(c.coelan, Networks, "", &v1alpha1.Network{}),
			changed[*v1alpha1.Network], u.Networks, absent(Networks))
	})
	g.Go(func() error {
		return follow(ctx, c, informer(c.coelan, Routers, "", &v1alpha1.Router{}),
			changed[*v1alpha1.Router], u.Routers, absent(Routers))
	})
	g.Go(func() error {
		return follow(ctx, c, informer(c.coelan, Blocks, "", &v1alpha1.AddressBlock{}),
			changed[*v1alpha1.AddressBlock], u.Blocks, absent(Blocks))
	})
	g.Go(func() error {
		return follow(ctx, c, informer(c.coelan, Ports, "!"+v1alpha1.LabelPodPort, &v1alpha1.Port{}),
			changed[*v1alpha1.Port], u.Ports, absent(Ports))
	})
	g.Go(func() error {
		return follow(ctx, c, informer(c.coelan, Pools, "", &v1alpha1.LoadBalancerPool{}),
			changed[*v1alpha1.LoadBalancerPool], u.Pools, absent(Pools))
	})
	g.Go(func() error {
		return follow(ctx, c, informer(c.coelan, FloatingIPs, "", &v1alpha1.FloatingIP{}),
			changed[*v1alpha1.FloatingIP], u.FloatingIPs, absent(FloatingIPs))
	})
	g.Go(func() error {
		return follow(ctx, c, informer(c.coelan, Egresses, "", &v1alpha1.Egress{}),
			changed[*v1alpha1.Egress], u.Egresses, absent(Egresses))
	})
	g.Go(func() error {
		return follow(ctx, c, informer(c.definitions, Definitions, "", &Definition{}),
			changed[*Definition], u.Definitions, absent(Definitions))
	})
	return g.Wait()
}

func (c *Client) watchNodes(ctx context.Context, update func(Delta[*corev1.Node])) error {
	return follow(ctx, c, informers.NewNodeInformer(c.api, 0, nil), nodeRelevant, update, nil)
}

// informer watches the objects of a custom resource, in all namespaces.
func informer(api rest.Interface, resource, labels string, example runtime.Object) cache.SharedIndexInformer {
	lw := cache.NewFilteredListWatchFromClient(api, resource, metav1.NamespaceAll,
		func(o *metav1.ListOptions) { o.LabelSelector = labels })
	return cache.NewSharedIndexInformer(lw, example, 0, nil)
}

// follow calls update after the first synchronization and then for the events that relevant picks,
// with what differs: several that come before update has returned make one call. A kind with absent
// may be unknown to the API, which absent is told once.
func follow[T metav1.Object](ctx context.Context, c *Client, informer cache.SharedIndexInformer,
	relevant func(old, now T) bool, update func(Delta[T]), absent func(),
) error {
	events := newPending(relevant)
	handler, err := informer.AddEventHandler(events)
	err = errors.Join(err, informer.SetTransform(c.slim),
		informer.SetWatchErrorHandlerWithContext(c.watchError(absent)))
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { informer.RunWithContext(apiaccess.WaitForConnection(ctx)) })
	// Not before the handler has all of the list.
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return nil
	}
	// A list that is empty has no event.
	events.look.Fire()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-events.look:
			update(events.take())
		}
	}
}

// watchError logs what client-go retries by itself; that a kind is absent, once.
func (c *Client) watchError(absent func()) cache.WatchErrorHandlerWithContext {
	var once sync.Once
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		switch {
		case ctx.Err() != nil || errors.Is(err, context.Canceled):
		case absent != nil && apierrors.IsNotFound(err):
			once.Do(func() {
				c.log.Info("the Kubernetes API does not serve a kind yet, retrying; install its CustomResourceDefinition",
					"err", err)
				absent()
			})
		default:
			c.log.Warn("cannot list or watch the Kubernetes API, retrying", "err", err)
		}
	}
}
