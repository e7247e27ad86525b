// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// UUIDs of Neutron have a column if there are any.
func TestNeutronColumn(t *testing.T) {
	var out strings.Builder
	printRows(&out, [][]any{{"n1", "red", "-"}, {"n2", "red", "-"}}, "NODE", "NETWORK", neutronColumn)
	printRows(&out, nil, "NODE", neutronColumn)
	printRows(&out, [][]any{{"n1", "-"}}, "NODE", "GATEWAY")
	printRows(&out, [][]any{{"n1", "red", "0b1c"}, {"n2", "lan", "-"}}, "NODE", "NETWORK", neutronColumn)
	const want = `NODE  NETWORK
n1    red
n2    red
NODE
NODE  GATEWAY
n1    -
NODE  NETWORK  NEUTRON
n1    red      0b1c
n2    lan      -
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
