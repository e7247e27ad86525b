// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"strings"
	"testing"

	"coelan.io/coelan/internal/agentapi"
)

func TestCompareMTUs(t *testing.T) {
	many := map[string]agentapi.Check{"z": {MTU: 1400}}
	for i := range 9 {
		many[fmt.Sprint("n", i)] = agentapi.Check{MTU: 8950}
	}
	for name, tc := range map[string]struct {
		checks map[string]agentapi.Check
		want   string // empty: no finding
	}{
		"no node":   {nil, ""},
		"one":       {map[string]agentapi.Check{"a": {MTU: 1450}}, ""},
		"equal":     {map[string]agentapi.Check{"a": {MTU: 1450}, "b": {MTU: 1450}}, ""},
		"not known": {map[string]agentapi.Check{"a": {MTU: 1450}, "b": {}}, ""},
		"two": {
			map[string]agentapi.Check{"b": {MTU: 1450}, "c": {MTU: 8950}, "a": {MTU: 1450}},
			"8950 on c, 1450 on a, b: packets of more than 1450 bytes",
		},
		"many": {many, "8950 on n0, n1, n2, n3, n4 and 4 more, 1400 on z: packets of more than 1400 bytes"},
	} {
		f, found := CompareMTUs(tc.checks)
		if found != (tc.want != "") || !strings.HasPrefix(f.Problem, tc.want) {
			t.Errorf("%s: %v %+v, want %q", name, found, f, tc.want)
		}
	}
}
