// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
)

// ruled adds a security group with rules for so many ports.
func ruled(s *resource.Set, rules int) *resource.Set {
	g := s.Add(resource.Resource{
		Ref: resource.Ref{Kind: resource.SecurityGroup, Key: "Policy/shop/web"}, Object: "NetworkPolicy shop/web",
		Mutable: resource.Attributes{"name": "web"},
	})
	for i := range rules {
		s.Add(resource.Resource{
			Ref:    resource.Ref{Kind: resource.SecurityGroupRule, Key: fmt.Sprintf("Policy/shop/web tcp %03d", i)},
			Object: "NetworkPolicy shop/web", Fixed: resource.Attributes{
				"security_group_id": g, "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "remote_ip_prefix": nil,
				"port_range_min": i + 1, "port_range_max": i + 1, "remote_group_id": nil,
			},
		})
	}
	return s
}

// allRules wants each rule once.
func (w *world) allRules(want int) {
	w.Helper()
	seen := map[string]bool{}
	for _, d := range w.described("security-group-rules") {
		if seen[d] {
			w.Errorf("there are two rules %s", d)
		}
		seen[d] = true
	}
	if len(seen) != want {
		w.Errorf("%d rules, want %d", len(seen), want)
	}
}

// The rules of a policy come by one call for each hundred: ports of its pods wait for them.
func TestRulesInOneCall(t *testing.T) {
	for rules, want := range map[int]int32{1: 1, resource.RulesOfCall: 1, resource.RulesOfCall + 50: 2} {
		t.Run(fmt.Sprint(rules), func(t *testing.T) {
			w := newWorld(t)
			w.count(http.MethodPost, "security-group-rules")
			w.set(ruled(tenant(1), rules))
			w.done()
			w.allRules(rules)
			if n := w.calls.Load(); n != want {
				t.Errorf("%d calls, want %d", n, want)
			}
		})
	}
}

// Of a round, each hundred rules count as a call: others do not wait for all of a group.
func TestRulesOfARound(t *testing.T) {
	r := &round{session: &session{attempt: newAttempt()}}
	calls := resource.Plan(ruled(resource.NewSet(), (maxCalls+1)*resource.RulesOfCall), resource.NewInventory())
	now, left := r.first(calls)
	if want := 1 + (maxCalls-1)*resource.RulesOfCall; len(now) != want || !left {
		t.Errorf("%d calls, and more: %v; want %d, the group's and those of rules", len(now), left, want)
	}
	if now, left = r.first(now); left {
		t.Errorf("of %d calls some are left", len(now))
	}
}

// A rule that Neutron refuses keeps no other rule of its group from being made, and is the only one
// that a problem is said of.
func TestOneRuleOfManyIsRefused(t *testing.T) {
	w := newWorld(t)
	want := ruled(tenant(1), 20)
	w.set(want)
	w.done()
	next := ruled(tenant(1), 40)
	for _, r := range next.All(resource.SecurityGroupRule) {
		if strings.HasSuffix(r.Key, "030") {
			r.Fixed["port_range_min"] = 0
		}
	}
	w.set(next)
	o := w.await("a refusal", func(o outcome) bool { return len(o.problems) > 0 })
	if len(o.problems) != 1 || !strings.Contains(o.problems[0].Message, "Invalid value for port 0") {
		t.Errorf("problems %+v", o.problems)
	}
	w.allRules(39)
}

// Rules that are made by a call without an answer are found, and not made again.
func TestAnswerAboutRulesIsLost(t *testing.T) {
	for name, fault := range map[string]neutronfake.Fault{"503": neutronfake.Lost, "500": neutronfake.Broken} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var lost atomic.Bool
			w.neutron.Fail(func(_ int, method, path string) neutronfake.Fault {
				if method == http.MethodPost && path == "security-group-rules" && !lost.Swap(true) {
					return fault
				}
				return neutronfake.None
			})
			w.set(ruled(tenant(1), 30))
			w.done()
			w.allRules(30)
		})
	}
}

// What is wanted now comes first: a round that makes ports ends when something else is wanted, and
// a policy does not wait for all of them.
func TestPolicyDoesNotWaitForPorts(t *testing.T) {
	const ports = 40
	w := newWorldWith(t, func(c *Client) { c.patience = 0 })
	w.set(tenant(0))
	w.done()
	var made, before atomic.Int32
	w.neutron.Arrive(func(method, path string) {
		switch {
		case method != http.MethodPost:
		case path == "ports" && made.Add(1) == 1:
			w.set(ruled(tenant(ports), 2))
		case path == "security-groups":
			before.Store(made.Load())
		}
	})
	w.set(tenant(ports))
	w.done()
	if n := before.Load(); n > 2*parallel {
		t.Errorf("%d of %d ports were made before the policy's group", n, ports)
	}
	w.allRules(2)
}
