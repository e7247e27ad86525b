// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/agentapi"
)

func TestProgressOf(t *testing.T) {
	for want, p := range map[string]agentapi.OVNProgress{
		"ovn-northd follows within 12ms, all chassis within 80ms": {
			Northd: new(12 * time.Millisecond), Chassis: new(80 * time.Millisecond), Waited: 80 * time.Millisecond,
		},
		"ovn-northd follows within 12ms, all chassis NOT within 5s":   {Northd: new(12 * time.Millisecond), Waited: 5 * time.Second},
		"ovn-northd follows NOT within 5s, all chassis NOT within 5s": {Waited: 5 * time.Second},
	} {
		if got := progressOf(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestPrintedNeutronStatus(t *testing.T) {
	var out strings.Builder
	since := time.Date(2026, 11, 20, 7, 2, 16, 0, time.UTC)
	for _, s := range []agentapi.NeutronStatus{
		{Where: "cloud prod"},
		{
			Where: "cloud prod", Compared: since, Since: since,
			Resources: []agentapi.NeutronResources{{Kind: "network", Count: 1}, {Kind: "port", Count: 42}},
		},
		{Where: "cloud prod", Compared: since, Since: since, Failure: "no route to host", Problems: 3},
	} {
		printNeutronStatus(&out, s)
	}
	const want = `Neutron: cloud prod NOT COMPARED yet
  resources  none is known
Neutron: cloud prod works since 2026-11-20T07:02:16Z
  resources  network: 1, port: 42
Neutron: cloud prod CANNOT BE USED since 2026-11-20T07:02:16Z
  resources  none is known
  ERROR      no route to host
  PROBLEMS   3: coelan check lists them
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
