// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	outside = Ref{Kind: Network, Key: "office"}
	ofShop  = Ref{Kind: FloatingIP, Key: "FloatingIP/shop/web"}
)

// floats wants a floating IP that leads to no port.
func floats(address string, refs ...Ref) *Set {
	s := NewSet()
	s.Add(Resource{Ref: outside, Mutable: Attributes{"name": "office"}})
	for _, r := range refs {
		s.Add(Resource{
			Ref: r, Object: strings.Replace(r.Key, "/", " ", 1),
			Fixed:   Attributes{"floating_network_id": outside, "floating_ip_address": address},
			Mutable: Attributes{"port_id": nil},
		})
	}
	return s
}

// hasOffice has the network of floating IPs, of the cluster's project.
func hasOffice() *Inventory {
	have := NewInventory()
	have.Own = "own"
	have.Put(outside, Actual{ID: "id-office", Attributes: Attributes{"name": "office"}})
	return have
}

// balanced are the attributes of a floating IP that leads to the address of a Service.
func balanced(change ...any) Attributes {
	a := Attributes{
		"project_id": "own", "floating_network_id": "id-office", "floating_ip_address": "192.0.2.7", "port_id": "vip",
		"fixed_ip_address": "10.96.0.5", "description": "kuryr_lb",
	}
	for i := 0; i < len(change); i += 2 {
		a[change[i].(string)] = change[i+1]
	}
	return a
}

// ofService is a Claim of the floating IP of a Service.
func ofService(r Ref) Claim {
	return Claim{
		Kind: FloatingIP, ID: "k-fip", By: "KuryrLoadBalancer shop/web", Ref: r,
		Has: map[string][]any{"fixed_ip_address": {"10.96.0.5"}},
		Or:  map[string][]any{"fixed_ip_address": {nil}, "description": {"kuryr_lb"}},
	}
}

func described(calls []Call) string {
	var list []string
	for _, c := range calls {
		what := map[Operation]string{Create: "create", Update: "update", Delete: "delete"}[c.Operation]
		if c.GivesBack {
			what = "give back"
		} else if c.Adopts {
			what = "adopt"
		}
		if c.Kept {
			what += " kept"
		}
		list = append(list, fmt.Sprintf("%s %s%s %v", what, c.Ref.Key, strings.TrimSuffix(" "+c.ID, " "), c.Attributes))
	}
	return strings.Join(list, "; ")
}

// The floating IP of another system's load balancer becomes the one that is wanted, if it leads to
// the Service's own address, or once has.
func TestAdoptFloatingIP(t *testing.T) {
	const made = "create FloatingIP/shop/web map[floating_ip_address:192.0.2.7 floating_network_id:network office port_id:<nil>]"
	second := Ref{Kind: FloatingIP, Key: "FloatingIP/shop/web-2"}
	for name, tc := range map[string]struct {
		fip    Attributes
		gone   bool
		claim  func(*Claim)
		there  func(*Inventory)
		others []Ref
		calls  string
		says   string
	}{
		"it leads to the Service": {fip: balanced(), calls: "adopt FloatingIP/shop/web k-fip map[port_id:<nil>]"},
		"its load balancer is gone": {
			fip: balanced("port_id", nil, "fixed_ip_address", nil), calls: "adopt FloatingIP/shop/web k-fip map[]",
		},
		"a user's": {
			fip: balanced("description", "ours"), claim: func(c *Claim) { c.Kept = true },
			calls: "adopt kept FloatingIP/shop/web k-fip map[port_id:<nil>]",
		},
		"a user's whose load balancer is gone": {
			fip: balanced("description", "ours", "port_id", nil, "fixed_ip_address", nil), calls: made,
			says: "fixed_ip_address is empty, and not 10.96.0.5",
		},
		"it leads elsewhere": {
			fip: balanced("fixed_ip_address", "10.96.0.6"), calls: made, says: "fixed_ip_address is 10.96.0.6, and not 10.96.0.5",
		},
		"another address": {
			fip: balanced("floating_ip_address", "192.0.2.8"), calls: made,
			says: "its floating_ip_address 192.0.2.8 is not what the object asks for",
		},
		"of another network": {
			fip: balanced("floating_network_id", "other"), calls: made, says: "its floating_network_id other is not what the object asks for",
		},
		"of another project": {
			fip: balanced("project_id", "q"), calls: made, says: "it is in the project q, and not in own",
		},
		"it is not there": {gone: true, calls: made, says: "none of this id"},
		"it cannot be": {
			fip: balanced(), claim: func(c *Claim) { c.Refused = "there is no Service shop/web" }, calls: made, says: "there is no Service shop/web",
		},
		"there is one": {
			fip: balanced(), there: func(i *Inventory) { i.Put(ofShop, Actual{ID: "id-fip", Attributes: balanced("port_id", nil)}) },
			says: "there is already the floating IP id-fip",
		},
		"two want it": {
			fip: balanced(), others: []Ref{second},
			calls: "adopt FloatingIP/shop/web k-fip map[port_id:<nil>]; " + strings.Replace(made, "shop/web", "shop/web-2", 1),
			says:  "it is to be floating IP FloatingIP/shop/web",
		},
	} {
		t.Run(name, func(t *testing.T) {
			want, have := floats("192.0.2.7", append([]Ref{ofShop}, tc.others...)...), hasOffice()
			if tc.there != nil {
				tc.there(have)
			}
			for _, r := range append([]Ref{ofShop}, tc.others...) {
				claim := ofService(r)
				if tc.claim != nil {
					tc.claim(&claim)
				}
				have.Offer(claim, Actual{ID: "k-fip", Attributes: tc.fip}, !tc.gone)
			}
			if diff := cmp.Diff(tc.calls, described(Plan(want, have))); diff != "" {
				t.Error(diff)
			}
			problems := NotAdopted(want, have)
			if tc.says == "" && len(problems) == 0 {
				return
			}
			if len(problems) != 1 || tc.says == "" || !strings.Contains(problems[0].Message, tc.says) {
				t.Errorf("%v, want %q", problems, tc.says)
			}
		})
	}
}

// A floating IP that is kept is changed as others are, and given back where others are deleted.
func TestKeptFloatingIP(t *testing.T) {
	const back = "give back FloatingIP/shop/web k-fip map[description: port_id:<nil>]"
	for name, tc := range map[string]struct {
		want  *Set
		have  func(*Inventory, Actual)
		calls string
	}{
		"as it is wanted": {want: floats("192.0.2.7", ofShop)},
		"changed by hand": {
			want:  floats("192.0.2.7", ofShop),
			have:  func(i *Inventory, a Actual) { a.Attributes["port_id"] = "p"; i.Put(ofShop, a) },
			calls: "update kept FloatingIP/shop/web k-fip map[port_id:<nil>]",
		},
		"wanted no longer": {want: floats(""), calls: back},
		"another one is wanted": {
			want: floats("192.0.2.9", ofShop),
			calls: back + "; create FloatingIP/shop/web map[floating_ip_address:192.0.2.9 floating_network_id:network office " +
				"port_id:<nil>]",
		},
		"beside another one": {
			want: floats("192.0.2.7", ofShop), calls: back,
			have: func(i *Inventory, a Actual) {
				a.Attributes["created_at"] = "2"
				i.Put(ofShop, a)
				i.Put(ofShop, Actual{ID: "id-fip", Attributes: balanced("port_id", nil, "created_at", "1")})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			have, kept := hasOffice(), Actual{ID: "k-fip", Attributes: balanced("port_id", nil), Owed: Owed{Kept: true}}
			if tc.have == nil {
				have.Put(ofShop, kept)
			} else {
				tc.have(have, kept)
			}
			if diff := cmp.Diff(tc.calls, described(Plan(tc.want, have))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A description has room for what is owed, and says it as it was, whatever the names are.
func TestDescribe(t *testing.T) {
	const uid = "0c9a4f5e-1d2b-4c3a-8e9f-001122334455"
	long := strings.Repeat("n", 300)
	for _, r := range []Ref{
		ofShop, {Kind: FloatingIP, Key: Key("FloatingIP/" + long)}, {Kind: Port, Key: "Port/shop/web of x"},
		BorrowedPort("Port/shop/web", uid), BorrowedPort("Port/shop/"+long, uid), {Kind: Port, Key: "KeptFIP/shop/web"},
	} {
		possible := []Owed{{}}
		switch {
		case r.Kind == FloatingIP:
			possible = append(possible, Owed{Kept: true})
		case borrowed(r):
			possible = append(possible, Owed{Device: uid})
		}
		for _, o := range possible {
			text := Describe(r, o)
			if key, got := Described(r.Kind, text); key != r.Key || got != o || len(text) > maxKey {
				t.Errorf("%s with %+v becomes %q, and that %q, %+v", r, o, text, key, got)
			}
		}
	}
}
