// SPDX-License-Identifier: Apache-2.0

//go:build integration

package northbound

import (
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/ovn/compile"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
	"coelan.io/coelan/internal/ovntest"
)

// Rows beside those of another system, such as Neutron: references to ours come and go in its
// columns, come back when they are taken away, and nothing else of it is touched.
func TestSupplement(t *testing.T) {
	o := ovntest.Start(t)
	o.Nbctl("ls-add", "neutron-d", "--", "lr-add", "neutron-rd", "--", "set", "logical_router", "neutron-rd", "external_ids:a=b", "--",
		"lr-route-add", "neutron-rd", "0.0.0.0/0", "10.244.1.254", "--", "lr-policy-add", "neutron-rd", "7", "ip4.src == 192.0.2.1", "drop", "--",
		"lb-add", "octavia", "192.0.2.80:80", "10.244.1.9:80", "tcp", "--", "ls-lb-add", "neutron-d", "octavia")
	w := world()
	w.Services = []intent.Service{{Namespace: "shop", Name: "web", Router: "default", Ports: []intent.ServicePort{{
		Protocol: intent.TCP, Port: 80, ClusterIP: w.ServiceRanges[0].Prefix.Addr().Next(),
		Endpoints: []intent.ServiceEndpoint{{Address: w.Ports[0].Addresses[0], Port: 8080}},
	}}}}
	others := compile.Others{Rows: map[intent.Ref]string{
		{Kind: intent.KindNetwork, Key: "default"}: "neutron-d", {Kind: intent.KindRouter, Key: "default"}: "neutron-rd",
		{Kind: intent.KindNode, Key: "n1"}: "p1", {Kind: intent.KindNode, Key: "n2"}: "p2",
	}}
	state := intenttest.State(w)
	begin := func(rows *nb.Rows) *controller {
		return start(t, []string{o.Remote("nb")}, state, func(o *Options) { o.Rows = func() *nb.Rows { return rows } })
	}
	wanted := func() *nb.Rows {
		c := compile.NewSupplement(compile.Options{})
		c.Update(state, others)
		return c.Rows()
	}
	theirs := func() string {
		return o.Nbctl("lr-route-list", "neutron-rd") + o.Nbctl("get", "logical_router", "neutron-rd", "external_ids") +
			o.Nbctl("list", "load_balancer", "octavia") + o.Nbctl("get", "logical_switch", "neutron-d", "load_balancer") + o.Nbctl("find", "logical_router_policy", "priority=7")
	}
	before := theirs()
	c := begin(wanted())
	c.synced()
	policies := o.Nbctl("lr-policy-list", "neutron-rd")
	group := o.Nbctl("get", "logical_switch", "neutron-d", "load_balancer_group")
	if !strings.Contains(policies, "10.244.1.0/24") || !strings.Contains(policies, "192.0.2.1") || len(group) < len("[]")+36 {
		t.Errorf("policies %s\ngroups %s", policies, group)
	}
	if after := theirs(); after != before {
		t.Errorf("the other system's rows were\n%s\nand are\n%s", before, after)
	}
	uuids := o.Nbctl("get", "logical_router", "neutron-rd", "policies")
	c.stop()
	c = begin(wanted())
	c.synced()
	if n := c.client.Transactions(); n != 0 {
		t.Errorf("a start on what is right makes %d transactions", n)
	}
	if now := o.Nbctl("get", "logical_router", "neutron-rd", "policies"); now != uuids {
		t.Errorf("policies were %s and are %s", uuids, now)
	}
	o.Nbctl("clear", "logical_switch", "neutron-d", "load_balancer_group")
	o.Nbctl("lr-policy-del", "neutron-rd", "500")
	c.until("the group of the switch and the policies are back", func(error) bool {
		return o.Nbctl("get", "logical_switch", "neutron-d", "load_balancer_group") == group &&
			strings.Contains(o.Nbctl("lr-policy-list", "neutron-rd"), "10.244.1.0/24")
	})

	// The switch is made anew, as of a network that is deleted and comes back.
	o.Nbctl("ls-del", "neutron-d")
	c.until("it is said that the switch is gone", func(err error) bool { return err != nil })
	o.Nbctl("ls-add", "neutron-d")
	c.until("the new switch has the group", func(error) bool {
		return o.Nbctl("get", "logical_switch", "neutron-d", "load_balancer_group") == group
	})
	c.stop()

	// Without anything wanted nothing of ours is left.
	c = begin(nb.NewRows())
	c.synced()
	for _, table := range []string{"load_balancer", "load_balancer_group", "address_set"} {
		if left := o.Nbctl("find", table, "name!=octavia"); left != "" {
			t.Errorf("%s: %s", table, left)
		}
	}
	if left := o.Nbctl("lr-policy-list", "neutron-rd"); !strings.Contains(left, "192.0.2.1") || strings.Contains(left, "10.244") {
		t.Errorf("policies are %s", left)
	}
}
