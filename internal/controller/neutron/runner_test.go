// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"testing"

	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
)

// What is wanted follows what Neutron has, also while intent stays, and is made anew for nothing
// else.
func TestWantOfWhatThereIs(t *testing.T) {
	store := intent.NewStore()
	changeIntent(t, store, func(tx *intent.Tx) {
		tx.SetRouter(intent.Router{Name: "default", ID: 1})
		tx.SetNetwork(intent.Network{Name: "red", Router: "default", Project: "q", Subnets: intenttest.Subnets("10.0.0.0/24")})
		tx.SetNetwork(intent.Network{Name: "lent", Router: "default", NeutronNetwork: "n", Subnets: intenttest.Subnets("10.1.0.0/24")})
	})
	r := &Runner{
		Options: Options{Intent: known{store}}, identities: newIdentities(Options{}, func() {}),
		client: cloud.New(cloud.Options{}), loop: heartbeat.New(heartbeat.Bound).Loop("neutron"),
	}
	red := compile.NetworkRef("red")
	has := func(do func(*resource.Inventory)) *resource.Inventory {
		have := resource.NewInventory()
		have.Own = "p"
		do(have)
		return have
	}
	nothing := func(*resource.Inventory) {}
	last := r.want(has(nothing))
	for _, tc := range []struct {
		what string
		have func(*resource.Inventory)
		anew bool
	}{
		{"the same", nothing, false},
		{"the cluster's project is another", func(i *resource.Inventory) { i.Own = "q" }, true},
		{"and again the first", nothing, true},
		{"the network is in the cluster's project", func(i *resource.Inventory) { i.Put(red, resource.Actual{ID: "n1"}) }, true},
		{"and is another one there", func(i *resource.Inventory) { i.Put(red, resource.Actual{ID: "n2"}) }, false},
		{"a group", func(i *resource.Inventory) {
			i.Put(resource.Ref{Kind: resource.SecurityGroup, Key: "itself"}, resource.Actual{ID: "g"})
		}, true},
		{"a trunk", func(i *resource.Inventory) { i.SetTrunk("n1", resource.Trunk{ID: "t"}) }, true},
		{"no BGPVPNs", func(i *resource.Inventory) { i.BGPVPNs.Missing = true }, true},
		{"a network of another program", func(i *resource.Inventory) {
			i.Lend(resource.LentNetwork(compile.NetworkObject("lent")), resource.Loan{Actual: resource.Actual{ID: "n"}})
		}, true},
	} {
		now := r.want(has(tc.have))
		if anew := now != last; anew != tc.anew {
			t.Errorf("%s: made anew: %v", tc.what, anew)
		}
		last = now
	}
	r.want(has(nothing))
	if _, wanted := r.want(has(func(i *resource.Inventory) { i.Own = "q" })).Get(red); !wanted {
		t.Error("a network is not wanted in the cluster's project, which is that of its Network now")
	}
}
