// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
)

// slot are two ready ports, of which objects have the first ones; a floating IP leads to the first
// object's port. Objects are told of a port before they hold it.
type slot struct {
	*world
	office string
}

// newSlot returns one. No object is told of a port while a floating IP leads there that is not its
// own.
func newSlot(t *testing.T) slot {
	s := slot{}
	s.world = newWorldWith(t, func(c *Client) {
		found := c.o.Found
		c.o.Found = func(r resource.Resource, a resource.Actual) {
			for _, f := range s.neutron.All("floatingips") {
				if f["port_id"] == a.ID && r.Object != "Port shop/old" && !s.told(r.Object) {
					t.Errorf("%s is told of the port %s, which %v leads to", r.Object, a.ID, f["floating_ip_address"])
				}
			}
			found(r, a)
		}
	})
	s.office = s.make("networks", "network", `"name": "office", "router:external": true`)
	s.make("subnets", "subnet", fmt.Sprintf(`"network_id": %q, "cidr": "192.0.2.0/24", "ip_version": 4`, s.office))
	return s
}

// of are the ports of these objects, and a floating IP of the first one if its name is "old".
func (s slot) of(objects ...string) *resource.Set {
	want := resource.NewSet()
	for _, k := range resource.Kinds() {
		for i, r := range tenant(2).All(k) {
			switch {
			case k == resource.Router:
				r.Mutable["external_gateway_info"] = resource.Attributes{"network_id": s.office}
			case k == resource.Port && i < len(objects):
				r.Object, r.Holder = "Port shop/"+objects[i], objects[i]
			case k == resource.Port:
				r.Spare, r.Object = true, "Node n1"
			}
			want.Add(r)
		}
	}
	if objects[0] == "old" {
		want.Add(resource.Resource{
			Ref: resource.Ref{Kind: resource.FloatingIP, Key: "FloatingIP/shop/web"}, Object: "FloatingIP shop/web",
			Fixed:   resource.Attributes{"floating_network_id": s.office, "floating_ip_address": "192.0.2.7"},
			Mutable: resource.Attributes{"port_id": want.All(resource.Port)[0].Ref},
		})
	}
	want.Held = func(r resource.Resource, a resource.Actual) bool { return s.portOf(r.Object) == a.ID }
	return want
}

// awaitTold returns when an object has been told of its port.
func (s slot) awaitTold(object string) {
	s.Helper()
	for end := time.After(bound); ; {
		changed := s.telling.Changed()
		if s.told(object) {
			return
		}
		select {
		case <-s.reports:
		case <-changed:
		case <-end:
			s.Fatalf("%s is not told of a port", object)
		}
	}
}

// faults has calls of floating IPs fail, or all of them.
func (s slot) faults(fault neutronfake.Fault, all bool) {
	s.neutron.Fail(func(_ int, method, path string) neutronfake.Fault {
		if all || method != "GET" && strings.HasPrefix(path, "floatingips") {
			return fault
		}
		return neutronfake.None
	})
}

// A pod is not reached by the floating IP of the pod that had its port before: while Neutron is
// away it waits, and another pod with a port of its own does not.
func TestPortThatAFloatingIPLeadsTo(t *testing.T) {
	s := newSlot(t)
	s.set(s.of("old"))
	s.done()
	s.faults(neutronfake.Busy, true)
	s.set(s.of("new"))
	s.await("an error", func(o outcome) bool { return o.err != nil })
	s.set(s.of("new", "other"))
	s.awaitTold("Port shop/other")
	if s.told("Port shop/new") {
		t.Error("told of the port while the floating IP leads to it")
	}
	s.faults(neutronfake.None, true)
	s.done()
	if at := s.portOf("Port shop/new"); at != s.portOf("Port shop/old") {
		t.Errorf("it gets port %q", at)
	}
}

// So it is if the call that had the floating IP lead there was not answered.
func TestPortThatAFloatingIPMayLeadTo(t *testing.T) {
	s := newSlot(t)
	without := s.of("old")
	want := resource.NewSet()
	for _, k := range resource.Kinds() {
		for _, r := range without.All(k) {
			if k != resource.FloatingIP {
				want.Add(r)
			}
		}
	}
	want.Held = without.Held
	s.set(want)
	s.done()
	lost := false
	s.neutron.Fail(func(_ int, method, path string) neutronfake.Fault {
		switch {
		case lost:
			return neutronfake.Busy
		case method == "POST" && path == "floatingips":
			lost = true
			return neutronfake.Lost
		}
		return neutronfake.None
	})
	s.set(s.of("old"))
	s.await("an error", func(o outcome) bool { return o.err != nil })
	s.set(s.of("new", "other"))
	s.awaitTold("Port shop/other")
	if s.told("Port shop/new") {
		t.Error("told of the port that the floating IP may lead to")
	}
	s.faults(neutronfake.None, true)
	s.done()
	if !s.told("Port shop/new") {
		t.Error("not told of its port")
	}
}

// A floating IP that Neutron does not take away keeps no pod from starting: its port is made anew.
func TestPortThatAFloatingIPCannotLeave(t *testing.T) {
	for _, stays := range []bool{false, true} {
		t.Run(fmt.Sprint("floating IP stays: ", stays), func(t *testing.T) {
			s := newSlot(t)
			before, after := s.of("old"), s.of("new", "other")
			s.set(before)
			s.done()
			s.faults(neutronfake.Broken, false)
			if stays {
				f := before.All(resource.FloatingIP)[0]
				f.Mutable = resource.Attributes{"port_id": nil}
				after.Add(f)
			}
			s.set(after)
			s.awaitTold("Port shop/new")
			if at := s.portOf("Port shop/new"); at == s.portOf("Port shop/old") {
				t.Errorf("it gets port %q, which the other one had", at)
			}
			o := s.await("why it is not taken away", func(o outcome) bool { return len(o.problems) > 0 })
			if len(o.problems) != 1 || o.problems[0].Reason != reasonFailed || !strings.Contains(o.problems[0].Message, "floating IP") {
				t.Errorf("problems %+v", o.problems)
			}
			s.faults(neutronfake.None, true)
			s.done()
		})
	}
}

// In place of a port that another program has made none can be made: that is said.
func TestExposedPortOfAnotherProgram(t *testing.T) {
	for _, told := range []bool{false, true} {
		want, have := resource.NewSet(), resource.NewInventory()
		port := resource.BorrowedPort("Port/shop/web", "p1")
		want.Add(resource.Resource{Ref: port, Object: "Port shop/web", Holder: "uid", Optional: true})
		want.Held = func(resource.Resource, resource.Actual) bool { return told }
		have.Put(port, resource.Actual{ID: "p1"})
		have.Expose("p1")
		found := 0
		tell := newTeller(func(resource.Resource, resource.Actual) { found++ }, want, have, resource.Plan(want, have))
		tell.all()
		problems := tell.exposed()
		if told && (found != 1 || len(problems) > 0) {
			t.Errorf("one that has the port: %d times told, %+v", found, problems)
		}
		if !told && (found != 0 || len(problems) != 1 || problems[0].Object != "Port shop/web" || !strings.Contains(problems[0].Message, "p1")) {
			t.Errorf("one that is to get the port: %d times told, %+v", found, problems)
		}
	}
}
