// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/internal/translate/translatetest"
)

func TestCheckPortGolden(t *testing.T) {
	translatetest.Golden(t, "testdata/ports/*.txtar", "objects.yaml", "result", parseWorld, func(w *world) string {
		networks, namespaces := map[string]*v1alpha1.Network{}, map[string]*corev1.Namespace{}
		for _, n := range w.networks {
			networks[n.Name] = n
		}
		for _, n := range w.namespaces {
			namespaces[n.Name] = n
		}
		var lines []string
		for _, p := range w.ports {
			var others []*v1alpha1.Port
			for _, o := range w.ports {
				if o.Spec.Network == p.Spec.Network {
					others = append(others, o)
				}
			}
			v := CheckPort(p, networks[p.Spec.Network], namespaces[p.Namespace], others)
			lines = append(lines, fmt.Sprintf("%s/%s: %s\n", p.Namespace, p.Name, showPort(v)))
		}
		slices.Sort(lines)
		return strings.Join(lines, "")
	})
}

func showPort(v PortVerdict) string {
	if v.Reason != "" {
		return v.Reason + ": " + v.Message
	}
	var parts []string
	for _, a := range v.Fixed {
		parts = append(parts, a.String())
	}
	for _, p := range v.Pools {
		parts = append(parts, "any of "+p.Prefix.String())
	}
	if len(parts) == 0 {
		parts = append(parts, "no address")
	}
	if v.MAC != nil {
		parts = append(parts, "MAC "+v.MAC.String())
	}
	return strings.Join(parts, ", ")
}

func TestMACOfUID(t *testing.T) {
	a, b := MACOfUID("a"), MACOfUID("b")
	if a == b || a != MACOfUID("a") || a[0]&1 != 0 || a[0]&2 == 0 || reserved.IsRouterMAC(a) {
		t.Errorf("MACOfUID: %s, %s", a, b)
	}
}
