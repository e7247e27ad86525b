// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/trigger"
)

// What differs is named by table, name and object, with the reason if there is one. What others
// have in the database is no difference, and neither are entries of theirs in rows of ours.
func TestDifferences(t *testing.T) {
	sw, port := nb.Ref{Table: "Logical_Switch", Key: "Network/red"}, nb.Ref{Table: "Logical_Switch_Port", Key: "Port/a/b"}
	red := func(u *nb.Unit) { u.Add(sw.Key, &nb.LogicalSwitch{Name: "net-red"}) }
	ab := func(u *nb.Unit) {
		u.AddTo(sw, "ports", port.Key, &nb.LogicalSwitchPort{
			Name: "a/b", Addresses: []string{"10.0.0.1"}, Options: map[string]string{"hostname": "b"},
		})
	}
	ac := func(u *nb.Unit) { u.AddTo(sw, "ports", "Port/a/c", &nb.LogicalSwitchPort{Name: "a/c"}) }
	const stays = ", and stays so though the controller has written: does another program change it?"
	readOnly := errors.New("read-only")
	for _, tc := range []struct {
		name   string
		want   []func(*nb.Unit)
		change func(*view)
		kept   map[nb.Ref]error
		rows   []string
	}{
		{name: "as wanted, beside a row and an entry of others", want: []func(*nb.Unit){red, ab}},
		{name: "missing", want: []func(*nb.Unit){red, ab, ac}, rows: []string{"Logical_Switch_Port a/c of Port a/c is missing" + stays}},
		{name: "refused", want: []func(*nb.Unit){red, ab, ac}, kept: map[nb.Ref]error{{Table: "Logical_Switch_Port", Key: "Port/a/c"}: readOnly},
			rows: []string{"Logical_Switch_Port a/c of Port a/c is missing: read-only"}},
		{name: "not wanted", want: []func(*nb.Unit){red}, rows: []string{
			"Logical_Switch net-red of Network red is not as wanted in ports" + stays,
			"Logical_Switch_Port a/b of Port a/b is not wanted any more" + stays,
		}},
		{name: "changed", want: []func(*nb.Unit){red, func(u *nb.Unit) {
			u.AddTo(sw, "ports", port.Key, &nb.LogicalSwitchPort{Name: "a/b", Addresses: []string{"10.0.0.2"}})
		}}, rows: []string{"Logical_Switch_Port a/b of Port a/b is not as wanted in addresses, options" + stays}},
		{name: "taken out of the set", want: []func(*nb.Unit){red, ab}, change: func(v *view) {
			v.set("Logical_Switch", &nb.LogicalSwitch{UUID: switchUUID, Name: "net-red", Ports: []string{guestUUID},
				ExternalIDs: map[string]string{"coelan.io/owner": "coelan/Network/red", "note": "x"}})
		}, rows: []string{"Logical_Switch net-red of Network red is not as wanted in ports" + stays}},
		{name: "twice", want: []func(*nb.Unit){red, ab}, change: func(v *view) {
			v.set("Logical_Switch", &nb.LogicalSwitch{UUID: "00000000-0000-0000-0000-000000000009", Name: "net-red",
				ExternalIDs: map[string]string{"coelan.io/owner": "coelan/Network/red"}})
		}, rows: []string{"Logical_Switch net-red of Network red is there 2 times" + stays}},
		{name: "of another cluster", want: []func(*nb.Unit){red, ab}, change: func(v *view) {
			v.set("Logical_Switch", &nb.LogicalSwitch{UUID: "00000000-0000-0000-0000-000000000009", Name: "west:net-red",
				ExternalIDs: map[string]string{"coelan.io/owner": "west/Network/red"}})
		}},
		{name: "without what it belongs to", want: []func(*nb.Unit){red, ab, func(u *nb.Unit) {
			blue := u.Add("Network/blue", &nb.LogicalSwitch{Name: "net-blue"})
			u.AddTo(blue, "ports", "Port/a/c", &nb.LogicalSwitchPort{Name: "a/c"})
		}}, kept: map[nb.Ref]error{{Table: "Logical_Switch", Key: "Network/blue"}: readOnly}, rows: []string{
			"Logical_Switch net-blue of Network blue is missing: read-only",
			"Logical_Switch_Port a/c of Port a/c is missing: what it belongs to is missing: Logical_Switch Network/blue",
		}},
		{name: "a switch of another system that is gone", want: []func(*nb.Unit){red, ab, func(u *nb.Unit) {
			u.Add("Network/legacy", &nb.LogicalSwitch{Name: "neutron-1", Adopted: true})
		}}, rows: []string{"Logical_Switch neutron-1 of Network legacy is missing: the northbound database has no Logical_Switch neutron-1 of " +
			"another system: make it, or take the annotation from the Network; with Neutron, is it the database that Neutron writes?"}},
	} {
		v, rows := database(), nb.NewRows()
		if tc.change != nil {
			tc.change(v)
		}
		var u nb.Unit
		for _, want := range tc.want {
			want(&u)
		}
		rows.Set("x", u)
		var got []string
		for _, f := range checkOf(rows.Len(), differences(v, schema(t), rows, tc.kept)).Findings {
			got = append(got, f.Object+" "+f.Problem)
		}
		if diff := cmp.Diff(tc.rows, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// An answer has a bounded number of findings, and says how many were left out.
func TestManyDifferences(t *testing.T) {
	c := checkOf(500, make([]difference, mostFindings+7))
	if c.OK || len(c.Findings) != mostFindings || c.More != 7 || c.Rows != 500 {
		t.Errorf("%d findings, %d more of %d rows", len(c.Findings), c.More, c.Rows)
	}
	if c := checkOf(500, nil); !c.OK || c.More != 0 || c.Findings == nil {
		t.Errorf("without differences: %+v", c)
	}
}

// What differs without a reason is about to be written: it is a finding when it is still there at
// last, and at once if the database takes nothing.
func TestQuestions(t *testing.T) {
	rows := nb.NewRows()
	var u nb.Unit
	u.Add("Network/blue", &nb.LogicalSwitch{Name: "net-blue"})
	rows.Set("blue", u)
	for _, tc := range []struct {
		name    string
		left    time.Duration
		all     bool // not all could be tried
		failure error
		want    string // a part of the first finding; empty: it is not answered yet
	}{
		{name: "it may be on its way", left: time.Hour},
		{name: "it stays", left: -time.Second, want: "stays so"},
		{name: "nothing can be written", left: time.Hour, all: true, failure: ErrReadOnly, want: "missing: OVN's northbound database is read-only"},
		{name: "another row is refused", left: time.Hour, failure: errors.New("refused")},
	} {
		answer := make(chan agentapi.OVNCheck, 1)
		asked := questions{{answer, time.Now().Add(tc.left)}}
		w := &writer{session: &session{view: newView("", trigger.New()), schema: schema(t)}, rows: rows, all: tc.all}
		asked.answer(w, tc.failure)
		if (len(asked) == 0) != (tc.want != "") {
			t.Errorf("%s: %d questions are left", tc.name, len(asked))
		}
		if tc.want == "" {
			continue
		}
		if c := <-answer; len(c.Findings) != 1 || !strings.Contains(c.Findings[0].Problem, tc.want) {
			t.Errorf("%s: %+v, want %q", tc.name, c.Findings, tc.want)
		}
	}
}
