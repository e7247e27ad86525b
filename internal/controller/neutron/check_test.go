// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/controller/findings"
	"coelan.io/coelan/internal/controller/programmed"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
)

// complete is an intent that is, from the beginning.
type complete struct{ known }

func (complete) Ready() <-chan struct{} {
	ready := make(chan struct{})
	close(ready)
	return ready
}

// checked is a Runner that leads, and that tests have compare.
type checked struct {
	*Runner
	t     *testing.T
	store *intent.Store
	have  *resource.Inventory
}

func newChecked(t *testing.T, northbound ...string) *checked {
	t.Helper()
	c := &checked{t: t, store: intent.NewStore(), have: resource.NewInventory()}
	c.wants("red")
	o := Options{
		Log: slog.New(slog.DiscardHandler), Cloud: cloud.Access{Endpoint: "http://neutron/"}, Intent: complete{known{c.store}},
		Northbound: northbound,
	}
	r := &Runner{
		Options: o, client: cloud.New(cloud.Options{}), loop: heartbeat.New(heartbeat.Bound).Loop("neutron"),
		identities: newIdentities(o, func() {}), findings: findings.New(o.Log, nil, nothing{}), verdicts: programmed.New(),
	}
	t.Cleanup(r.identities.queue.ShutDown)
	if len(northbound) > 0 {
		var err error
		if r.supplement, err = newSupplement(o, func(now outcome) { r.publish(func() { r.nb = now }) }); err != nil {
			t.Fatal(err)
		}
	}
	r.leads.Store(true)
	c.Runner = r
	return c
}

func (c *checked) wants(network string) {
	c.t.Helper()
	changeIntent(c.t, c.store, func(tx *intent.Tx) {
		tx.SetRouter(intent.Router{Name: "default", ID: 1})
		tx.SetNetwork(intent.Network{Name: network, Router: "default", Subnets: intenttest.Subnets("10.0.0.0/24")})
	})
}

// compares is what the client of Neutron does.
func (c *checked) compares(err error, refused ...resource.Problem) {
	c.want(c.have)
	c.report(refused, err)
}

func (c *checked) checks(ok bool, want ...string) agentapi.NeutronCheck {
	c.t.Helper()
	a, err := c.Check(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	var got []string
	for _, f := range a.Findings {
		got = append(got, f.Kind+" "+f.Object+" "+f.Problem)
	}
	if diff := cmp.Diff(want, got); diff != "" || a.OK != ok {
		c.t.Errorf("OK is %v (-want +got):\n%s", a.OK, diff)
	}
	return a
}

func (c *checked) status() agentapi.NeutronStatus {
	c.t.Helper()
	s, err := c.Status(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

var noRoom = resource.Problem{Object: "Port shop/web", Reason: "QuotaExceeded", Message: "port of Neutron: no room"}

const ofNoRoom = "object Port shop/web QuotaExceeded: port of Neutron: no room"

// What Neutron refuses is a finding until it does not refuse it any more; what it has nothing for
// is none.
func TestCheckOfRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t)
		changeIntent(t, c.store, func(tx *intent.Tx) { tx.SetEgressPath(intent.EgressPath{Name: "out"}) })
		c.have.Put(compile.NetworkRef("red"), resource.Actual{ID: "n"})
		for i := range 3 {
			c.have.Put(compile.PortRef(fmt.Sprint(i)), resource.Actual{ID: fmt.Sprint(i)})
		}
		c.have.Put(resource.Ref{Kind: resource.Routes, Key: "r"}, resource.Actual{ID: "r"})
		c.compares(nil)
		a := c.checks(true)
		if a.Resources != 4 || a.Northbound != nil || len(a.Limits) != 1 || a.Limits[0].Object != "Egress out" {
			t.Errorf("%+v", a)
		}
		began := time.Now()
		want := agentapi.NeutronStatus{
			Where: "http://neutron/", Compared: began, Since: began,
			Resources: []agentapi.NeutronResources{{Kind: "network", Count: 1}, {Kind: "port", Count: 3}},
		}
		if diff := cmp.Diff(want, c.status()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		time.Sleep(time.Hour)
		c.compares(nil, noRoom)
		c.checks(false, ofNoRoom)
		if s := c.status(); s.Problems != 1 || s.Failure != "" || s.Since != began || s.Compared != time.Now() {
			t.Errorf("%+v", s)
		}
		c.compares(nil)
		c.checks(true)
		c.quotasRead([]cloud.Quota{{Project: "p", Resource: "port", Used: 99, Limit: 100}})
		if a, err := c.Check(t.Context()); err != nil || a.OK || len(a.Findings) != 1 ||
			!strings.HasPrefix(a.Findings[0].Problem, "QuotaNearlyExceeded: ") {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

// That Neutron cannot be used is said at once, with since when that is so, and what was refused
// before is still said.
func TestCheckWhileNeutronIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t)
		c.compares(nil, noRoom)
		time.Sleep(time.Hour)
		since := time.Now()
		for range 3 {
			c.compares(errors.New("no route to host"), noRoom)
			time.Sleep(time.Minute)
		}
		c.wants("blue")
		asked := time.Now()
		c.checks(false, "neutron http://neutron/ since "+since.Format(time.RFC3339)+": no route to host", ofNoRoom)
		if time.Since(asked) > 0 {
			t.Errorf("the answer took %s", time.Since(asked))
		}
		if s := c.status(); s.Failure != "no route to host" || s.Since != since {
			t.Errorf("%+v", s)
		}
		back := time.Now()
		c.compares(nil)
		c.checks(true)
		if s := c.status(); s.Failure != "" || s.Since != back {
			t.Errorf("%+v", s)
		}
	})
}

// An answer is about the objects that there are when it is asked for, and comes without a
// comparison with them if there is none for long.
func TestCheckOfWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t)
		c.checks(false, "neutron http://neutron/ has not been compared yet")
		c.compares(nil)
		c.wants("blue")
		time.AfterFunc(time.Second, func() { c.compares(nil, noRoom) })
		c.checks(false, ofNoRoom)
		c.compares(nil)
		at := time.Now()
		c.wants("green")
		c.checks(false, "neutron http://neutron/ is behind the cluster's objects, and was as they asked for at "+
			at.Format(time.RFC3339)+": it has much to do, or does not answer")
		if waited := time.Since(at); waited != patience {
			t.Errorf("it waited for %s", waited)
		}
	})
}

// Of many findings an answer has the first ones.
func TestManyFindings(t *testing.T) {
	c := newChecked(t)
	var many []resource.Problem
	for i := range mostFindings + 7 {
		p := noRoom
		p.Object = fmt.Sprint("Port shop/web", i)
		many = append(many, p)
	}
	c.compares(nil, many...)
	a, err := c.Check(t.Context())
	if err != nil || len(a.Findings) != mostFindings || a.More != 7 || a.OK {
		t.Errorf("%d findings and %d more, OK %v, %v", len(a.Findings), a.More, a.OK, err)
	}
}

// With a northbound database the rows beside Neutron's are a part of the answer. That they cannot
// be compared is a finding, with the reason.
func TestCheckOfRowsBesideNeutron(t *testing.T) {
	c := newChecked(t, "unix:/none")
	says := func(reason string) {
		t.Helper()
		a := c.checks(false)
		if a.Northbound == nil || len(a.Northbound.Findings) != 1 {
			t.Fatalf("%+v", a.Northbound)
		}
		if f := a.Northbound.Findings[0]; f.Kind != "northbound" || f.Object != "unix:/none" || !strings.Contains(f.Problem, reason) {
			t.Errorf("%+v, want the reason %q", f, reason)
		}
	}
	c.want(c.have)
	c.publish(func() {
		c.compared = c.compared.next(time.Now(), c.compiled.Revision(), c.have, false, false)
	})
	says("Neutron is to be read first")
	c.compares(nil)
	says("not connected")
	c.supplement.report(outcome{err: errors.New("certificate has expired")})
	says("certificate has expired")
}

// A replica that does not lead knows nothing, and one without all objects no findings.
func TestCheckOfOthers(t *testing.T) {
	c := newChecked(t)
	c.Intent = known{c.store}
	if _, err := c.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "does not know all") {
		t.Errorf("error %v", err)
	}
	c.leads.Store(false)
	_, err := c.Check(t.Context())
	_, ofStatus := c.Status(context.Background())
	if !errors.Is(err, errNotLeading) || !errors.Is(ofStatus, errNotLeading) {
		t.Errorf("errors %v, %v", err, ofStatus)
	}
}

// What an administrator of OpenStack can mend is no limit.
func TestLimits(t *testing.T) {
	for reason, is := range map[string]bool{
		"DenyUnsupported": true, "UnsupportedByOVN": true, "RouteIgnored": true, "ProjectKept": true,
		"TrunksUnsupported": false, "NetworkNotFound": false, "QuotaExceeded": false, "RefusedByNeutron": false,
	} {
		if got := limit(findings.Finding{Reason: reason}); got != is {
			t.Errorf("%s: %v", reason, got)
		}
	}
}
