// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var definitions = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// install creates the definitions in a directory and waits until they are served.
func install(ctx context.Context, config *rest.Config, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no definitions in %s", dir)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	watch, err := client.Resource(definitions).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer watch.Stop()
	waiting := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &o.Object); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if _, err := client.Resource(definitions).Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		waiting[o.GetName()] = true
	}
	for len(waiting) > 0 {
		select {
		case e := <-watch.ResultChan():
			if o, ok := e.Object.(*unstructured.Unstructured); ok && established(o) {
				delete(waiting, o.GetName())
			}
		case <-ctx.Done():
			return fmt.Errorf("definitions are not served: %w", ctx.Err())
		}
	}
	return nil
}

func established(o *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, ok := c.(map[string]any)
		return ok && m["type"] == "Established" && m["status"] == "True"
	})
}
