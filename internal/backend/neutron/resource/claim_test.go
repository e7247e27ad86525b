// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Networks, subnets and ports of another system become those that are wanted, if they prove to be
// what the other system has noted. What cannot be adopted is said, and a network is not made in
// its place.
func TestAdopt(t *testing.T) {
	ports := func(change func(Attributes)) Attributes {
		a := Attributes{
			"network_id": "k-net", "mac_address": "m", "device_owner": "compute:kuryr", "device_id": "uid", "security_groups": []any{"s"},
			"fixed_ips": []any{map[string]any{"ip_address": "10.0.0.2", "subnet_id": "k-sub"}},
		}
		if change != nil {
			change(a)
		}
		return a
	}
	for name, tc := range map[string]struct {
		want    []func(map[Ref]Resource)
		there   []func(*Inventory)
		network Claim
		port    Attributes
		refused string
		gone    bool // the port is not there
		unnamed bool // nothing says which the network is
		calls   string
		says    []string
	}{
		"all": {
			port:  ports(nil),
			calls: "adopt network net k-net; adopt subnet sub k-sub; create router r; create router interface sub; adopt port p k-port; update routes of router r ",
		},
		"a port of a pool, which has no device": {
			port:  ports(func(a Attributes) { a["device_id"] = "" }),
			calls: "adopt network net k-net; adopt subnet sub k-sub; create router r; create router interface sub; adopt port p k-port; update routes of router r ",
		},
		"a port of another pod": {
			port:  ports(func(a Attributes) { a["device_id"] = "other" }),
			calls: "adopt network net k-net; adopt subnet sub k-sub; create router r; create router interface sub; create port p ; update routes of router r ",
			says:  []string{"port p: port of Neutron that KuryrPort shop/web names (\"k-port\") is not adopted: device_id is other, and not uid"},
		},
		"a port of another program": {
			port:  ports(func(a Attributes) { a["device_owner"] = "compute:nova" }),
			calls: "adopt network net k-net; adopt subnet sub k-sub; create router r; create router interface sub; create port p ; update routes of router r ",
			says:  []string{"device_owner is compute:nova"},
		},
		"a port with other addresses": {
			port:  ports(func(a Attributes) { a["fixed_ips"] = []any{map[string]any{"ip_address": "10.0.0.9"}} }),
			calls: "adopt network net k-net; adopt subnet sub k-sub; create router r; create router interface sub; create port p ; update routes of router r ",
			says:  []string{"its addresses are [10.0.0.9], and not [10.0.0.2]"},
		},
		"a port on another network": {
			port:  ports(func(a Attributes) { a["network_id"] = "other" }),
			calls: "adopt network net k-net; adopt subnet sub k-sub; create router r; create router interface sub; create port p ; update routes of router r ",
			says:  []string{"its network_id other is not what the object asks for"},
		},
		"a port of another project": {
			port:  ports(func(a Attributes) { a["project_id"] = "q" }),
			calls: "adopt network net k-net; adopt subnet sub k-sub; create router r; create router interface sub; create port p ; update routes of router r ",
			says:  []string{"it is in the project q, and not in own"},
		},
		"a port that is gone": {
			gone:  true,
			calls: "adopt network net k-net; adopt subnet sub k-sub; create router r; create router interface sub; create port p ; update routes of router r ",
			says:  []string{"none of this id"},
		},
		"a port that cannot be used": {
			port: ports(nil), refused: "it is part of another port",
			calls: "adopt network net k-net; adopt subnet sub k-sub; create router r; create router interface sub; create port p ; update routes of router r ",
			says:  []string{"it is part of another port"},
		},
		"a network that is not known": {
			port: ports(nil), network: Claim{Refused: "there is no such KuryrNetwork"},
			calls: "create subnet sub ; create router r; create router interface sub; create port p ; update routes of router r ",
			says: []string{
				"network net: network of Neutron that KuryrNetwork shop names (\"k-net\") is not adopted: there is no such KuryrNetwork",
				"its network_id k-net", "its network_id k-net",
			},
		},
		"a network that is there": {
			port: ports(nil), there: []func(*Inventory){func(i *Inventory) { i.Put(network, Actual{ID: "id-net", Attributes: Attributes{"name": "n"}}) }},
			calls: "create subnet sub ; create router r; create router interface sub; create port p ; update routes of router r ",
			says:  []string{"there is already the network id-net", "its network_id k-net", "its network_id k-net"},
		},
		"a network that is there, and whose KuryrNetwork is gone": {
			port: ports(nil), network: Claim{Refused: "there is no such KuryrNetwork"}, unnamed: true,
			there: []func(*Inventory){func(i *Inventory) { i.Put(network, Actual{ID: "k-net", Attributes: Attributes{"name": "n"}}) }},
			calls: "adopt subnet sub k-sub; create router r; create router interface sub; adopt port p k-port; update routes of router r ",
		},
		"a network for two": {
			port: ports(nil), want: []func(map[Ref]Resource){func(all map[Ref]Resource) {
				all[Ref{Kind: Network, Key: "net2"}] = Resource{Object: "network net2", Optional: true}
			}}, there: []func(*Inventory){func(i *Inventory) {
				i.Offer(Claim{Kind: Network, ID: "k-net", Ref: Ref{Kind: Network, Key: "net2"}}, Actual{ID: "k-net", Attributes: nil}, true)
			}},
			calls: "adopt network net2 k-net; create subnet sub ; create router r; create router interface sub; create port p ; update routes of router r ",
			says:  []string{"it is to be network net2", "its network_id k-net", "its network_id k-net"},
		},
		"what is not wanted": {
			port: ports(nil), want: []func(map[Ref]Resource){without(network, subnet, router, routes, link, port)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := wanted(append([]func(map[Ref]Resource){func(all map[Ref]Resource) {
				n, p := all[network], all[port]
				n.Optional, n.Object = true, "network net"
				p.Object = "port p"
				p.Mutable["device_id"] = "uid"
				all[network], all[port] = n, p
			}}, tc.want...)...)
			have := NewInventory()
			have.Own = "own"
			for _, c := range tc.there {
				c(have)
			}
			tc.network.Kind, tc.network.ID, tc.network.By, tc.network.Ref = Network, "k-net", "KuryrNetwork shop", network
			if tc.unnamed {
				tc.network.ID = ""
			}
			have.Offer(tc.network, Actual{ID: "k-net", Attributes: Attributes{"name": "uid/shop"}}, true)
			have.Offer(Claim{Kind: Subnet, ID: "k-sub", By: "KuryrNetwork shop", Ref: subnet, Has: map[string][]any{"network_id": {"k-net"}}},
				Actual{ID: "k-sub", Attributes: Attributes{"network_id": "k-net", "cidr": "10.0.0.0/24"}}, true)
			have.Offer(Claim{
				Kind: Port, ID: "k-port", By: "KuryrPort shop/web", MAC: "m", Device: "uid", Addresses: []string{"10.0.0.2"},
				Has:     map[string][]any{"device_owner": {"compute:kuryr"}, "device_id": {"uid", ""}},
				Refused: tc.refused,
			}, Actual{ID: "k-port", Attributes: tc.port}, !tc.gone)
			var calls []string
			for _, c := range Plan(want, have) {
				what := map[Operation]string{Create: "create", Update: "update", Delete: "delete"}[c.Operation]
				if c.Adopts {
					what = "adopt"
				}
				text := fmt.Sprintf("%s %s %s", what, c.Ref, c.ID)
				if c.Ref.Kind == Router || c.Ref.Kind == Interface {
					text = strings.TrimSpace(text)
				}
				calls = append(calls, text)
			}
			if diff := cmp.Diff(tc.calls, strings.Join(calls, "; ")); diff != "" {
				t.Error(diff)
			}
			problems := NotAdopted(want, have)
			if len(problems) != len(tc.says) {
				t.Fatalf("%v, want %d", problems, len(tc.says))
			}
			for i, p := range problems {
				if text := p.Object + ": " + p.Message; !strings.Contains(text, tc.says[i]) || p.Reason != "NotAdopted" {
					t.Errorf("%s: %s; want %q", p.Reason, text, tc.says[i])
				}
			}
		})
	}
}
