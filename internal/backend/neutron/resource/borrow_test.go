// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lent is a port that another program has made for the pod uid.
var lent = BorrowedPort("Port/shop/web", "k-port")

// ask is the Claim of the Port shop/web; with a MAC the port is to be taken.
func ask(mac string) Claim {
	return Claim{
		Kind: Port, ID: "k-port", By: "Port shop/web", Ref: lent, Asker: "u1", Device: "uid", MAC: mac,
		Has: map[string][]any{
			"device_id": {"uid"}, "device_owner": {"compute:kuryr", ""}, "binding:host_id": {"n1", ""}, "network_id": {network},
		},
	}
}

// borrows has the port wanted be the one that is lent.
func borrows(all map[Ref]Resource) {
	p := all[port]
	p.Optional, p.Object = true, "Port shop/web"
	p.Mutable["device_id"] = "uid"
	all[lent] = p
	delete(all, port)
}

// lentAttributes are those of the port before it is taken.
func lentAttributes(change ...any) Attributes {
	a := Attributes{
		"network_id": "id-net", "mac_address": "m", "device_owner": "", "device_id": "uid", "binding:host_id": "",
		"fixed_ips": []any{map[string]any{"ip_address": "10.0.0.2", "subnet_id": "id-sub"}},
	}
	for i := 0; i < len(change); i += 2 {
		a[change[i].(string)] = change[i+1]
	}
	return a
}

// A port that proves to be for the pod is offered, taken when it is wanted, and else left alone.
func TestBorrow(t *testing.T) {
	for name, tc := range map[string]struct {
		port    Attributes
		gone    bool
		refused string
		change  func(*Claim)
	}{
		"unbound":                 {port: lentAttributes()},
		"bound to the pod's node": {port: lentAttributes("binding:host_id", "n1", "device_owner", "compute:kuryr")},
		"bound to another node":   {port: lentAttributes("binding:host_id", "n2"), refused: "binding:host_id is n2, and not n1"},
		"another pod's":           {port: lentAttributes("device_id", "other"), refused: "device_id is other, and not uid"},
		"of no device":            {port: lentAttributes("device_id", ""), refused: "device_id is , and not uid"},
		"a machine's":             {port: lentAttributes("device_owner", "compute:nova"), refused: "device_owner is compute:nova, and not compute:kuryr"},
		"on another network":      {port: lentAttributes("network_id", "other"), refused: "network_id is other, and not id-net"},
		"not there":               {gone: true, refused: "the project has none of this id"},
		"for a pod elsewhere": {
			port: lentAttributes(), change: func(c *Claim) { c.Refused = "pod shop/web is on node n2" }, refused: "is on node n2",
		},
		"with other addresses than were offered": {
			port: lentAttributes(), change: func(c *Claim) { c.Addresses = []string{"10.0.0.3"} },
			refused: "its addresses are [10.0.0.2], and not [10.0.0.3]",
		},
	} {
		for _, mac := range []string{"", "m"} {
			t.Run(fmt.Sprintf("%s, MAC %q", name, mac), func(t *testing.T) {
				want := wanted(without(port))
				if mac != "" {
					want = wanted(borrows)
				}
				have := there()
				have.Remove(port, "id-p")
				c := ask(mac)
				if tc.change != nil {
					tc.change(&c)
				}
				unknown := have.Ask([]Claim{c})
				if looks := len(unknown) == 1; looks != (c.Refused == "") {
					t.Fatalf("%v has to be looked at", unknown)
				}
				if c.Refused == "" {
					have.Answer(unknown[0], Actual{ID: "k-port", Attributes: tc.port}, !tc.gone)
				}
				if more := have.Ask([]Claim{c}); len(more) != 0 {
					t.Errorf("it is looked at again: %v", more)
				}
				var verdicts []string
				Judge(want, have, func(_ Claim, _ Actual, why string) { verdicts = append(verdicts, why) })
				if len(verdicts) != 1 || !strings.Contains(verdicts[0], tc.refused) || tc.refused == "" && verdicts[0] != "" {
					t.Errorf("%q, want %q", verdicts, tc.refused)
				}
				calls := Plan(want, have)
				takes := slices.ContainsFunc(calls, func(c Call) bool { return c.Adopts && c.ID == "k-port" })
				if takes != (mac != "" && tc.refused == "") || len(calls) > 1 || len(calls) == 1 && !takes {
					t.Errorf("taken: %v, by %+v", takes, calls)
				}
				if problems := NotAdopted(want, have); (len(problems) > 0) != (mac != "" && tc.refused != "") {
					t.Errorf("%v", problems)
				}
			})
		}
	}
}

// Ports that are to be taken are looked at once, also if others are asked for in between, and once
// more after each was taken and given back.
func TestAskedInTurn(t *testing.T) {
	have := there()
	looked := func(c Claim) bool {
		unknown := have.Ask([]Claim{c})
		for _, u := range unknown {
			have.Answer(u, Actual{ID: u.ID, Attributes: lentAttributes("device_id", "other")}, true)
		}
		return len(unknown) > 0
	}
	other := ask("m")
	other.ID, other.Ref = "k-other", BorrowedPort("Port/shop/web", "k-other")
	var got []bool
	for _, c := range []Claim{ask("m"), other, ask("m"), other} {
		got = append(got, looked(c))
	}
	have.Set(lent, Actual{ID: "k-port"})
	have.Remove(lent, "k-port")
	got = append(got, looked(ask("m")), looked(other))
	if want := []bool{true, true, false, false, true, false}; !slices.Equal(got, want) {
		t.Errorf("looked at: %v, want %v", got, want)
	}
}

// What an object is answered is no answer for another one of its name, or for another port.
func TestAskedAnew(t *testing.T) {
	have := NewInventory()
	c := ask("")
	have.Ask([]Claim{c})
	have.Answer(c, Actual{ID: "k-port", Attributes: lentAttributes()}, true)
	for name, change := range map[string]func(*Claim){
		"another object":        func(c *Claim) { c.Asker = "u2" },
		"another port":          func(c *Claim) { c.ID, c.Ref = "k2", BorrowedPort("Port/shop/web", "k2") },
		"it is to be taken now": func(c *Claim) { c.MAC = "m" },
	} {
		other := ask("")
		change(&other)
		if unknown := have.Ask([]Claim{c, other}); len(unknown) != 1 || unknown[0].ID != other.ID {
			t.Errorf("%s: %v has to be looked at", name, unknown)
		}
	}
	if have.Ask(nil); len(have.Ask([]Claim{c})) != 1 {
		t.Error("the answer outlives its question")
	}
}

// A port that was lent is not deleted, but left closed and unbound; no other object gets it by its
// MAC, and what has been taken is not asked for again.
func TestGiveBack(t *testing.T) {
	have := func() *Inventory {
		i := there()
		i.Remove(port, "id-p")
		i.Put(lent, Actual{ID: "k-port", Attributes: lentAttributes("binding:host_id", "n1", "security_groups", []any{"g", "h"})})
		return i
	}
	i := have()
	if unknown := i.Ask([]Claim{ask("m")}); len(unknown) != 0 {
		t.Errorf("%v has to be looked at", unknown)
	}
	if calls := Plan(wanted(borrows), i); len(calls) != 0 {
		t.Errorf("%+v", calls)
	}
	back := Attributes{
		"description": "", "name": "", "binding:host_id": "", "security_groups": []any{}, "allowed_address_pairs": []any{},
	}
	for name, want := range map[string]*Set{
		"nothing":                  wanted(without(port)),
		"another one with its MAC": wanted(),
		"it with another MAC": wanted(borrows, func(all map[Ref]Resource) {
			p := all[lent]
			p.Fixed = Attributes{"network_id": network, "mac_address": "m2"}
			all[lent] = p
		}),
	} {
		calls := Plan(want, have())
		if len(calls) == 0 || !calls[0].GivesBack || calls[0].ID != "k-port" || calls[0].Operation != Update {
			t.Errorf("%s: %+v", name, calls)
			continue
		}
		if diff := cmp.Diff(back, calls[0].Attributes); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		for _, c := range calls {
			if c.Ref.Kind == Port && (c.Operation == Delete || c.Was != (Ref{})) {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
	i = have()
	i.Put(lent, Actual{ID: "k-twin", Attributes: lentAttributes("created_at", "2")})
	for _, c := range Plan(wanted(borrows), i) {
		if c.Operation == Delete {
			t.Errorf("a port with its description: %+v", c)
		}
	}
}

// Without room for what may come, what other programs have made stays.
func TestRequired(t *testing.T) {
	want := wanted(borrows, func(all map[Ref]Resource) {
		n := all[network]
		n.Optional = true
		all[network] = n
		all[Ref{Kind: Port, Key: "kept"}] = Resource{Spare: true, Optional: true}
		all[Ref{Kind: Port, Key: "next"}] = Resource{Spare: true}
	}).Required()
	for ref, stays := range map[Ref]bool{network: true, lent: true, {Kind: Port, Key: "next"}: true, {Kind: Port, Key: "kept"}: false} {
		if _, there := want.Get(ref); there != stays {
			t.Errorf("%s: %v", ref, there)
		}
	}
}
