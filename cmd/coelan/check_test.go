// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/agentapi"
)

// A check says what was found, what was left out, and what could not be compared.
func TestPrintedChecks(t *testing.T) {
	var out strings.Builder
	node := agentapi.Check{
		Interfaces: 2, Ports: 3, Configuration: "racks", NotCompared: []string{"the bindings of ports"},
		Findings: agentapi.Findings{{Kind: "binding", Object: "shop/web.eth0", Problem: "is bound to no chassis"}},
	}
	printCheck(&out, "n1", node)
	printOVNCheck(&out, agentapi.OVNCheck{
		Rows: 900, More: 7,
		Findings: agentapi.Findings{{Kind: "row", Object: "Logical_Switch net-red", Problem: "of Network red is missing"}},
	})
	printOVNCheck(&out, agentapi.OVNCheck{OK: true, Rows: 901})
	printNeutronCheck(&out, agentapi.NeutronCheck{OK: true, Resources: 12})
	printNeutronCheck(&out, agentapi.NeutronCheck{
		Resources: 48, More: 2, Northbound: &agentapi.OVNCheck{Rows: 31},
		Findings: agentapi.Findings{{Kind: "object", Object: "Port shop/web", Problem: "QuotaExceeded: port of Neutron: no room"}},
		Limits:   agentapi.Findings{{Kind: "object", Object: "Egress out", Problem: "EgressUnsupported: by the gateway alone"}},
	})
	const want = `n1: 2 pod interfaces, 3 ports, 1 findings, configured by nodenetworkconfig racks
  binding shop/web.eth0 is bound to no chassis
  not compared: the bindings of ports
OVN: 900 rows, 8 findings
  row Logical_Switch net-red of Network red is missing
  and 7 more
OVN: 901 rows, 0 findings
Neutron: 12 resources, 0 findings
Neutron: 48 resources, 3 findings
  object Port shop/web QuotaExceeded: port of Neutron: no room
  and 2 more
  not done: Egress out EgressUnsupported: by the gateway alone
OVN: 31 rows, 0 findings
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
