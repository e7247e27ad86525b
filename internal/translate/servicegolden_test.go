// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/nodeview"
	"coelan.io/coelan/internal/translate/translatetest"
)

// balanced are the objects of one golden file.
type balanced struct {
	services []*corev1.Service
	slices   []*discoveryv1.EndpointSlice
}

func (o *balanced) Shuffle() {
	translatetest.Shuffle(o.services)
	translatetest.Shuffle(o.slices)
}

// goldenView is that of node n1. Its host listens on TCP 30022. Namespace tenant has a Router of
// its own, that of namespace later is not known yet.
var goldenView = ServiceView{
	Node: "n1",
	Router: func(namespace string) string {
		return map[string]string{"shop": "default", "tenant": "blue"}[namespace]
	},
	NodePortTaken: func(p intent.Protocol, port uint16) bool { return p == intent.TCP && port == 30022 },
}

// goldenNode is n1, in zone a.
var goldenNode = nodeview.Node{Name: goldenView.Node, Zone: "a", Listens: goldenView.NodePortTaken}

func (o *balanced) translated() string {
	s := NewServiceSet(goldenView)
	for _, slice := range o.slices {
		s.SetEndpointSlice(slice)
	}
	for _, svc := range o.services {
		s.SetService(svc)
	}
	var b strings.Builder
	for _, v := range s.Changes().Changed {
		b.WriteString(showService(v))
	}
	for _, p := range s.Problems() {
		if p.Local {
			b.WriteString("here ")
		}
		fmt.Fprintf(&b, "%s: %s\n", p.Reason, p.Error())
	}
	return b.String()
}

// showService is what n1 serves of a Service for a reader: what is at its zero value is left out.
func showService(s intent.Service) string {
	v := nodeview.Service(s, goldenNode)
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s router %s", v.Namespace, v.Name, v.Router)
	show := func(name string, value any, there bool) {
		if there {
			fmt.Fprintf(&b, " %s %v", name, value)
		}
	}
	show("internal", "local", v.InternalLocal)
	show("external", "local", v.ExternalLocal)
	show("affinity", v.AffinitySeconds, v.AffinitySeconds != 0)
	show("sources", v.SourceRanges, len(v.SourceRanges) > 0)
	show("health", v.HealthCheckNodePort, v.HealthCheckNodePort != 0)
	show("has", v.LocalEndpoints, v.LocalEndpoints != 0)
	balancers := slices.ContainsFunc(s.Ports, func(p intent.ServicePort) bool { return len(p.LoadBalancerIPs) > 0 })
	if nodes := s.EndpointNodes(); s.ExternalLocal && balancers {
		show("nodes", nodes, len(nodes) > 0)
	}
	b.WriteString("\n")
	for _, p := range v.Ports {
		fmt.Fprintf(&b, "  %s: %s\n", p.Name, showServicePort(p))
	}
	return b.String()
}

func parseBalanced(t *testing.T, text []byte) *balanced {
	t.Helper()
	o := &balanced{}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "Service":
			o.services = append(o.services, translatetest.Decode[corev1.Service](t, document))
		case "EndpointSlice":
			o.slices = append(o.slices, translatetest.Decode[discoveryv1.EndpointSlice](t, document))
		default:
			t.Fatalf("kind %q in\n%s", kind.Kind, document)
		}
	}
	return o
}

// Each file in testdata/services holds Services and EndpointSlices, and what node n1 in zone a
// makes of them. Every order of the objects gives the same.
func TestServicesGolden(t *testing.T) {
	translatetest.Golden(t, "testdata/services/*.txtar", "objects.yaml", "intent", parseBalanced, (*balanced).translated)
}
