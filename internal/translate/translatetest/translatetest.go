// SPDX-License-Identifier: Apache-2.0

// Package translatetest compares what pure functions make of Kubernetes objects with golden files.
package translatetest

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what the tests find into the golden files")

// orders is how many orders of the same objects are tried.
const orders = 20

// Golden runs show on what parse makes of the section input of each file that the pattern names, in
// several orders that all have to give the same text, and compares that with the section output.
func Golden[T interface{ Shuffle() }](
	t *testing.T, pattern, input, output string, parse func(*testing.T, []byte) T, show func(T) string,
) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			objects := parse(t, Section(archive, input))
			got := show(objects)
			for range orders {
				objects.Shuffle()
				if diff := cmp.Diff(got, show(objects)); diff != "" {
					t.Fatalf("another order of the objects gave (-before +now):\n%s", diff)
				}
			}
			if *update {
				archive.Files = []txtar.File{archive.Files[0], {Name: output, Data: []byte(got)}}
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(Section(archive, output)), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", output, diff)
			}
		})
	}
}

// Shuffle puts a list into another order.
func Shuffle[T any](list []T) {
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// Section returns the file of an archive, nil if there is none.
func Section(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

// Decode reads one object from YAML.
func Decode[T any](t *testing.T, text []byte) *T {
	t.Helper()
	o := new(T)
	if err := yaml.UnmarshalStrict(text, o); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return o
}
