// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate/translatetest"
)

// tenants are the objects of one golden file.
type tenants struct {
	routers  []*v1alpha1.Router
	networks []*v1alpha1.Network
	blocks   []*v1alpha1.AddressBlock
	ports    []*v1alpha1.Port
}

func (o *tenants) Shuffle() {
	translatetest.Shuffle(o.routers)
	translatetest.Shuffle(o.networks)
	translatetest.Shuffle(o.blocks)
	translatetest.Shuffle(o.ports)
}

// translated is the tables of intent for a reader. This node is n1.
func (o *tenants) translated() string {
	routers, networks, problems := Networks(o.routers, o.networks)
	blocks, more := Blocks(o.blocks, networks, o.networks)
	ports, evenMore := FixedPorts(o.ports, o.blocks, networks, blocks, "n1")
	var b strings.Builder
	table := func(head string, rows func(w *tabwriter.Writer)) {
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, head)
		rows(w)
		w.Flush()
	}
	table("ROUTER\tID\tVNI\tSHARED\tIMPORTS\tTARGETS\tRD\tROUTES", func(w *tabwriter.Writer) {
		for _, r := range routers {
			fmt.Fprintf(w, "%s\t%d\t%d\t%v\t%v\t%v→%v\t%s\t%v\n", r.Name, r.ID, r.VNI, r.Shared, r.Imports, r.ImportTargets,
				r.ExportTargets, r.Distinguisher, r.Routes)
		}
	})
	table("NETWORK\tID\tVNI\tROUTER\tPHYSICAL\tVLAN\tSUBNETS", func(w *tabwriter.Writer) {
		for _, n := range networks {
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%d\t%v\n", n.Name, n.ID, n.VNI, n.Router, n.Physical, n.VLAN, n.Subnets)
		}
	})
	table("BLOCK\tNETWORK\tNODE", func(w *tabwriter.Writer) {
		for _, x := range blocks {
			fmt.Fprintf(w, "%s\t%s\t%s\n", x.Prefix, x.Network, x.Node)
		}
	})
	table("PORT\tNETWORK\tNODE\tMAC\tADDRESSES", func(w *tabwriter.Writer) {
		for _, p := range ports {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%v\n", p.ID, p.Network, p.Node, p.MAC, p.Addresses)
		}
	})
	for _, p := range append(append(problems, more...), evenMore...) {
		fmt.Fprintf(&b, "%s: %s\n", p.Reason, p.Error())
	}
	return b.String()
}

func parseTenants(t *testing.T, text []byte) *tenants {
	t.Helper()
	o := &tenants{}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "Router":
			o.routers = append(o.routers, translatetest.Decode[v1alpha1.Router](t, document))
		case "Network":
			o.networks = append(o.networks, translatetest.Decode[v1alpha1.Network](t, document))
		case "AddressBlock":
			o.blocks = append(o.blocks, translatetest.Decode[v1alpha1.AddressBlock](t, document))
		case "Port":
			o.ports = append(o.ports, translatetest.Decode[v1alpha1.Port](t, document))
		default:
			t.Fatalf("kind %q in\n%s", kind.Kind, document)
		}
	}
	return o
}

// Each file in testdata/networks holds objects of coelan.io, and the intent and the problems that
// are made of them. Every order of the objects gives the same.
func TestNetworksGolden(t *testing.T) {
	translatetest.Golden(t, "testdata/networks/*.txtar", "objects.yaml", "intent", parseTenants, (*tenants).translated)
}
