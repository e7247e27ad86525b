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

// Each file in testdata holds Node objects, and the intent and the problems that
// are made of them. Every order of the objects gives the same.
func TestNodesGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			objects := parseNodes(t, section(archive, "nodes.yaml"))
			var got string
			for range 10 {
				nodes, problems := Nodes(objects)
				now := dump(nodes, problems)
				if got != "" && got != now {
					t.Fatalf("another order of the objects gave (-before +now):\n%s", cmp.Diff(got, now))
				}
				got = now
				rand.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
			}
			want := section(archive, "intent")
			if *update {
				archive.Files = []txtar.File{archive.Files[0], {Name: "intent", Data: []byte(got)}}
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("intent (-want +got):\n%s", diff)
			}
		})
	}
}

func section(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func parseNodes(t *testing.T, text []byte) (nodes []*corev1.Node) {
	t.Helper()
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		n := &corev1.Node{}
		if err := yaml.UnmarshalStrict(document, n); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	return nodes
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
