// SPDX-License-Identifier: Apache-2.0

package lbaddresses

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coelan.io/coelan/internal/announce"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/trigger"
)

type notices struct{ said []string }

func (n *notices) ServiceNotice(namespace, name, uid, reason, message string) {
	n.said = append(n.said, namespace+"/"+name+" "+uid+" "+reason+": "+message)
}

func addresses(s ...string) (all []netip.Addr) {
	for _, a := range s {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

func floating(name, address, service string) intent.FloatingIP {
	return intent.FloatingIP{
		Name: "default/" + name, Network: "office", Address: netip.MustParseAddr(address), Service: service,
	}
}

// storeWith is intent after a change.
func storeWith(t *testing.T, change func(*intent.Tx)) *intent.Store {
	t.Helper()
	store := intent.NewStore()
	update(t, store, change)
	return store
}

func update(t *testing.T, store *intent.Store, change func(*intent.Tx)) {
	t.Helper()
	if _, err := store.Update(func(tx *intent.Tx) error { change(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

// TestGainedAddresses has one Event for each address that the node has gained, however many ports
// the Service has, whether the address is a load balancer's or a floating IP.
func TestGainedAddresses(t *testing.T) {
	store := storeWith(t, func(tx *intent.Tx) {
		tx.SetService(intent.Service{Namespace: "default", Name: "web", UID: "1", Ports: []intent.ServicePort{
			{Name: "a", Protocol: intent.TCP, Port: 80, LoadBalancerIPs: addresses("192.0.2.1", "192.0.2.2")},
			{Name: "b", Protocol: intent.TCP, Port: 443, LoadBalancerIPs: addresses("192.0.2.1", "192.0.2.2")},
		}})
		tx.SetService(intent.Service{Namespace: "default", Name: "other", UID: "2", Ports: []intent.ServicePort{
			{Protocol: intent.TCP, Port: 80, LoadBalancerIPs: addresses("192.0.2.3")},
		}})
		tx.SetFloatingIP(floating("web", "198.51.100.1", "default/web"))
		tx.SetFloatingIP(floating("more", "198.51.100.2", "default/web"))
		tx.SetFloatingIP(floating("other", "198.51.100.3", "default/other"))
	})
	events := &notices{}
	a := New(Options{Node: "n1", Intent: store, Events: events})
	a.gained(addresses("192.0.2.2", "192.0.2.9", "198.51.100.1", "198.51.100.3"))
	want := []string{
		"default/other 2 AddressAnnounced: node n1 answers for 198.51.100.3",
		"default/web 1 AddressAnnounced: node n1 answers for 192.0.2.2",
		"default/web 1 AddressAnnounced: node n1 answers for 198.51.100.1",
	}
	if diff := cmp.Diff(want, events.said); diff != "" {
		t.Errorf("Events (-want +got):\n%s", diff)
	}
}

// TestServicesChanged has the nodes choose anew when a Service changes that has an address to be
// answered for, and not for the changes of others.
func TestServicesChanged(t *testing.T) {
	service := func(name string, lb []netip.Addr, endpoints ...string) intent.Service {
		p := intent.ServicePort{Protocol: intent.TCP, Port: 80, LoadBalancerIPs: lb}
		for _, e := range addresses(endpoints...) {
			p.Endpoints = append(p.Endpoints, intent.ServiceEndpoint{Address: e})
		}
		return intent.Service{Namespace: "default", Name: name, Ports: []intent.ServicePort{p}}
	}
	for _, tc := range []struct {
		name   string
		change func(*intent.Tx)
		want   bool
	}{
		{"a Service without an address", func(tx *intent.Tx) { tx.SetService(service("plain", nil, "10.0.0.1")) }, false},
		{"a load balancer's", func(tx *intent.Tx) {
			tx.SetService(service("balanced", addresses("192.0.2.1"), "10.0.0.1"))
		}, true},
		{"one that is no load balancer's any more", func(tx *intent.Tx) { tx.DeleteService("default/balanced") }, true},
		{"one with a floating IP", func(tx *intent.Tx) { tx.SetService(service("floating", nil, "10.0.0.1")) }, true},
		{"one with a floating IP goes", func(tx *intent.Tx) { tx.DeleteService("default/floating") }, true},
		{"one comes that a floating IP waits for", func(tx *intent.Tx) { tx.SetService(service("late", nil)) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := storeWith(t, func(tx *intent.Tx) {
				tx.SetService(service("plain", nil))
				tx.SetService(service("balanced", addresses("192.0.2.1")))
				tx.SetService(service("floating", nil))
				tx.SetFloatingIP(floating("f", "198.51.100.1", "default/floating"))
				tx.SetFloatingIP(floating("l", "198.51.100.2", "default/late"))
			})
			before := store.State()
			update(t, store, tc.change)
			a := New(Options{Node: "n1", Intent: store})
			a.ServicesChanged(before, store.State())
			woken := false
			select {
			case <-a.wake:
				woken = true
			default:
			}
			if woken != tc.want || touched(before, store.State()) != tc.want {
				t.Errorf("chooses anew: %v, want %v", woken, tc.want)
			}
		})
	}
}

// TestTouched has the nodes choose anew for whatever may change which of them answers, and
// not for the floating IPs of Ports.
func TestTouched(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*intent.Tx)
		want   bool
	}{
		{"nothing", func(*intent.Tx) {}, false},
		{"a Port's floating IP", func(tx *intent.Tx) { tx.SetFloatingIP(floating("p", "198.51.100.9", "")) }, false},
		{"a Service's floating IP", func(tx *intent.Tx) { tx.SetFloatingIP(floating("f", "198.51.100.9", "default/web")) }, true},
		{"it goes", func(tx *intent.Tx) { tx.DeleteFloatingIP("default/there") }, true},
		{"a node", func(tx *intent.Tx) { tx.SetNode(intent.Node{Name: "n1"}) }, true},
		{"a Network", func(tx *intent.Tx) { tx.SetNetwork(intent.Network{Name: "office", External: true}) }, true},
		{"a pool", func(tx *intent.Tx) { tx.ReplaceLoadBalancerPools([]intent.LoadBalancerPool{{Name: "pool"}}) }, true},
	} {
		store := storeWith(t, func(tx *intent.Tx) { tx.SetFloatingIP(floating("there", "198.51.100.1", "default/web")) })
		before := store.State()
		update(t, store, tc.change)
		if got := touched(before, store.State()); got != tc.want {
			t.Errorf("%s: chooses anew: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestDesired has the bridges answer for floating IPs of Services, and the kernels for load
// balancers' addresses.
func TestDesired(t *testing.T) {
	store := storeWith(t, func(tx *intent.Tx) {
		tx.SetNode(intent.Node{Name: "n1", Addresses: addresses("10.1.0.1", "fd01::1"), PhysicalNetworks: []string{"dc"}})
		tx.SetNode(intent.Node{Name: "n2", Addresses: addresses("10.1.0.2")})
		tx.SetNode(intent.Node{Name: "new"})
		tx.SetNetwork(intent.Network{Name: "office", ID: 9, Physical: "dc", External: true})
		tx.ReplaceLoadBalancerPools([]intent.LoadBalancerPool{{
			Name: "pool", Nodes: []string{"n1", "n2"},
			Ranges: []intent.AddressRange{{First: netip.MustParseAddr("192.0.2.0"), Last: netip.MustParseAddr("192.0.2.9")}},
		}})
		tx.SetService(intent.Service{Namespace: "default", Name: "web", Ports: []intent.ServicePort{
			{Protocol: intent.TCP, Port: 80, LoadBalancerIPs: addresses("192.0.2.1")},
		}})
		tx.SetFloatingIP(floating("f", "198.51.100.1", "default/web"))
		tx.SetFloatingIP(floating("p", "198.51.100.2", ""))
	})
	want := announce.Desired{
		Peers: []announce.Peer{{Name: "n1", Addr: addresses("10.1.0.1")[0]}, {Name: "n2", Addr: addresses("10.1.0.2")[0]}},
		Addresses: []announce.Address{
			{Addr: addresses("192.0.2.1")[0], Nodes: []string{"n1", "n2"}},
			{Addr: addresses("198.51.100.1")[0], Nodes: []string{"n1"}, Bridge: true},
		},
	}
	if diff := cmp.Diff(want, desired(store.State(), config.OVSBackend), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	want.Addresses = want.Addresses[:1]
	if diff := cmp.Diff(want, desired(store.State(), config.OVNBackend), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("with OVN (-want +got):\n%s", diff)
	}
}

// TestChosen makes intent of all that this node's bridge is to answer for, and of nothing else.
func TestChosen(t *testing.T) {
	store := intent.NewStore()
	a := New(Options{Node: "n1", Intent: store})
	for _, want := range [][]netip.Addr{addresses("198.51.100.1", "2001:db8::1"), addresses("198.51.100.2"), nil} {
		a.chosen(want)
		var got []netip.Addr
		for c := range store.State().ChosenAddresses().All() {
			got = append(got, c.Address)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
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
