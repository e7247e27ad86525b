// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	informers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"coelan.io/coelan/internal/apiaccess"
)

// ServiceCIDRs is the resource of the prefixes of ClusterIPs.
const ServiceCIDRs = "servicecidrs"

// ServiceUpdates take what is heard of Services. Calls of one function do not overlap, those of
// several may. Those that are nil are not asked for.
type ServiceUpdates struct {
	Services *Changes[*corev1.Service]
	Slices   *Changes[*discoveryv1.EndpointSlice]
	CIDRs    func(Delta[*networkingv1.ServiceCIDR])
}

// Changes is called with objects one by one, so that they need not be held all at once. It must not
// keep its arguments.
type Changes[T any] struct {
	Set    func(T)
	Delete func(types.NamespacedName)
	// Listed is called when all that there are have been set, once they were listed and each time
	// that they had to be listed anew: what does not exist is gone.
	Listed func(exists func(types.NamespacedName) bool)
	// Failed is called each time that they cannot be listed.
	Failed func(error)
}

// others selects, as kube-proxy does, what is not left to another proxy, and is no part
// of a headless Service.
const others = "!service.kubernetes.io/service-proxy-name,!" + corev1.IsHeadlessService

// WatchServices watches Services, EndpointSlices and the prefixes of ClusterIPs until ctx ends.
func (c *Client) WatchServices(ctx context.Context, u ServiceUpdates) error {
	g, ctx := errgroup.WithContext(ctx)
	if u.Services != nil {
		g.Go(func() error { return c.reportAway(ctx, u.Services.Failed) })
		api := c.api.CoreV1().Services(metav1.NamespaceAll)
		g.Go(func() error {
			stream(ctx, c, &corev1.Service{}, u.Services,
				func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) },
				api.Watch)
			return nil
		})
	}
	if u.Slices != nil {
		api := c.api.DiscoveryV1().EndpointSlices(metav1.NamespaceAll)
		g.Go(func() error {
			stream(ctx, c, &discoveryv1.EndpointSlice{}, u.Slices,
				func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) },
				api.Watch)
			return nil
		})
	}
	if u.CIDRs != nil {
		g.Go(func() error {
			// An API server before 1.33 has none.
			absent := func() { u.CIDRs(Whole[*networkingv1.ServiceCIDR](nil)) }
			return follow(ctx, c, informers.NewServiceCIDRInformer(c.api, 0, nil), changed[*networkingv1.ServiceCIDR],
				u.CIDRs, absent)
		})
	}
	return g.Wait()
}

// pageSize is how many objects are in memory at a time while all are listed.
const pageSize = 500

// stream tells of the objects of one kind until ctx ends. A list of all EndpointSlices of a large
// cluster takes several times the memory of what is kept of it, so it is taken page by page.
func stream[T metav1.Object](ctx context.Context, c *Client, example T, changes *Changes[T],
	list func(context.Context, metav1.ListOptions) (runtime.Object, error),
	follow func(context.Context, metav1.ListOptions) (apiwatch.Interface, error),
) {
	s := &sink[T]{Changes: changes}
	failed := c.watchError(nil)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			all, err := s.list(ctx, list)
			if err != nil {
				failed(ctx, nil, err)
				changes.Failed(err)
			}
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			o.LabelSelector = others
			return follow(ctx, o)
		},
	}
	// What goes wrong is logged above.
	quiet := klog.NewContext(ctx, logr.Discard())
	cache.NewReflector(lw, example, s, 0).RunWithContext(apiaccess.WaitForConnection(quiet))
}

// errUnreachable is what lists fail with that wait for the API server.
var errUnreachable = errors.New("no API server can be reached")

// reportAway calls failed once no API server can be reached: lists wait for one, and do not fail.
func (c *Client) reportAway(ctx context.Context, failed func(error)) error {
	select {
	case <-c.unreachable:
		failed(errUnreachable)
	case <-ctx.Done():
	}
	return nil
}

// sink is a cache.ReflectorStore that holds nothing.
type sink[T metav1.Object] struct {
	*Changes[T]
	seen map[types.NamespacedName]struct{}
}

// list sets all objects, and returns a list that holds none of them any more.
func (s *sink[T]) list(ctx context.Context,
	list func(context.Context, metav1.ListOptions) (runtime.Object, error),
) (runtime.Object, error) {
	s.seen = map[types.NamespacedName]struct{}{}
	options := metav1.ListOptions{LabelSelector: others, Limit: pageSize}
	for {
		page, err := list(ctx, options)
		if err != nil {
			return nil, err
		}
		err = meta.EachListItem(page, func(o runtime.Object) error {
			object, ok := o.(T)
			if !ok {
				return errors.New("the list holds objects of another kind")
			}
			s.seen[nameOf(object)] = struct{}{}
			s.Set(object)
			return nil
		})
		if err != nil {
			return nil, err
		}
		m, err := meta.ListAccessor(page)
		if err != nil {
			return nil, err
		}
		if options.Continue = m.GetContinue(); options.Continue == "" {
			return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: m.GetResourceVersion()}}, nil
		}
	}
}

// Replace implements cache.ReflectorStore; the objects have been set already.
func (s *sink[T]) Replace([]any, string) error {
	s.Listed(func(n types.NamespacedName) bool { _, ok := s.seen[n]; return ok })
	s.seen = nil
	return nil
}

// Add implements cache.ReflectorStore.
func (s *sink[T]) Add(o any) error {
	if object, ok := o.(T); ok {
		s.Set(object)
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (s *sink[T]) Update(o any) error { return s.Add(o) }

// Delete implements cache.ReflectorStore.
func (s *sink[T]) Delete(o any) error {
	if object, ok := o.(T); ok {
		s.Changes.Delete(nameOf(object))
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *sink[T]) Resync() error { return nil }

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
