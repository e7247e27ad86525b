// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovs/appctl"
	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/backend/ovs/ctlimit"
	"coelan.io/coelan/internal/backend/ovs/failover"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
)

// office is an external Network, by a VLAN of the physical network of that name.
var office = intent.Network{
	Name: "office", ID: 7, Physical: "office", VLAN: 70, External: true,
	Subnets: []intent.NetworkSubnet{{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Gateway: addr("198.51.100.1")}},
}

// outward is a node that is connected to the external Network, with the pods a and b.
type outward struct {
	*testNode
	sw *picky
}

func newOutward(t *testing.T) *outward {
	t.Helper()
	m := newMachine(t)
	m.connectedTo("office")
	m.ovs.Answer("dpctl/ct-get-maxconns", "3000000")
	m.ovs.Answer("dpctl/ct-get-nconns", "5")
	n := m.start(m.testConfig())
	o := &outward{n, &picky{Fake: m.sw}}
	n.flows.bridge = bridge.New(bridge.Options{
		Connect: func(context.Context) (bridge.Switch, error) { return o.sw, nil }, Learned: pipeline.Learned,
	})
	n.addBridge("br-office", "netdev")
	n.reconciled()
	for _, name := range []string{"a", "b"} {
		at := n.attached(name)
		n.update(func(tx *intent.Tx) {
			p, _ := n.intent.State().Ports().Get(at.Key.String())
			p.Object = name + ".eth0"
			tx.SetPort(p)
			tx.SetNetwork(office)
			tx.SetRouter(intent.Router{Name: "red", ID: 9, VNI: 70009})
		})
	}
	return o
}

// applied writes the flows, and has the node know what it answers for.
func (o *outward) applied() {
	o.Helper()
	o.must(o.flows.sync(o.bound(), o.intent.State()))
	o.external.answer(o.bound(), o.intent.State(), nil)
}

func (o *outward) bind(name, address, port string) {
	o.Helper()
	o.update(func(tx *intent.Tx) {
		tx.SetFloatingIP(intent.FloatingIP{Name: "default/" + name, Network: "office", Address: addr(address), Port: port})
	})
}

// said is what there is to say of an address, in short.
func said(a agentapi.ExternalAddress) string {
	text := a.Network + " " + a.Address.String()
	switch {
	case a.InEffect:
		text += " at " + a.MAC
	case a.Problem != "":
		text += ": " + a.Problem
	}
	if hop := a.NextHop; hop != nil {
		text += " by " + hop.Address.String() + " " + hop.MAC
	}
	return text
}

func (o *outward) floatingIPs(want ...string) {
	o.Helper()
	var got []string
	for _, f := range o.FloatingIPs() {
		of := f.Port
		if f.Service != "" {
			of = "Service " + f.Service
		}
		got = append(got, fmt.Sprintf("%s/%s of %s, %s", f.Namespace, f.Name, of, said(f.ExternalAddress)))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		o.Errorf("floating IPs (-want +got):\n%s", diff)
	}
}

// A node lists the floating IPs of Services that it has been chosen for, and no others.
func TestListedFloatingIPsOfServices(t *testing.T) {
	o := newOutward(t)
	o.update(func(tx *intent.Tx) {
		local := o.intent.State().Local()
		local.ServiceMode = intent.NativeServices
		tx.SetLocal(local)
		for address, service := range map[string]string{"198.51.100.32": "web", "198.51.100.33": "other", "192.0.2.7": "outside"} {
			tx.SetFloatingIP(intent.FloatingIP{
				Name: "default/" + service, Network: "office", Address: addr(address), Service: "default/" + service,
			})
		}
		tx.ReplaceChosenAddresses([]intent.ChosenAddress{{Address: addr("198.51.100.32")}, {Address: addr("192.0.2.7")}})
	})
	o.applied()
	o.floatingIPs(
		`default/outside of Service default/outside, office 192.0.2.7: network "office" is not external, or has no subnet with 192.0.2.7`,
		"default/web of Service default/web, office 198.51.100.32 at 0a:ce:c6:33:64:20 by 198.51.100.1 ",
	)
}

// A node lists the floating IPs of its own Ports, and says of each that is not in effect why.
func TestListedFloatingIPs(t *testing.T) {
	o := newOutward(t)
	o.floatingIPs()
	o.bind("web", "198.51.100.32", "default/a.eth0")
	o.bind("unbound", "198.51.100.33", "")
	o.bind("elsewhere", "198.51.100.34", "default/c.eth0")
	o.bind("outside", "192.0.2.7", "default/b.eth0")
	const (
		web     = "default/web of default/a.eth0, office 198.51.100.32"
		outside = `default/outside of default/b.eth0, office 192.0.2.7: network "office" is not external, or has no subnet with 192.0.2.7`
	)
	o.floatingIPs(outside, web+": its flows are being written")
	o.applied()
	o.floatingIPs(outside, web+" at 0a:ce:c6:33:64:20 by 198.51.100.1 ")
	o.external.resolver.Received("office",
		packet.Announcement(addr("198.51.100.1"), []byte{2, 0, 0, 0, 0, 1}, addr("198.51.100.1"), 0)[1])
	o.floatingIPs(outside, web+" at 0a:ce:c6:33:64:20 by 198.51.100.1 02:00:00:00:00:01")

	o.sw.set(false, has("nw_dst=198.51.100.35"))
	o.bind("bad", "198.51.100.35", "default/b.eth0")
	o.applied()
	bad := "default/bad of default/b.eth0, office 198.51.100.35: the switch refuses it; coelan status says why" +
		" by 198.51.100.1 02:00:00:00:00:01"
	o.floatingIPs(bad, outside, web+" at 0a:ce:c6:33:64:20 by 198.51.100.1 02:00:00:00:00:01")

	o.flows.lost(errors.New("bridge br-int does not answer"))
	o.update(func(tx *intent.Tx) { tx.DeleteFloatingIP("default/bad"); tx.DeleteFloatingIP("default/outside") })
	o.floatingIPs(web + ": bridge br-int does not answer by 198.51.100.1 02:00:00:00:00:01")
}

// A node lists the addresses that it has as a gateway.
func TestListedGateways(t *testing.T) {
	o := newOutward(t)
	gateway := func(node, router, network, address string) intent.GatewayAddress {
		return intent.GatewayAddress{Node: node, Router: router, Network: network, Address: addr(address)}
	}
	o.update(func(tx *intent.Tx) {
		tx.SetGatewayAddress(gateway("n1", "red", "office", "198.51.100.40"))
		tx.SetGatewayAddress(gateway("n2", "red", "office", "198.51.100.41"))
		tx.SetGatewayAddress(gateway("n1", "gone", "office", "198.51.100.42"))
		tx.SetGatewayAddress(gateway("n1", "default", "campus", "203.0.113.5"))
	})
	o.applied()
	infos, err := o.Gateways(o.bound())
	o.must(err)
	var got []string
	for _, g := range infos {
		if got = append(got, g.Router+", "+said(g.ExternalAddress)); g.Translations != nil {
			t.Errorf("%d translations of %s, where nothing counts them", g.Translations.Count, g.Address)
		}
	}
	slices.Sort(got)
	want := []string{
		`default, campus 203.0.113.5: network "campus" does not exist, or this node is not connected to it`,
		`gone, office 198.51.100.42: router "gone" does not exist by 198.51.100.1 `,
		"red, office 198.51.100.40 at 0a:ce:c6:33:64:28 by 198.51.100.1 ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("gateways (-want +got):\n%s", diff)
	}
	hops := fmt.Sprint(o.NextHops())
	if want := "[{office 198.51.100.1 true  false false}]"; hops != want {
		t.Errorf("next hops %s, want %s", hops, want)
	}
}

// A node lists all addresses of which one of several nodes is active, with what it does for those
// that it takes itself to be active for.
func TestListedEgress(t *testing.T) {
	o := newOutward(t)
	states := map[failover.Key]failover.State{}
	for address, s := range map[string]failover.State{
		"198.51.100.50": {Active: "n1"}, "198.51.100.51": {Active: "n2"}, "198.51.100.52": {Active: "n1", Silent: true},
		"198.51.100.53": {}, "192.0.2.9": {Active: "n1"},
	} {
		states[failover.Key{Network: "office", Address: addr(address)}] = s
		o.update(func(tx *intent.Tx) {
			tx.SetEgressAddress(intent.EgressAddress{
				Network: "office", Address: addr(address), Router: "red", Nodes: []string{"n1", "n2"}, Active: "n2",
			})
		})
	}
	o.external.egress.states = states
	o.numbers.setEgress(egressStates(states))
	o.applied()
	var got []string
	for _, e := range o.EgressAddresses() {
		got = append(got, fmt.Sprintf("%s, %v, active %q, reported %q", said(e.ExternalAddress), e.Nodes, e.Active, e.Reported))
	}
	slices.Sort(got)
	want := []string{
		`office 192.0.2.9: network "office" is not external, or has no subnet with 192.0.2.9, [n1 n2], active "n1", reported "n2"`,
		`office 198.51.100.50 at 0a:ce:c6:33:64:32 by 198.51.100.1 , [n1 n2], active "n1", reported "n2"`,
		`office 198.51.100.51, [n1 n2], active "n2", reported "n2"`,
		`office 198.51.100.52: another node is to become active by 198.51.100.1 , [n1 n2], active "n1", reported "n2"`,
		`office 198.51.100.53, [n1 n2], active "", reported "n2"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("egress (-want +got):\n%s", diff)
	}
}

// A node counts the external addresses that it answers for.
func TestMetricsOfExternalAddresses(t *testing.T) {
	o := newOutward(t)
	o.bind("web", "198.51.100.32", "default/a.eth0")
	o.bind("elsewhere", "198.51.100.34", "default/c.eth0")
	o.update(func(tx *intent.Tx) {
		for i, router := range []string{"red", intent.DefaultRouterName} {
			tx.SetGatewayAddress(intent.GatewayAddress{
				Node: "n1", Router: router, Network: "office", Address: netip.AddrFrom4([4]byte{198, 51, 100, byte(40 + i)}),
			})
		}
		tx.SetEgressAddress(intent.EgressAddress{
			Network: "office", Address: addr("198.51.100.50"), Router: "red", Nodes: []string{"n1"},
		})
	})
	key := pipeline.ExternalKey{Network: "office", Address: addr("198.51.100.50")}
	o.numbers.setEgress(map[pipeline.ExternalKey]pipeline.EgressState{key: {Active: "n1"}})
	o.applied()
	const want = `
# HELP coelan_external_addresses Addresses of external Networks that this node answers for, by kind: floating_ip, gateway or egress.
# TYPE coelan_external_addresses gauge
coelan_external_addresses{kind="egress",network="office"} 1
coelan_external_addresses{kind="floating_ip",network="office"} 1
coelan_external_addresses{kind="gateway",network="office"} 2
`
	shows := func(want string) {
		t.Helper()
		err := testutil.GatherAndCompare(o.Metrics.(prometheus.Gatherer), strings.NewReader(want), "coelan_external_addresses")
		if err != nil {
			t.Error(err)
		}
	}
	shows(want)
	o.flows.lost(errors.New("bridge br-int does not answer"))
	shows("")
}

// fakeConntrack counts connections of zones.
type fakeConntrack map[uint16]appctl.ZoneLimit

func (fakeConntrack) Table(context.Context, intent.Datapath) (entries, size int, err error) {
	return 20, 1000, nil
}

func (f fakeConntrack) Limits(context.Context, intent.Datapath) (map[uint16]appctl.ZoneLimit, error) {
	return f, nil
}

func (fakeConntrack) SetLimits(context.Context, intent.Datapath, map[uint16]int) error { return nil }
func (fakeConntrack) DeleteLimits(context.Context, intent.Datapath, []uint16) error    { return nil }

// What is translated by a gateway is known by its Router, whatever the Router's own connections
// are.
func TestTranslations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := intent.NewStore()
		_, err := store.Update(func(tx *intent.Tx) error {
			tx.SetLocal(intent.Local{Node: "n1", Datapath: intent.DatapathNetdev})
			for i, name := range []string{"red", "blue"} {
				tx.SetRouter(intent.Router{Name: name, ID: intent.RouterID(7 + i)})
				tx.SetGatewayAddress(intent.GatewayAddress{
					Router: name, Node: "n1", Network: "office", Address: netip.AddrFrom4([4]byte{198, 51, 100, byte(40 + i)}),
				})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		limiter := ctlimit.New(slog.New(slog.DiscardHandler), config.Conntrack{Limits: config.AutoLimits}, store, fakeConntrack{
			7: {Limit: 100, Count: 3}, 1<<15 + 7: {Limit: 100, Count: 12}, 1<<15 + 8: {Limit: 100, Count: 0},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- limiter.Run(ctx) }()
		synctest.Wait()
		tracked := &tracking{tracker: tracker{intent: store}, flows: &flows{done: true}, limiter: limiter}
		got, err := tracked.translations(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]agentapi.Translations{"red": {Count: 12, Limit: 100}, "blue": {Limit: 100}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("translations (-want +got):\n%s", diff)
		}
		const metrics = `
# HELP coelan_conntrack_entries Connections of a Router that conntrack remembers on this node, where they are limited.
# TYPE coelan_conntrack_entries gauge
coelan_conntrack_entries{router="red"} 3
# HELP coelan_gateway_translations Connections by a Router's gateway that conntrack remembers on this node, where they are limited.
# TYPE coelan_gateway_translations gauge
coelan_gateway_translations{router="blue"} 0
coelan_gateway_translations{router="red"} 12
# HELP coelan_gateway_translations_limit How many connections by the Router's gateway conntrack may remember.
# TYPE coelan_gateway_translations_limit gauge
coelan_gateway_translations_limit{router="blue"} 100
coelan_gateway_translations_limit{router="red"} 100
`
		err = testutil.CollectAndCompare(&connectionCollector{tracked}, strings.NewReader(metrics), "coelan_conntrack_entries",
			"coelan_gateway_translations", "coelan_gateway_translations_limit")
		if err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
