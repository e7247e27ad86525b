// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"fmt"
	"slices"
	"testing"

	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/intent"
)

// testGivenSubnetPools are namespaces with subnets of a part of a subnet pool of OpenStack, of
// which other programs have subnets: the namespaces get what these have left, and while Neutron is
// away they wait.
func testGivenSubnetPools(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	neutron := neutronfake.Start(t)
	pool := inNeutron(t, neutron, "subnetpools", "subnetpool", `"name": "office", "prefixes": ["10.0.0.0/8"], "shared": true`)
	theirs := inNeutron(t, neutron, "networks", "network", `"name": "theirs"`)
	inNeutron(t, neutron, "subnets", "subnet", fmt.Sprintf(`"network_id": %q, "cidr": "10.128.0.0/23", "ip_version": 4,
		"subnetpool_id": %q`, theirs, pool))
	w.start(func(o *controller.Options) {
		pools("10.128.0.0/22/24")(o)
		o.Neutron = &controller.Neutron{
			Cloud: cloud.Access{Endpoint: neutron.URL + "/", Project: "p"}, PolicyMode: intent.EnforcedPolicies,
			SubnetPools: []string{pool},
		}
	})
	w.node(1)
	w.namespace("given-a", nil)
	w.pod("given-a", "p", "worker1")
	if got := w.subnetsOf("ns-given-a"); got != "10.128.2.0/24" {
		t.Errorf("subnets %s", got)
	}
	of := func() (list []string) {
		for _, s := range neutron.All("subnets") {
			if s["subnetpool_id"] == pool {
				list = append(list, fmt.Sprint(s["cidr"]))
			}
		}
		slices.Sort(list)
		return list
	}
	want := func(cidrs ...string) {
		t.Helper()
		w.until(func() string {
			if got := of(); !slices.Equal(got, cidrs) {
				return fmt.Sprintf("the pool has the subnets %v, not %v", got, cidrs)
			}
			return ""
		})
	}
	want("10.128.0.0/23", "10.128.2.0/24")

	neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.Busy })
	w.namespace("given-b", nil)
	w.pod("given-b", "p", "worker1")
	w.event("Namespace", "given-b", "SubnetPoolUnknown")
	w.objects("ns-given-a ns-given-b", "ns-given-a")
	neutron.Fail(func(int, string, string) neutronfake.Fault { return neutronfake.None })
	if got := w.subnetsOf("ns-given-b"); got != "10.128.3.0/24" {
		t.Errorf("subnets %s", got)
	}
	want("10.128.0.0/23", "10.128.2.0/24", "10.128.3.0/24")
	if made := neutron.All("subnetpools"); len(made) != 1 {
		t.Errorf("the pools are %v, want the given one alone", made)
	}
}
