// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// borrowsOnTrunk is borrows for a node that is a machine of OpenStack.
func borrowsOnTrunk(all map[Ref]Resource) {
	borrows(all)
	p := all[lent]
	p.Trunk = "n1"
	for _, name := range []string{"device_id", "device_owner", "binding:host_id"} {
		delete(p.Mutable, name)
	}
	all[lent] = p
}

// askOnTrunk is ask for such a node.
func askOnTrunk(mac string) Claim {
	c := ask(mac)
	c.Trunk, c.Has["device_owner"] = "n1", append(c.Has["device_owner"], SubportOwner)
	delete(c.Has, "binding:host_id")
	return c
}

// withTrunk is what there is of a cluster with the trunk t of the node n1, without its port.
func withTrunk() *Inventory {
	have := there()
	have.Remove(port, "id-p")
	have.SetTrunk("n1", Trunk{ID: "t"})
	return have
}

// A port is proven to be the pod's by its device, or by what Coelan has written in place of it. It
// is on no trunk, or on that of the node.
func TestBorrowForTrunk(t *testing.T) {
	for name, tc := range map[string]struct {
		port    Actual
		on      string // the trunk that it is on
		trunk   *Trunk // that of the node; nil: t
		refused string
	}{
		"on no trunk":               {port: Actual{Attributes: lentAttributes()}},
		"bound where it was before": {port: Actual{Attributes: lentAttributes("binding:host_id", "hypervisor")}},
		"on the node's trunk":       {port: Actual{Attributes: lentAttributes("device_owner", SubportOwner)}, on: "t"},
		"another pod's, on the node's trunk": {
			port: Actual{Attributes: lentAttributes("device_owner", SubportOwner, "device_id", "other")}, on: "t",
			refused: "device_id is other, and not uid",
		},
		"on another trunk": {
			port: Actual{Attributes: lentAttributes("device_owner", SubportOwner)}, on: "t2",
			refused: "it is on another trunk (t2) than t, that of node n1: take it off",
		},
		"on another project's": {
			port:    Actual{Attributes: lentAttributes("device_owner", SubportOwner)},
			refused: "it is on another trunk (of another project) than t",
		},
		"borrowed": {port: Actual{Attributes: lentAttributes("device_id", "", "device_owner", SubportOwner), Owed: Owed{Device: "uid"}}, on: "t"},
		"borrowed, and given another device": {
			port:    Actual{Attributes: lentAttributes("device_id", "other"), Owed: Owed{Device: "uid"}},
			refused: "device_id is other, and not uid",
		},
		"borrowed for another pod": {
			port: Actual{Attributes: lentAttributes("device_id", ""), Owed: Owed{Device: "other"}}, refused: "device_id is other, and not uid",
		},
		"of no device": {port: Actual{Attributes: lentAttributes("device_id", "")}, refused: "device_id is , and not uid"},
		"a machine's": {
			port: Actual{Attributes: lentAttributes("device_owner", "compute:nova")}, refused: "device_owner is compute:nova",
		},
		"without a trunk": {
			port: Actual{Attributes: lentAttributes()}, trunk: &Trunk{Reason: "TrunkNotFound", Why: "there is none"},
			refused: "node n1 cannot have ports: there is none",
		},
		"before trunks are read": {
			port: Actual{Attributes: lentAttributes()}, trunk: &Trunk{}, refused: "the trunk of node n1 is not known yet",
		},
	} {
		for _, mac := range []string{"", "m"} {
			t.Run(fmt.Sprintf("%s, MAC %q", name, mac), func(t *testing.T) {
				want := wanted(without(port))
				if mac != "" {
					want = wanted(borrowsOnTrunk)
				}
				have := withTrunk()
				if tc.trunk != nil {
					have.SetTrunk("n1", *tc.trunk)
				}
				if tc.on != "" {
					have.SetSubport("k-port", Subport{tc.on, 7})
				}
				tc.port.ID = "k-port"
				have.Answer(have.Ask([]Claim{askOnTrunk(mac)})[0], tc.port, true)
				verdict := "not judged"
				Judge(want, have, func(_ Claim, _ Actual, why string) { verdict = why })
				if !strings.Contains(verdict, tc.refused) || tc.refused == "" && verdict != "" {
					t.Errorf("%q, want %q", verdict, tc.refused)
				}
				if calls := Plan(want, have); (len(calls) > 0) != (mac != "" && tc.refused == "") {
					t.Errorf("%+v", calls)
				}
			})
		}
	}
}

// said is what a call does, in short.
func said(calls []Call) (list []string) {
	for _, c := range calls {
		what := map[Operation]string{Create: "create", Update: "update", Delete: "delete", Join: "join", Leave: "leave"}[c.Operation]
		if c.GivesBack {
			what = "give back"
		}
		text := what + " " + c.ID
		if c.Operation == Update {
			device, set := c.Attributes["device_id"]
			_, unbound := c.Attributes["binding:host_id"]
			text += fmt.Sprintf(", %q", c.Device)
			if set {
				text += fmt.Sprintf(", device %q", device)
			}
			if owner := c.Attributes["device_owner"]; owner != nil {
				text += fmt.Sprint(", owner ", owner)
			}
			if unbound {
				text += ", unbound"
			}
		}
		list = append(list, text)
	}
	return list
}

// A port that is put on the trunk has no device there, and gets it back when it has left. One that
// was there stays.
func TestBorrowOnTrunk(t *testing.T) {
	const owned, off = "give back k-port, \"\", device \"uid\", owner compute:kuryr, unbound", "leave k-port"
	moved := func(all map[Ref]Resource) {
		p := all[lent]
		p.Trunk, p.Mutable["device_id"] = "", "uid"
		all[lent] = p
	}
	for name, tc := range map[string]struct {
		offered    bool   // and not the cluster's yet
		device, of string // its device_id, and that of its description
		on         string
		want       func(map[Ref]Resource)
		calls      []string
	}{
		"taken": {
			offered: true, device: "uid", want: borrowsOnTrunk,
			calls: []string{`update k-port, "uid", device ""`, "join k-port"},
		},
		"taken where it is": {offered: true, device: "uid", on: "t", want: borrowsOnTrunk, calls: []string{`update k-port, ""`}},
		"taken again":       {offered: true, of: "uid", want: borrowsOnTrunk, calls: []string{`update k-port, "uid"`, "join k-port"}},
		"not joined yet":    {of: "uid", want: borrowsOnTrunk, calls: []string{"join k-port"}},
		"joined":            {of: "uid", on: "t", want: borrowsOnTrunk},
		"it was there":      {device: "uid", on: "t", want: borrowsOnTrunk},
		"it was there, and is taken off": {
			device: "uid", want: borrowsOnTrunk, calls: []string{`update k-port, "uid", device ""`, "join k-port"},
		},
		"it was there, and is put elsewhere": {device: "uid", on: "t2", want: borrowsOnTrunk, calls: []string{"join k-port"}},
		"on the node's former trunk":         {of: "uid", on: "t2", want: borrowsOnTrunk, calls: []string{off, "join k-port"}},
		"no machine any more": {
			of: "uid", on: "t", want: func(all map[Ref]Resource) { borrowsOnTrunk(all); moved(all) },
			calls: []string{off, `update k-port, "uid", device "uid"`},
		},
		"given back":               {of: "uid", on: "t", want: without(port), calls: []string{off, owned}},
		"given back, off already":  {of: "uid", want: without(port), calls: []string{owned}},
		"given back where it was":  {device: "uid", on: "t", want: without(port), calls: []string{`give back k-port, ""`}},
		"given back, and no trunk": {device: "uid", want: without(port), calls: []string{`give back k-port, "", unbound`}},
	} {
		t.Run(name, func(t *testing.T) {
			have, want := withTrunk(), wanted(tc.want)
			a := Actual{ID: "k-port", Attributes: lentAttributes("device_id", tc.device), Owed: Owed{Device: tc.of}}
			r, _ := want.Get(lent)
			for attribute, value := range r.Mutable {
				if attribute != "device_id" {
					a.Attributes[attribute] = Resolve(value, func(r Ref) (string, bool) { there, _ := have.Get(r); return there.ID, true })
				}
			}
			if tc.on != "" {
				have.SetSubport("k-port", Subport{tc.on, 7})
			}
			if tc.offered {
				have.Answer(have.Ask([]Claim{askOnTrunk("m")})[0], a, true)
			} else {
				have.Put(lent, a)
			}
			calls := Plan(want, have)
			if diff := cmp.Diff(tc.calls, said(calls)); diff != "" {
				t.Error(diff)
			}
			if slices.ContainsFunc(calls, func(c Call) bool { return c.Operation == Join && c.Trunk != "t" }) {
				t.Errorf("%+v", calls)
			}
		})
	}
}
