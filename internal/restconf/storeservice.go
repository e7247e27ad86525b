// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/restconf/mapping"
)

// readService reads the Service of one entry, its EndpointSlices and the Ports among its endpoints.
func (s *Store) readService(ctx context.Context, w *mapping.World, of mapping.Entry) error {
	key, found, err := s.findService(ctx, of)
	if err != nil || !found {
		return err
	}
	service := &corev1.Service{}
	if err := s.Live.Get(ctx, key, service); err != nil {
		return client.IgnoreNotFound(err)
	}
	w.Services[key] = service
	var list discoveryv1.EndpointSliceList
	err = s.Live.List(ctx, &list, client.InNamespace(key.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: key.Name})
	if err != nil {
		return err
	}
	for i := range list.Items {
		slice := &list.Items[i]
		w.Slices[client.ObjectKeyFromObject(slice)] = slice
		for _, e := range slice.Endpoints {
			if e.TargetRef == nil || e.TargetRef.Kind != "Port" {
				continue
			}
			port := &v1alpha1.Port{}
			at := types.NamespacedName{Namespace: e.TargetRef.Namespace, Name: e.TargetRef.Name}
			if err := s.Live.Get(ctx, at, port); client.IgnoreNotFound(err) != nil {
				return err
			} else if err == nil {
				w.Ports[at] = port
			}
		}
	}
	return nil
}

// findService finds the Service of an entry: by the label of its slices or its own, or, if a client
// of Kubernetes has made it, by its UID, which cannot be asked for: the cache has it.
func (s *Store) findService(ctx context.Context, of mapping.Entry) (types.NamespacedName, bool, error) {
	if of.Container == "endpoints-info" {
		var list discoveryv1.EndpointSliceList
		err := s.Live.List(ctx, &list, client.MatchingLabels{mapping.LabelEndpoints: of.Key})
		if err != nil || len(list.Items) > 0 {
			return mapping.ServiceOf(first(list.Items)), err == nil, err
		}
	}
	var list corev1.ServiceList
	err := s.Live.List(ctx, &list, client.MatchingLabels{mapping.LabelService: of.Key})
	if err != nil || len(list.Items) > 0 {
		return client.ObjectKeyFromObject(first(list.Items)), err == nil, err
	}
	if err := s.Cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return types.NamespacedName{}, false, err
	}
	for i := range list.Items {
		if string(list.Items[i].UID) == of.Key {
			return client.ObjectKeyFromObject(&list.Items[i]), true, nil
		}
	}
	return types.NamespacedName{}, false, nil
}

// first is the first of a list, or the zero value.
func first[T any](list []T) *T {
	if len(list) == 0 {
		return new(T)
	}
	return &list[0]
}
