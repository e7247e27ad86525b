// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// definitionTimeout bounds how long the API server takes to serve a new kind.
const definitionTimeout = time.Minute

// waitEstablished returns when the API server serves the kind of a CustomResourceDefinition.
// kubectl wait would do, but it fails on one that is so new that it has no conditions.
func (s *Sandbox) waitEstablished(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, definitionTimeout)
	defer cancel()
	config, err := s.RESTConfig()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	definitions := client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	events := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return definitions.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return definitions.Watch(ctx, o)
		},
	}
	_, err = watchtools.UntilWithSync(ctx, events, &unstructured.Unstructured{}, nil, established)
	if err != nil {
		return fmt.Errorf("CustomResourceDefinition %s is not established: %w", name, err)
	}
	return nil
}

func established(e watch.Event) (bool, error) {
	object, ok := e.Object.(*unstructured.Unstructured)
	if !ok {
		return false, nil
	}
	status, _ := object.Object["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true, nil
		}
	}
	return false, nil
}
