// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
)

// Ports are made several at once: a Neutron that answers two calls for ports only together answers
// all.
func TestPortsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.set(tenant(0))
	w.done()
	var waiting atomic.Int32
	const several, ports = 2, 20
	gate := make(chan struct{}, several)
	w.neutron.Arrive(func(method, path string) {
		if method != http.MethodPost || path != "ports" {
			return
		}
		if waiting.Add(1)%several == 0 {
			for range several {
				gate <- struct{}{}
			}
		}
		select {
		case <-gate:
		case <-time.After(bound):
			t.Error("a call for a port is alone")
		}
	})
	w.set(tenant(ports))
	w.done()
}

// One port that is refused among many that are made at once does not keep the others from being
// made, and is the only one that a problem is said of.
func TestOneOfManyIsRefused(t *testing.T) {
	w := newWorld(t)
	w.set(tenant(0))
	w.done()
	subnet := w.neutron.All("subnets")[0]
	w.call("POST", "ports", fmt.Sprintf(`{"port": {"project_id": "p", "network_id": %q, "fixed_ips": [{"subnet_id": %q,
		"ip_address": "10.90.1.8"}]}}`, subnet["network_id"], subnet["id"]))
	w.set(tenant(60))
	o := w.await("a refusal", func(o outcome) bool { return len(o.problems) > 0 })
	if len(o.problems) != 1 || o.problems[0].Object != "Port shop/web-0007" ||
		!strings.Contains(o.problems[0].Message, "10.90.1.8 already allocated") {
		t.Errorf("problems %+v", o.problems)
	}
	if n := len(w.described("ports")); n != 59 {
		t.Errorf("%d ports of 60, want all but one", n)
	}
}

// A Neutron that is busy gets no further calls but those that are under way, and is left alone for
// the longest time that one of its answers asks for.
func TestBusyAtOnce(t *testing.T) {
	w := newWorld(t)
	w.set(tenant(0))
	w.done()
	w.stop()
	api, project, err := Access{Endpoint: w.neutron.URL, Project: "p"}.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(api, project, tenants{}, Options{Cluster: "east", Claims: noClaims, Lent: noneLent, Parents: noParents}, func() {})
	have, err := s.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var posts atomic.Int32
	w.neutron.Fail(func(_ int, method, _ string) neutronfake.Fault {
		if method == http.MethodPost {
			posts.Add(1)
		}
		return neutronfake.Busy
	})
	want := tenant(40)
	plan := resource.Plan(want, have)
	r := &round{
		session: s, have: have, want: want, failed: map[resource.Ref]bool{}, outdated: func() bool { return false },
		tell: newTeller(func(resource.Resource, resource.Actual) {}, want, have, plan),
	}
	err = r.run(t.Context(), plan)
	var away *outage
	if n := posts.Load(); !errors.As(err, &away) || n < 1 || n > parallel {
		t.Errorf("%d calls of a Neutron that is busy, at most %d were under way: %v", n, parallel, err)
	}
	if n := len(s.doubtful); n != int(posts.Load()) {
		t.Errorf("%d ports may be there, of %d calls", n, posts.Load())
	}
}

// Which answer comes last does not matter.
func TestLongerPause(t *testing.T) {
	short, long := &outage{after: time.Second, says: true}, &outage{after: time.Minute, says: true}
	for _, order := range [][]error{{short, long}, {long, short}, {nil, long}, {long, nil}} {
		if got := longer(order[0], order[1]); !errors.Is(got, long) {
			t.Errorf("longer(%v) = %v", order, got)
		}
	}
	if got := longer(nil, nil); got != nil {
		t.Errorf("longer of nothing is %v", got)
	}
}

// Ports that stay for pods that may come go when a quota keeps a Port from having one.
func TestQuotaTakesOptionalPorts(t *testing.T) {
	w := newWorld(t)
	w.set(tenant(6))
	w.done()
	with := resource.NewSet()
	for _, k := range resource.Kinds() {
		for i, r := range tenant(7).All(k) {
			if k == resource.Port && i < 4 {
				r.Spare, r.Optional = true, true
			}
			with.Add(r)
		}
	}
	const ofRouter = 2
	w.neutron.Quota("ports", 6+ofRouter)
	w.set(with)
	w.await("a port for the last", func(o outcome) bool { return o.err == nil && len(o.problems) == 0 && w.told("Port shop/web-0006") })
	if ports := w.described("ports"); len(ports) != 3 || !slices.Contains(ports, "east/Port/shop/web-0006") {
		t.Errorf("ports %v", ports)
	}
}
