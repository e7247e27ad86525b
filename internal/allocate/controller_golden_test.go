// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate/translatetest"
)

// world is what a golden file of the controller's side holds.
type world struct {
	pods       []*corev1.Pod
	namespaces []*corev1.Namespace
	nodes      []*corev1.Node
	networks   []*v1alpha1.Network
	routers    []*v1alpha1.Router
	ports      []*v1alpha1.Port
}

// Shuffle puts all of it into another order.
func (w *world) Shuffle() {
	translatetest.Shuffle(w.pods)
	translatetest.Shuffle(w.namespaces)
	translatetest.Shuffle(w.nodes)
	translatetest.Shuffle(w.networks)
	translatetest.Shuffle(w.routers)
	translatetest.Shuffle(w.ports)
}

func parseWorld(t *testing.T, text []byte) *world {
	t.Helper()
	w := &world{}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		kind := struct{ Kind string }{}
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatalf("%s: %v", document, err)
		}
		into := func(o runtime.Object) {
			if err := yaml.UnmarshalStrict(document, o); err != nil {
				t.Fatalf("%s: %v", document, err)
			}
		}
		switch kind.Kind {
		case "Pod":
			w.pods = append(w.pods, &corev1.Pod{})
			into(w.pods[len(w.pods)-1])
		case "Namespace":
			w.namespaces = append(w.namespaces, &corev1.Namespace{})
			into(w.namespaces[len(w.namespaces)-1])
		case "Node":
			w.nodes = append(w.nodes, &corev1.Node{})
			into(w.nodes[len(w.nodes)-1])
		case "Network":
			w.networks = append(w.networks, &v1alpha1.Network{})
			into(w.networks[len(w.networks)-1])
		case "Router":
			w.routers = append(w.routers, &v1alpha1.Router{})
			into(w.routers[len(w.routers)-1])
		case "Port":
			w.ports = append(w.ports, &v1alpha1.Port{})
			into(w.ports[len(w.ports)-1])
		default:
			t.Fatalf("kind %q in:\n%s", kind.Kind, document)
		}
	}
	return w
}
