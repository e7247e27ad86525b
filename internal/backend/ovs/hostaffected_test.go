// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	"coelan.io/coelan/internal/backend/kernelview"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/trigger"
)

// The node is compared with intent after the changes that ask something else of it, and after these
// only: the changes of the many Networks of others cost it nothing.
func TestHostFollowsIntent(t *testing.T) {
	network := func(name string, change func(*intent.Network)) func(*intent.State, *intent.Tx) {
		return func(s *intent.State, tx *intent.Tx) {
			n, _ := s.Networks().Get(name)
			n.Name = name
			change(&n)
			tx.SetNetwork(n)
		}
	}
	router := func(name string, change func(*intent.Router)) func(*intent.State, *intent.Tx) {
		return func(s *intent.State, tx *intent.Tx) {
			r, _ := s.Routers().Get(name)
			r.Name = name
			change(&r)
			tx.SetRouter(r)
		}
	}
	node := func(name string, change func(*intent.Node)) func(*intent.State, *intent.Tx) {
		return func(s *intent.State, tx *intent.Tx) {
			n, _ := s.Nodes().Get(name)
			change(&n)
			tx.SetNode(n)
		}
	}
	gateway := func(to string) func(*intent.Network) {
		return func(n *intent.Network) {
			n.Subnets = []intent.NetworkSubnet{{Prefix: n.Subnets[0].Prefix, Gateway: addr(to)}}
		}
	}
	private := intent.Network{Name: "blue", ID: 9, Router: "red"}
	for _, tc := range []struct {
		name    string
		change  func(*intent.State, *intent.Tx)
		affects bool
	}{
		{"the own node's address", node("n1", func(n *intent.Node) { n.Addresses = []netip.Addr{addr("192.168.33.99")} }), true},
		{"the own node's MTU", node("n1", func(n *intent.Node) { n.MTU = 1400 }), true},
		{"another node's subnet", node("n2", func(n *intent.Node) { n.Subnets = n.Subnets[:1] }), true},
		{"a node leaves", func(_ *intent.State, tx *intent.Tx) { tx.DeleteNode("n2") }, true},
		{"a shared Network's gateway", network("open", gateway("10.60.0.9")), true},
		{"a shared Network's subnet", network("open", func(n *intent.Network) {
			n.Subnets = []intent.NetworkSubnet{{Prefix: prefixes("10.61.0.0/16")[0], Gateway: addr("10.61.0.1")}}
		}), true},
		{"a shared Network goes", func(_ *intent.State, tx *intent.Tx) { tx.DeleteNetwork("open") }, true},
		{"a Network moves into a shared Router", network("red", func(n *intent.Network) { n.Router = "open" }), true},
		{"an overlay becomes a physical network", network("red", func(n *intent.Network) { n.Physical, n.Router = "office", "" }), true},
		{"a Router is shared", router("red", func(r *intent.Router) { r.Shared = true }), true},
		{"a Router is shared no more", router("open", func(r *intent.Router) { r.Shared = false }), true},
		{"a shared Router goes", func(_ *intent.State, tx *intent.Tx) { tx.DeleteRouter("open") }, true},
		{"what is masqueraded", router("default", func(r *intent.Router) { r.SNAT.Enabled = !r.SNAT.Enabled }), true},
		{"a guarded port", func(_ *intent.State, tx *intent.Tx) {
			tx.ReplaceGuardedPorts([]intent.GuardedPort{{Protocol: intent.TCP, Port: 9999}})
		}, true},
		{"a physical network of the node", func(_ *intent.State, tx *intent.Tx) { tx.ReplaceUplinks(uplinksTo("office")) }, true},
		{"a range of ClusterIPs", func(_ *intent.State, tx *intent.Tx) {
			tx.ReplaceServiceRanges([]intent.ServiceRange{{Prefix: prefixes("10.97.0.0/16")[0]}})
		}, true},

		{"a private Network's gateway", network("red", gateway("10.50.0.9")), false},
		{"a private Network comes", func(_ *intent.State, tx *intent.Tx) { tx.SetNetwork(private) }, false},
		{"a private Network goes", func(_ *intent.State, tx *intent.Tx) { tx.DeleteNetwork("red") }, false},
		{"a private Router's routes", router("red", func(r *intent.Router) {
			r.Routes = []intent.Route{{Destination: prefixes("0.0.0.0/0")[0], NextHop: addr("10.50.0.2")}}
		}), false},
		{"a private Router comes", router("blue", func(r *intent.Router) { r.ID = 9 }), false},
		{"a shared Network's number", network("open", func(n *intent.Network) { n.VNI++ }), false},
		{"a physical network's gateway", network("lan", gateway("192.168.42.253")), false},
		{"a block", func(_ *intent.State, tx *intent.Tx) {
			tx.SetBlock(intent.Block{Network: "open", Prefix: prefixes("10.60.0.0/26")[0], Node: "n2"})
		}, false},
		{"a Port of another node", func(_ *intent.State, tx *intent.Tx) {
			tx.SetPort(intent.Port{ID: "port:a/b", Network: "open", Node: "n2", Addresses: []netip.Addr{addr("10.60.0.7")}})
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, before := intent.NewStore(), networked(t)
				update := func(change func(*intent.Tx)) *intent.State {
					s, err := store.Update(func(tx *intent.Tx) error { change(tx); return nil })
					if err != nil {
						t.Fatal(err)
					}
					return s
				}
				before = update(func(tx *intent.Tx) { replaceWith(tx, before) })
				h := &host{intent: store, services: kernelview.NewServices(), reconcile: trigger.New()}
				fired := func() bool {
					synctest.Wait()
					select {
					case <-h.reconcile:
						return true
					default:
						return false
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { _ = h.followIntent(ctx) }()
				if !fired() {
					t.Error("what has changed before is not looked at")
				}
				after := update(func(tx *intent.Tx) { tc.change(before, tx) })
				if after == before {
					t.Fatal("nothing has changed")
				}
				if got := fired(); got != tc.affects {
					t.Errorf("the node is compared with intent: %v", got)
				}
				if !tc.affects && !reflect.DeepEqual(hostState(before, "eth0", nil), hostState(after, "eth0", nil)) {
					t.Error("the kernel holds something else")
				}
			})
		})
	}
}

// replaceWith makes what a State of another Store has that the host may depend on.
func replaceWith(tx *intent.Tx, s *intent.State) {
	tx.Replace(intent.Objects{
		Local: s.Local(), Nodes: slices.Collect(s.Nodes().All()), Routers: slices.Collect(s.Routers().All()),
		Networks: slices.Collect(s.Networks().All()),
	})
}
