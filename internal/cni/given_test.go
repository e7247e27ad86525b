// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/wire"
)

// hostLocal is what the plugin host-local prints.
const hostLocal = `{"cniVersion":"0.3.0","ips":[{"version":"4","address":"10.11.1.9/24","gateway":"10.11.1.1"}],
	"routes":[{"dst":"0.0.0.0/0"}],"dns":{}}`

// delegated is an ADD with a configuration that names an IPAM plugin.
func delegated(keys, addresses string) wire.Request {
	r := addRequest("a")
	r.Config = fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"odl","type":"ovs-odl",%s"ipam":{"type":"host-local","subnet":"10.244.1.0/24"}}`, keys)
	r.Delegates = true
	if addresses != "" {
		r.Addresses = []byte(addresses)
	}
	return r
}

func ips(list ...string) string {
	return `{"cniVersion":"1.0.0","ips":[{"address":"` + strings.Join(list, `"},{"address":"`) + `"}]}`
}

// The plugin is told to call the IPAM plugin only if that is needed, and that is no failure.
func TestAddressesAreAskedForOnce(t *testing.T) {
	w := newWorld(t)
	_, err := w.Handle(t.Context(), delegated("", ""))
	if err == nil || err.Code != wire.CodeAddresses || len(w.events.list) != 0 || len(w.snapshot()) != 0 {
		t.Fatalf("first ADD: %v, Events %v, state %v", err, w.events.list, w.snapshot())
	}
	first := w.must(delegated("", ips("10.244.1.9/24", "fd00:10:244:1::9/64")))
	if again := w.must(delegated("", "")); string(again) != string(first) {
		t.Errorf("second ADD: %s, want %s", again, first)
	}
	if _, err := w.Handle(t.Context(), delegated("", ips("10.244.1.10/24"))); err == nil ||
		!strings.Contains(err.Error(), "it gave [10.244.1.10], and default/pod-a/eth0 has [10.244.1.9/24 ") {
		t.Errorf("ADD with other addresses: %v", err)
	}
	w.must(as("DEL", delegated("", "")))
	if left := w.snapshot(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Each address, route and gateway of an IPAM plugin is the interface's.
func TestGivenAddresses(t *testing.T) {
	for _, tt := range []struct {
		name, keys, given string
		want              []string // addresses, then routes
	}{
		{"both families", "", ips("10.244.1.9/24", "fd00:10:244:1::9/64"), []string{"10.244.1.9/24", "fd00:10:244:1::9/64",
			"default route via 10.244.1.1", "default route via fd00:10:244:1::1"}},
		{"one family", "", ips("10.244.1.9/24"), []string{"10.244.1.9/24", "default route via 10.244.1.1"}},
		{"the Network's length", "", ips("10.244.1.9/16"), []string{"10.244.1.9/24", "default route via 10.244.1.1"}},
		{"an older version", "", `{"cniVersion":"0.2.0","ip4":{"ip":"10.244.1.9/24","gateway":"10.244.1.1","routes":[{"dst":"0.0.0.0/0"}]}}`,
			[]string{"10.244.1.9/24", "default route via 10.244.1.1"}},
		{"no version", "", `{"ips":[{"address":"10.244.1.9/24"}]}`, []string{"10.244.1.9/24", "default route via 10.244.1.1"}},
		{"another gateway", "", `{"cniVersion":"1.0.0","ips":[{"address":"10.244.1.9/24","gateway":"10.244.1.254"}]}`,
			[]string{"10.244.1.9/24", "default route via 10.244.1.254"}},
		{"routes", "", `{"cniVersion":"1.0.0","ips":[{"address":"10.244.1.9/24"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.244.1.254"},{"dst":"10.11.0.0/16"},{"dst":"10.12.0.0/16","gw":"10.244.1.3"}]}`,
			[]string{"10.244.1.9/24", "default route via 10.244.1.254", "route to 10.11.0.0/16 via 10.244.1.1", "route to 10.12.0.0/16 via 10.244.1.3"}},
		{"what was asked for", `"args":{"cni":{"ips":["10.244.1.9"]}},`, ips("10.244.1.9/24"), []string{"10.244.1.9/24", "default route via 10.244.1.1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.must(delegated(tt.keys, tt.given))
			a, _ := w.store.Get(attachment.Key{ContainerID: "a", IfName: "eth0"})
			var got []string
			for _, p := range a.Addresses {
				got = append(got, p.String())
			}
			for _, r := range a.AllRoutes() {
				got = append(got, r.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An interface that is not the pod's first has a default route if the configuration asks for it.
func TestDefaultGatewayOfADelegate(t *testing.T) {
	for keys, want := range map[string]int{
		`"network":"red",`:                                                      0,
		`"network":"red","isDefaultGateway":false,`:                             0,
		`"network":"red","isDefaultGateway":true,`:                              2,
		`"network":"red","forceAddress":true,"hairpinMode":true,"ipMasq":true,`: 0,
	} {
		w, _ := newPlanned(t)
		r := addRequest("a")
		r.IfName = "net1"
		r.Config = fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"odl",%s"type":"ovs-odl","ipam":{"type":"ipam-odl"}}`, keys)
		w.must(r)
		a, _ := w.store.Get(attachment.Key{ContainerID: "a", IfName: "net1"})
		if got := len(a.DefaultRoutes); got != want {
			t.Errorf("%s: %d default routes, want %d", keys, got, want)
		}
	}
}

// The Planner is asked for the Network that has the VNI, by name or not.
func TestVNISelectsTheNetwork(t *testing.T) {
	w, p := newPlanned(t)
	r := addRequest("a")
	r.Config = []byte(`{"name":"odl-coe","type":"ovs-odl","bridge":"br-int","ovs":{"bridge":"br-int","vxlan":"00042"}}`)
	_, _ = w.Handle(t.Context(), r) // the fake has no VNIs
	if len(p.asks) != 1 || p.asks[0].VNI != 42 || !p.asks[0].Delegate() {
		t.Errorf("asked: %+v", p.asks)
	}
}

func TestBadAddressesOfIPAM(t *testing.T) {
	for _, tt := range []struct {
		name, keys, given string
		code              uint
		want              string
	}{
		{"none", "", `{"cniVersion":"1.0.0"}`, 6, "result of the IPAM plugin host-local: it has no address"},
		{"not JSON", "", `x`, 6, "result of the IPAM plugin host-local: invalid character"},
		{"not an object", "", `[]`, 6, "result of the IPAM plugin host-local"},
		{"unknown version", "", `{"cniVersion":"9.0.0","ips":[]}`, 6, `"9.0.0"`},
		{"outside of the Network", "", ips("10.11.1.9/24"), 103, "interface eth0 on Network default: address 10.11.1.9 is outside of its subnets"},
		{"the gateway", "", ips("10.244.1.1/24"), 103, "address 10.244.1.1 is the gateway of 10.244.1.0/24"},
		{"the broadcast address", "", ips("10.244.1.255/24"), 103, "address 10.244.1.255 is no interface's address"},
		{"twice", "", ips("10.244.1.9/24", "10.244.1.9/24"), 103, "address 10.244.1.9 is asked for twice"},
		{"taken", "", ips("10.244.1.2/24"), 103, "address 10.244.1.2 on Network default belongs to default/pod-b/eth0"},
		{"gateway outside", "", `{"cniVersion":"1.0.0","ips":[{"address":"10.244.1.9/24","gateway":"192.168.33.0"}]}`, 103,
			"gateway 192.168.33.0 is outside of its subnets"},
		{"next hop outside", "", `{"cniVersion":"1.0.0","ips":[{"address":"10.244.1.9/24"}],"routes":[{"dst":"10.0.0.0/8","gw":"1.1.1.1"}]}`, 103,
			"route to 10.0.0.0/8 has the next hop 1.1.1.1 outside of its subnets"},
		{"another than asked for", `"args":{"cni":{"ips":["10.244.1.7"]}},`, ips("10.244.1.9/24"), 103,
			"IPAM plugin host-local: it gave [10.244.1.9], and the address 10.244.1.7 is asked for"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.must(addRequest("b"))
			before := w.snapshot()
			_, err := w.Handle(t.Context(), delegated(tt.keys, tt.given))
			if err == nil || err.Code != tt.code || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v\nwant  %d %s", err, tt.code, tt.want)
			}
			if diff := cmp.Diff(before, w.snapshot()); diff != "" {
				t.Errorf("the state changed:\n%s", diff)
			}
		})
	}
}

// FuzzGiven checks that no result of an IPAM plugin stops the agent or leaves something.
func FuzzGiven(f *testing.F) {
	for _, text := range []string{hostLocal, ips("10.244.1.9/24"), ips("::ffff:10.244.1.9/120"), `{"ips":[null]}`, `{"ips":[{}],"routes":[null]}`,
		`{"cniVersion":"0.2.0","ip4":{}}`, `{"cniVersion":"0.2.0","ip4":{"ip":"10.244.1.9/24","routes":[null]}}`, `null`, `{"ips":[{"address":"10.244.1.9/24","gateway":"::"}],"routes":[{}]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		w := newWorld(t)
		r := delegated("", "x")
		r.Addresses = text
		if _, err := w.Handle(context.Background(), r); err == nil {
			w.must(as("DEL", r))
		}
		if left := w.snapshot(); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}
