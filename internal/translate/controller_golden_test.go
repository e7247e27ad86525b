// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/api/v1alpha1"
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

// shuffle puts all of it into another order.
func (w *world) shuffle() {
	swap(w.pods)
	swap(w.namespaces)
	swap(w.nodes)
	swap(w.networks)
	swap(w.routers)
	swap(w.ports)
}

func swap[T any](list []T) {
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
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

// golden runs show on the objects of each file of a directory, in several orders that all have to give the same text, and
// compares that with what the file holds.
func golden(t *testing.T, dir string, show func(*world) string) {
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			w := parseWorld(t, section(archive, "objects.yaml"))
			got := show(w)
			for range 20 {
				w.shuffle()
				if diff := cmp.Diff(got, show(w)); diff != "" {
					t.Fatalf("another order of the objects (-before +now):\n%s", diff)
				}
			}
			if *update {
				archive.Files = []txtar.File{archive.Files[0], {Name: "result", Data: []byte(got)}}
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(section(archive, "result")), got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}
