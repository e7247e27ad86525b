// SPDX-License-Identifier: Apache-2.0

//go:build integration

package northbound

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/intenttest"
	"coelan.io/coelan/internal/ovntest"
)

// checks asks how the database differs from what is wanted.
func (c *controller) checks() agentapi.OVNCheck {
	c.t.Helper()
	a, err := c.client.Check(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	if a.Rows == 0 {
		c.t.Error("no rows were compared")
	}
	return a
}

// finds wants exactly the findings with these beginnings, which end with a reason.
func (c *controller) finds(what, reason string, want ...string) {
	c.t.Helper()
	a := c.checks()
	for _, f := range a.Findings {
		text := f.Kind + " " + f.Object + " " + f.Problem
		if !slices.ContainsFunc(want, func(w string) bool { return strings.HasPrefix(text, w) }) ||
			!strings.Contains(text, reason) {
			c.t.Errorf("%s: %s, want one of %q with the reason %q", what, text, want, reason)
		}
	}
	if len(a.Findings) != len(want) || a.OK != (len(want) == 0) || a.More != 0 {
		c.t.Errorf("%s: %d findings and %d more, want %q", what, len(a.Findings), a.More, want)
	}
}

// A row that is deleted or changed while the controller works is mended, and never a finding; what
// others have in the database is none either. Asking writes nothing.
func TestCheckWhileItWorks(t *testing.T) {
	o := ovntest.Start(t)
	o.Nbctl("ls-add", "theirs", "--", "lsp-add", "theirs", "vm", "--", "create", "load_balancer_group", "name=theirs", "--",
		"create", "logical_switch", `name="west:net-red"`, `external_ids:coelan.io/owner="west/Network/red"`)
	remotes := []string{o.Remote("nb")}
	c := start(t, remotes, intenttest.State(world()), nil)
	c.synced()
	before := c.client.Transactions()
	c.finds("at first", "")
	if n := c.client.Transactions() - before; n != 0 {
		t.Errorf("asking wrote %d transactions", n)
	}
	for range 10 {
		o.Nbctl("lsp-del", "shop/web", "--", "lsp-set-addresses", "shop/db", "unknown", "--", "lr-del", "router-red")
		c.finds("what is mended", "")
		// What vanished in one transaction is mended in one or several.
		o.Nbctl("wait-until", "logical_switch_port", "shop/web", "--",
			"wait-until", "logical_switch_port", "shop/db", "addresses!=unknown", "--",
			"wait-until", "logical_router", "router-red")
	}
	o.StopNB()
	c.fails("does not answer", ErrUnreachable)
	if _, err := c.client.Check(t.Context()); !errors.Is(err, ErrNotConnected) {
		t.Errorf("without a database: %v", err)
	}
}

// A router that is deleted again and again, also just when its rows are made, is mended each time:
// what the database does not take then is no failure.
func TestRowsThatVanish(t *testing.T) {
	o := ovntest.Start(t)
	c := start(t, []string{o.Remote("nb")}, intenttest.State(world()), nil)
	c.synced()
	for range 200 {
		o.Nbctl("--if-exists", "lr-del", "router-red")
		for len(c.reports) > 0 {
			if err := <-c.reports; err != nil {
				t.Fatal(err)
			}
		}
	}
	c.finds("at last", "")
}

// A row is missing while another system has its name, with that reason.
func TestCheckOfATakenName(t *testing.T) {
	o := ovntest.Start(t)
	o.Nbctl("ls-add", "theirs", "--", "lsp-add", "theirs", "shop/web")
	c := start(t, []string{o.Remote("nb")}, intenttest.State(world()), nil)
	c.fails("Logical_Switch_Port shop/web", nil)
	c.finds("a name that is taken", "the northbound database has a row of this name",
		"row Logical_Switch_Port shop/web of Port shop/web is missing")
	o.Nbctl("lsp-del", "shop/web")
	c.synced()
	c.finds("the name is free", "")
}

// What was deleted, changed and added while there was no controller is named when the database
// takes no changes, with that reason.
func TestCheckOfAReadOnlyDatabase(t *testing.T) {
	o := ovntest.Start(t)
	w := world()
	remotes := []string{o.Remote("nb")}
	c := start(t, remotes, intenttest.State(w), nil)
	c.synced()
	c.stop()
	o.Nbctl("ls-add", "theirs", "--", "lsp-del", "shop/web", "--", "lsp-set-addresses", "shop/db", "unknown")
	w.Ports = w.Ports[:4] // red/c and others are gone
	o.StopNB()
	o.StartNB("--sync-from=unix:" + filepath.Join(o.Dir, "nothing"))
	c = start(t, remotes, intenttest.State(w), nil)
	c.fails("read-only", ErrReadOnly)
	a := c.checks()
	for _, want := range []string{
		"row Logical_Switch_Port shop/web of Port shop/web is missing",
		"row Logical_Switch_Port shop/db of Port shop/db is not as wanted in addresses",
		"row Logical_Switch_Port red/c of Port red/c is not wanted any more",
		"row Logical_Switch net-red of Network red is not as wanted in ports",
	} {
		if !slices.ContainsFunc(a.Findings, func(f agentapi.Finding) bool {
			return strings.HasPrefix(f.Kind+" "+f.Object+" "+f.Problem, want+": OVN's northbound database is read-only")
		}) {
			t.Errorf("%q is not among the findings %+v", want, a.Findings)
		}
	}
	if slices.ContainsFunc(a.Findings, func(f agentapi.Finding) bool { return strings.Contains(f.Object, "theirs") }) {
		t.Errorf("a switch of another system is a finding: %+v", a.Findings)
	}
	o.Appctl("ovsdb-server/disconnect-active-ovsdb-server")
	c.synced()
	c.finds("it takes changes again", "")
}
