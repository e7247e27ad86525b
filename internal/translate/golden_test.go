// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/internal/intent"
)

var update = flag.Bool("update", false, "write what the tests find into the golden files")

// orders is how many orders of the same objects are tried.
const orders = 20

// golden runs show on what parse makes of the section input of each file that the pattern names, in several orders that
// all have to give the same text, and compares that with the section output.
func golden[T interface{ shuffle() }](
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
			objects := parse(t, section(archive, input))
			got := show(objects)
			for range orders {
				objects.shuffle()
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
			if diff := cmp.Diff(string(section(archive, output)), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", output, diff)
			}
		})
	}
}

// shuffled puts a list into another order.
func shuffled[T any](list []T) {
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

type nodes []*corev1.Node

func (n nodes) shuffle() { shuffled(n) }

// Each file in testdata holds Node objects, and the intent and the problems that
// are made of them. Every order of the objects gives the same.
func TestNodesGolden(t *testing.T) {
	golden(t, "testdata/*.txtar", "nodes.yaml", "intent", parseNodes, func(n nodes) string { return dump(Nodes(n)) })
}

func section(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func parseNodes(t *testing.T, text []byte) (list nodes) {
	t.Helper()
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		n := &corev1.Node{}
		if err := yaml.UnmarshalStrict(document, n); err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

// dump is the table of nodes and the list of problems for a reader.
func dump(nodes []intent.Node, problems []Problem) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tADDRESSES\tNETWORK\tSUBNET\tGATEWAY")
	for _, n := range nodes {
		addresses := strings.Trim(fmt.Sprint(n.Addresses), "[]")
		if len(n.Subnets) == 0 {
			fmt.Fprintf(w, "%s\t%s\t-\t-\t-\n", n.Name, addresses)
		}
		for i, s := range n.Subnets {
			if i > 0 {
				fmt.Fprintf(w, "\t\t%s\t%s\t%s\n", s.Network, s.Prefix, s.Gateway)
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", n.Name, addresses, s.Network, s.Prefix, s.Gateway)
		}
	}
	w.Flush()
	for _, p := range problems {
		fmt.Fprintf(&b, "%s: %s\n", p.Reason, p.Error())
	}
	return b.String()
}
