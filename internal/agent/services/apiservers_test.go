// SPDX-License-Identifier: Apache-2.0

package services

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// inDefault moves an object to the namespace of the API servers.
func inDefault[T metav1.Object](o T) T {
	o.SetNamespace("default")
	return o
}

// apiSlice is a slice as API servers write it.
func apiSlice(addresses ...string) *discoveryv1.EndpointSlice {
	return inDefault(slice("kubernetes", addresses...))
}

// The API servers stay what they were last when there is none any more: whatever the API
// says of its own end, over restarts, and however often. Another Service in the same
// place refuses its clients.
func TestAPIServersAreNeverWithdrawn(t *testing.T) {
	dir := t.TempDir()
	start := func(t *testing.T, slices ...*discoveryv1.EndpointSlice) *world {
		w := newWorld(t, dir, nil)
		w.hearNetworks("default", "shop")
		w.from.Services.Set(inDefault(service("kubernetes", "10.96.0.1")))
		w.from.Services.Set(service("web", "10.96.0.10"))
		for _, s := range slices {
			w.from.Slices.Set(s)
		}
		w.listed("kubernetes", "web")
		return w
	}
	refused := func(t *testing.T, w *world, key string, want bool) {
		t.Helper()
		v, ok := w.Intent.State().NodeServices().Get(key)
		if !ok || len(v.Ports) != 1 || v.Ports[0].Unserved != want {
			t.Errorf("%s: %+v, want clients refused: %v", key, v, want)
		}
	}
	gone := types.NamespacedName{Namespace: "default", Name: "kubernetes"}
	const kept = "kubernetes@default 192.0.2.12"
	t.Run("while the agent runs", func(t *testing.T) {
		w := start(t, apiSlice("192.0.2.11", "192.0.2.12"), slice("web", "10.244.1.2"))
		w.await("kubernetes@default 192.0.2.11 192.0.2.12", "web@default 10.244.1.2")
		w.from.Slices.Set(apiSlice("192.0.2.12"))
		w.await(kept, "web@default 10.244.1.2")
		w.from.Slices.Set(apiSlice())
		w.from.Slices.Set(slice("web"))
		w.await(kept, "web@default")
		refused(t, w, "default/kubernetes", false)
		refused(t, w, "shop/web", true)
		w.from.Slices.Delete(gone)
		w.from.Slices.Delete(types.NamespacedName{Namespace: "shop", Name: "web"})
		w.from.Services.Set(service("new", "10.96.0.11"))
		w.await(kept, "new@default", "web@default")
	})
	t.Run("an agent that starts and finds none", func(t *testing.T) {
		w := start(t, apiSlice())
		w.await(kept, "web@default")
		refused(t, w, "default/kubernetes", false)
	})
	t.Run("an agent that starts and finds no slice", func(t *testing.T) {
		w := start(t)
		w.await(kept, "web@default")
		refused(t, w, "default/kubernetes", false)
		w.from.Slices.Set(apiSlice("192.0.2.13"))
		w.await("kubernetes@default 192.0.2.13", "web@default")
		// A port that clients never reached anything at has nothing to keep.
		v := inDefault(service("kubernetes", "10.96.0.1", corev1.ServicePort{Name: "new", Port: 444}))
		w.from.Services.Set(v)
		w.await("kubernetes@default", "web@default")
		refused(t, w, "default/kubernetes", true)
	})
}
