// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/southbound"
	"coelan.io/coelan/internal/config"
)

// bindingsOf answers with a View.
func bindingsOf(v southbound.View) readBindings {
	return func(context.Context, southbound.Options, string, []string) (southbound.View, error) { return v, nil }
}

// configured gives the whole Open vSwitch its external_ids, and returns when the backend has them.
func (n *node) configured(ids map[string]string) {
	n.Helper()
	changes, stop := n.db.Watch()
	defer stop()
	must(n.T, n.ovs.SetExternalIDs(ids))
	for {
		have, err := n.db.ExternalIDs(bound(n.T))
		must(n.T, err)
		if maps.Equal(have, ids) {
			return
		}
		<-changes
	}
}

// What the southbound database has of a node's ports is compared port by port; rows of other
// clusters and systems are no findings, and neither are ports that are not rows of interfaces.
func TestCompareBindings(t *testing.T) {
	web := logicalPort{name: "east:shop/web.eth0", of: "shop/web/eth0", link: "coa1", plugged: true}
	busy := logicalPort{name: "east:shop/busy.eth0", of: "shop/busy/eth0", link: "coa2"}
	here := southbound.Binding{LogicalPort: web.name, Chassis: "n1", Up: true, Owner: "east/Port/shop/web.eth0"}
	other := func(change func(*southbound.Binding)) southbound.Binding {
		b := here
		change(&b)
		return b
	}
	for _, tc := range []struct {
		name     string
		lost     bool // the chassis
		bindings []southbound.Binding
		want     []string // the beginning and the end of each
	}{
		{"as it should be", false, []southbound.Binding{here}, nil},
		{"one that is being attached", false, []southbound.Binding{here, {LogicalPort: busy.name, Chassis: "n1", Owner: "east/x"}}, nil},
		{"moving here", false, []southbound.Binding{other(func(b *southbound.Binding) { b.Chassis, b.Others = "n2", []string{"n1"} })}, nil},
		{"missing", false, nil, []string{"binding east:shop/web.eth0 of shop/web/eth0, interface coa1, is not in the table Port_Binding"}},
		{"on no chassis", false, []southbound.Binding{other(func(b *southbound.Binding) { b.Chassis, b.Up = "", false })},
			[]string{"binding east:shop/web.eth0 of shop/web/eth0, interface coa1, is bound to no chassis"}},
		{"on another chassis", false, []southbound.Binding{other(func(b *southbound.Binding) { b.Chassis = "n2" })},
			[]string{"binding east:shop/web.eth0 of shop/web/eth0, interface coa1, is bound to chassis n2 in the table Port_Binding, not to this node's, n1"}},
		{"not up", false, []southbound.Binding{other(func(b *southbound.Binding) { b.Up = false })},
			[]string{"binding east:shop/web.eth0 of shop/web/eth0, interface coa1, is bound to chassis n1 in the table Port_Binding, but not up"}},
		{"one more of ours", false, []southbound.Binding{here, {LogicalPort: "east:shop/old", Chassis: "n1", Owner: "east/Port/shop/old"}},
			[]string{"binding east:shop/old is bound to chassis n1 in the table Port_Binding, and no pod or machine of this node has it"}},
		{"others'", false, []southbound.Binding{
			here, {LogicalPort: "west:shop/a", Chassis: "n1", Owner: "west/Port/shop/a"}, {LogicalPort: "vm", Chassis: "n1"},
			{LogicalPort: "cr-east:gw-office@red", Type: "chassisredirect", Chassis: "n1", Owner: "east/Gateway/red"},
			{LogicalPort: "east:shop/there", Chassis: "n2", Owner: "east/Port/shop/there"},
		}, nil},
		{"no chassis", true, nil, []string{"chassis n1 is not in the table Chassis"}},
	} {
		v := southbound.View{HasChassis: !tc.lost, Bindings: map[string]southbound.Binding{}}
		for _, b := range tc.bindings {
			v.Bindings[b.LogicalPort] = b
		}
		var found agentapi.Findings
		compareBindings(&found, "n1", []logicalPort{web, busy, {}}, v, func(owner string) bool {
			_, ours := names.Cluster("east").Owned(owner)
			return ours
		})
		if len(found) != len(tc.want) {
			t.Errorf("%s: %+v, want %v", tc.name, found, tc.want)
			continue
		}
		for i, f := range found {
			if got := f.Kind + " " + f.Object + " " + f.Problem; !strings.HasPrefix(got, tc.want[i]) {
				t.Errorf("%s: %q, want %q", tc.name, got, tc.want[i])
			}
		}
	}
}

// The database is read from the servers of ovn-controller, with the agent's certificates. That it
// cannot be read is a finding; that the agent is not meant to read it is none, and is said.
func TestSouthboundServers(t *testing.T) {
	const ssl = "ssl:192.0.2.1:6642,ssl:192.0.2.2:6642"
	socket := filepath.Join(t.TempDir(), "sb.sock")
	must(t, os.WriteFile(socket, nil, 0o600))
	for _, tc := range []struct {
		name         string
		ids          map[string]string
		certificates string
		err          error
		asked        []string // servers
		found, not   string
	}{
		{name: "TCP", ids: map[string]string{"system-id": "n1", "ovn-remote": "tcp:192.0.2.1:6642"}, asked: []string{"tcp:192.0.2.1:6642"}},
		{name: "of one chassis", asked: []string{"tcp:192.0.2.9:6642"},
			ids: map[string]string{"system-id": "n1", "ovn-remote": "tcp:192.0.2.1:6642", "ovn-remote-n1": "tcp:192.0.2.9:6642"}},
		{name: "a socket", ids: map[string]string{"system-id": "n1", "ovn-remote": "unix:" + socket}, asked: []string{"unix:" + socket}},
		{name: "a socket of another container", ids: map[string]string{"system-id": "n1", "ovn-remote": "unix:/nowhere/sb.sock"},
			not: "unix:/nowhere/sb.sock: the agent does not see the socket"},
		{name: "without a certificate", ids: map[string]string{"system-id": "n1", "ovn-remote": ssl},
			not: ssl + ": the agent has no certificate for it: set backend.certificates"},
		{name: "with a certificate that is not there", ids: map[string]string{"system-id": "n1", "ovn-remote": ssl}, certificates: "/nowhere",
			found: "southbound " + ssl + " cannot be read, so that bindings of ports are not compared; is ovn-controller connected, as " +
				"ovn-appctl connection-status says? authority of OVN's databases: open /nowhere/ca.crt"},
		{name: "away", ids: map[string]string{"system-id": "n1", "ovn-remote": "tcp:192.0.2.1:6642"}, asked: []string{"tcp:192.0.2.1:6642"},
			err:   errors.Join(errors.New("connection refused"), errors.New("no route to host")),
			found: "ovn-appctl connection-status says? connection refused; no route to host"},
		{name: "not configured", found: "southbound of this node is not known: ovn-controller needs external_ids:ovn-remote and system-id"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, func(c *config.Config) { c.Backend.Certificates = tc.certificates })
			must(t, n.reconcile(bound(t)))
			n.configured(tc.ids)
			var asked []string
			n.bindings = func(_ context.Context, o southbound.Options, chassis string, ports []string) (southbound.View, error) {
				asked = o.Remotes
				if chassis != "n1" || !slices.Equal(ports, []string{"mgmt-n1"}) {
					t.Errorf("asked about chassis %s and ports %v", chassis, ports)
				}
				return southbound.View{HasChassis: true, Bindings: map[string]southbound.Binding{
					"mgmt-n1": {LogicalPort: "mgmt-n1", Chassis: "n1", Up: true},
				}}, tc.err
			}
			var c agentapi.Check
			must(t, n.Findings(bound(t), &c))
			var found string
			for _, f := range c.Findings {
				found += f.Kind + " " + f.Object + " " + f.Problem
			}
			if not := strings.Join(c.NotCompared, ""); !strings.Contains(found, tc.found) || tc.found == "" && found != "" ||
				!strings.Contains(not, tc.not) || tc.not == "" && not != "" {
				t.Errorf("found %q and not compared %q, want %q and %q", found, not, tc.found, tc.not)
			}
			if !slices.Equal(asked, tc.asked) {
				t.Errorf("asked %v, want %v", asked, tc.asked)
			}
		})
	}
}
