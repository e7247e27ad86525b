// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBasis(t *testing.T) {
	known := Basis{"NetworkPolicy": {Changed: 100}, "Pod": {Changed: 200}}
	for name, tc := range map[string]struct {
		offered Basis
		lacks   string
		// advanced and rewound are the resource versions of NetworkPolicies and pods after
		// the view is taken.
		advanced, rewound [2]uint64
	}{
		"the same":                    {Basis{"NetworkPolicy": {100, 100}, "Pod": {200, 200}}, "", [2]uint64{100, 200}, [2]uint64{100, 200}},
		"newer":                       {Basis{"NetworkPolicy": {110, 130}, "Pod": {220, 230}}, "", [2]uint64{110, 220}, [2]uint64{110, 220}},
		"a list without the deletion": {Basis{"NetworkPolicy": {90, 150}, "Pod": {200, 200}}, "", [2]uint64{100, 200}, [2]uint64{100, 200}},
		"older in one kind":           {Basis{"NetworkPolicy": {90, 99}, "Pod": {220, 230}}, "NetworkPolicy", [2]uint64{100, 220}, [2]uint64{99, 220}},
		"older in the other":          {Basis{"NetworkPolicy": {110, 130}, "Pod": {190, 199}}, "Pod", [2]uint64{110, 200}, [2]uint64{110, 199}},
		"restored":                    {Basis{"NetworkPolicy": {40, 50}, "Pod": {45, 50}}, "NetworkPolicy", [2]uint64{100, 200}, [2]uint64{50, 50}},
		"a kind is gone":              {Basis{"Pod": {200, 210}}, "", [2]uint64{100, 200}, [2]uint64{100, 200}},
	} {
		t.Run(name, func(t *testing.T) {
			lacks := tc.offered.Lacks(known)
			if lacks != tc.lacks {
				t.Errorf("lacks %q, want %q", lacks, tc.lacks)
			}
			if lacks != "" && !strings.HasPrefix(tc.offered.Missing(lacks, known).Error(), lacks+": ") {
				t.Errorf("the error is %v", tc.offered.Missing(lacks, known))
			}
			versions := func(b Basis) [2]uint64 { return [2]uint64{b["NetworkPolicy"].Changed, b["Pod"].Changed} }
			got := [2][2]uint64{versions(known.Advance(tc.offered)), versions(known.Rewind(tc.offered))}
			if diff := cmp.Diff([2][2]uint64{tc.advanced, tc.rewound}, got); diff != "" {
				t.Errorf("advanced and rewound (-want +got):\n%s", diff)
			}
		})
	}
}
