// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/translate/translatetest"
)

type nodes []*corev1.Node

func (n nodes) Shuffle() { translatetest.Shuffle(n) }

// Each file in testdata holds Node objects, and the intent and the problems that
// are made of them. Every order of the objects gives the same.
func TestNodesGolden(t *testing.T) {
	translatetest.Golden(t, "testdata/*.txtar", "nodes.yaml", "intent", parseNodes, func(n nodes) string { return dump(Nodes(n)) })
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
