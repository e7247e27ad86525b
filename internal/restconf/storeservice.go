// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/mapping"
)

// readService reads what an entry of services or endpoints is about: its Service, and the one that
// an edit calls so, their EndpointSlices, and the pods and Ports among the endpoints.
func (s *Store) readService(ctx context.Context, w *mapping.World, of mapping.Entry) error {
	keys, err := s.knownServices(ctx, of)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := s.readSlices(ctx, w, key); err != nil {
			return err
		}
	}
	// The cache may not have heard of the Service yet. An edit that makes it has its name.
	if len(w.Services) == 0 && (of.Named.Name == "" || of.Container == endpointsInfo) {
		if keys, err = s.labeledServices(ctx, of); err != nil {
			return err
		}
		for _, key := range keys {
			if err := s.readSlices(ctx, w, key); err != nil {
				return err
			}
		}
	}
	for _, uid := range of.Members {
		if err := s.readPod(ctx, w, types.UID(uid)); err != nil {
			return err
		}
		if err := s.readPorts(ctx, w, uid); err != nil {
			return err
		}
	}
	return nil
}

// readSlices reads a Service and its EndpointSlices with what they lead to.
func (s *Store) readSlices(ctx context.Context, w *mapping.World, key types.NamespacedName) error {
	service := &corev1.Service{}
	if err := s.Live.Get(ctx, key, service); err != nil {
		return client.IgnoreNotFound(err)
	}
	w.Services[key] = service
	var list discoveryv1.EndpointSliceList
	err := s.Live.List(ctx, &list, client.InNamespace(key.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: key.Name})
	if err != nil {
		return err
	}
	for i := range list.Items {
		slice := &list.Items[i]
		w.Slices[client.ObjectKeyFromObject(slice)] = slice
		for _, e := range slice.Endpoints {
			if err := s.readTarget(ctx, w, e.TargetRef); err != nil {
				return err
			}
		}
	}
	return nil
}

// readTarget reads the pod or Port that an endpoint is.
func (s *Store) readTarget(ctx context.Context, w *mapping.World, ref *corev1.ObjectReference) error {
	switch {
	case ref == nil:
		return nil
	case ref.Kind == "Pod":
		return s.readPod(ctx, w, ref.UID)
	case ref.Kind != "Port":
		return nil
	}
	port := &v1alpha1.Port{}
	at := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if err := s.Live.Get(ctx, at, port); err != nil {
		return client.IgnoreNotFound(err)
	}
	w.Ports[at] = port
	return nil
}

// endpointsInfo is the container of endpoints.
const endpointsInfo = "endpoints-info"

// knownServices are those of an entry's uid that the cache knows, and the one that an edit calls
// so.
func (s *Store) knownServices(ctx context.Context, of mapping.Entry) ([]types.NamespacedName, error) {
	var list corev1.ServiceList
	err := s.Cached.List(ctx, &list, client.MatchingFields{IndexUID: of.Key}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	keys := keysOf(&list)
	if of.Named.Name != "" && !slices.Contains(keys, of.Named) {
		keys = append(keys, of.Named)
	}
	return keys, nil
}

// labeledServices asks the API for the Services of an entry, by the labels that clients of RESTCONF
// give Services and slices.
func (s *Store) labeledServices(ctx context.Context, of mapping.Entry) (keys []types.NamespacedName, err error) {
	if of.Container == endpointsInfo {
		var list discoveryv1.EndpointSliceList
		if err := s.Live.List(ctx, &list, client.MatchingLabels{mapping.LabelEndpoints: of.Key}); err != nil {
			return nil, err
		}
		for i := range list.Items {
			if key := mapping.ServiceOf(&list.Items[i]); !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	if len(keys) > 0 {
		return keys, nil
	}
	var list corev1.ServiceList
	if err := s.Live.List(ctx, &list, client.MatchingLabels{mapping.LabelService: of.Key}); err != nil {
		return nil, err
	}
	return keysOf(&list), nil
}

func keysOf(list *corev1.ServiceList) []types.NamespacedName {
	keys := make([]types.NamespacedName, len(list.Items))
	for i := range list.Items {
		keys[i] = client.ObjectKeyFromObject(&list.Items[i])
	}
	return keys
}

// readPod finds a pod by its UID.
func (s *Store) readPod(ctx context.Context, w *mapping.World, uid types.UID) error {
	var list corev1.PodList
	err := s.Cached.List(ctx, &list, client.MatchingFields{IndexUID: string(uid)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	for i := range list.Items {
		w.Pods[uid] = &list.Items[i]
	}
	return nil
}

// IndexUID is the index of caches by the UID of objects, which the API cannot be asked for, and of
// Services by the uid of their entry, for which the API would look at all of them.
const IndexUID = "metadata.uid"

// AddIndexes adds the indexes that a Store needs to a cache.
func AddIndexes(ctx context.Context, to client.FieldIndexer) error {
	for _, o := range []client.Object{&corev1.Service{}, &corev1.Pod{}, &v1alpha1.Port{}} {
		if err := to.IndexField(ctx, o, IndexUID, uidOf); err != nil {
			return fmt.Errorf("index by UID: %w", err)
		}
	}
	return nil
}

func uidOf(o client.Object) []string {
	uids := []string{string(o.GetUID())}
	if _, ok := o.(*corev1.Service); ok && o.GetLabels()[mapping.LabelService] != "" {
		uids = append(uids, o.GetLabels()[mapping.LabelService])
	}
	return uids
}
