// SPDX-License-Identifier: Apache-2.0

package lbaddresses

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/trigger"
)

type notices struct{ said []string }

func (n *notices) ServiceNotice(namespace, name, uid, reason, message string) {
	n.said = append(n.said, namespace+"/"+name+" "+uid+" "+reason+": "+message)
}

// TestGainedAddresses has one Event for each address that the node has gained, however many ports
// the Service has.
func TestGainedAddresses(t *testing.T) {
	addresses := func(s ...string) (all []netip.Addr) {
		for _, a := range s {
			all = append(all, netip.MustParseAddr(a))
		}
		return all
	}
	store := intent.NewStore()
	_, err := store.Update(func(tx *intent.Tx) error {
		tx.SetService(intent.Service{Namespace: "default", Name: "web", UID: "1", Ports: []intent.ServicePort{
			{Name: "a", Protocol: intent.TCP, Port: 80, LoadBalancerIPs: addresses("192.0.2.1", "192.0.2.2")},
			{Name: "b", Protocol: intent.TCP, Port: 443, LoadBalancerIPs: addresses("192.0.2.1", "192.0.2.2")},
		}})
		tx.SetService(intent.Service{Namespace: "default", Name: "other", UID: "2", Ports: []intent.ServicePort{
			{Protocol: intent.TCP, Port: 80, LoadBalancerIPs: addresses("192.0.2.3")},
		}})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	events := &notices{}
	a := New(Options{Node: "n1", Intent: store, Events: events})
	a.gained(addresses("192.0.2.2", "192.0.2.9"))
	want := []string{"default/web 1 AddressAnnounced: node n1 answers for 192.0.2.2"}
	if diff := cmp.Diff(want, events.said); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
}

func TestAddressQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &addressQueue{wake: trigger.New()}
		ctx, cancel := context.WithCancel(t.Context())
		var got []int
		go q.run(ctx, func(all []netip.Addr) { got = append(got, len(all)) })
		q.add(netip.MustParseAddr("192.0.2.1"))
		synctest.Wait()
		q.add(netip.MustParseAddr("192.0.2.2"))
		q.add(netip.MustParseAddr("192.0.2.3"))
		synctest.Wait()
		cancel()
		synctest.Wait()
		total := 0
		for _, n := range got {
			total += n
		}
		if total != 3 {
			t.Errorf("%v addresses were told of", got)
		}
	})
}
