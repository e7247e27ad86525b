// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
)

// A row has room for a few problems.
func TestRowsOfPolicies(t *testing.T) {
	web := intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "shop", Name: "web"}
	for _, tc := range []struct {
		problems []string
		want     string
	}{
		{nil, "NetworkPolicy shop/web 1 of 2 -"},
		{[]string{"a", "b", "c"}, "NetworkPolicy shop/web 1 of 2 a. b. c"},
		{[]string{"a", "b", "c", "d", "e"}, "NetworkPolicy shop/web 1 of 2 a. b. c. and 2 more"},
	} {
		rows := enforcementRows([]policy.EnforcementStatus{{Policy: web, Nodes: 2, ProgrammedNodes: 1, Problems: tc.problems}})
		if got := strings.TrimSpace(fmt.Sprintln(rows[0]...)); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
