// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate/translatetest"
)

// balancing are the objects of one golden file.
type balancing struct {
	pools []*v1alpha1.LoadBalancerPool
	nodes []*corev1.Node
}

func (o *balancing) Shuffle() {
	translatetest.Shuffle(o.pools)
	translatetest.Shuffle(o.nodes)
}

func (o *balancing) translated() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POOL\tRANGES\tNODES")
	for _, p := range LoadBalancerPools(o.pools, o.nodes) {
		var ranges []string
		for _, r := range p.Ranges {
			ranges = append(ranges, r.First.String()+"-"+r.Last.String())
		}
		fmt.Fprintf(w, "%s\t%v\t%v\n", p.Name, ranges, p.Nodes)
	}
	w.Flush()
	return b.String()
}

func parseBalancing(t *testing.T, text []byte) *balancing {
	t.Helper()
	o := &balancing{}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "LoadBalancerPool":
			o.pools = append(o.pools, translatetest.Decode[v1alpha1.LoadBalancerPool](t, document))
		case "Node":
			o.nodes = append(o.nodes, translatetest.Decode[corev1.Node](t, document))
		default:
			t.Fatalf("kind %q in\n%s", kind.Kind, document)
		}
	}
	return o
}

// Each file in testdata/pools holds LoadBalancerPools and Nodes, and the intent that is made of
// them. Every order of the objects gives the same.
func TestLoadBalancerPoolsGolden(t *testing.T) {
	translatetest.Golden(t, "testdata/pools/*.txtar", "objects.yaml", "intent", parseBalancing, (*balancing).translated)
}
