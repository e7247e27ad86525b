// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
)

func np(name string) intent.PolicyRef {
	return intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "default", Name: name}
}

// ruleOf is the only rule of that policy.
func ruleOf(name string) intent.Rule { return intent.Rule{ID: name, Policy: np(name)} }

// pod has the rules of some policies, and is isolated by others.
func pod(uid string, isolating []string, rules ...string) intent.Subject {
	s := intent.Subject{Key: intent.PodSubject(uid), Rules: rules}
	for _, name := range isolating {
		s.EgressIsolation = append(s.EgressIsolation, np(name))
	}
	return s
}

// A policy counts on a node when the agent has all that there is about it, and said so.
func TestProgress(t *testing.T) {
	tally := newTally()
	a := newAgent("a", tally)
	expect := func(what string, names ...string) {
		t.Helper()
		want := counts{}
		for _, name := range names {
			want[np(name)] = 1
		}
		if diff := cmp.Diff(want, tally.here); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	a.Change(policy.Delta{View: policy.View{
		Rules:    []intent.Rule{ruleOf("web"), ruleOf("db")},
		Subjects: []intent.Subject{pod("1", []string{"deny"}, "web"), pod("2", nil, "db", "web")},
	}}, nil)
	if !a.programmed(0) {
		t.Error("version 0 is not known")
	}
	expect("nothing is sent")
	_, first, _ := a.take()
	if a.programmed(first + 1) {
		t.Error("a version counts that was not sent")
	}
	expect("nothing is done")
	a.programmed(first)
	expect("all is done", "web", "db", "deny")

	a.Change(policy.Delta{View: policy.View{Peers: []intent.Peer{{Space: "default", Groups: []string{"g"}}}}}, nil)
	expect("a peer is no change of policies", "web", "db", "deny")
	a.take()

	a.Change(policy.Delta{View: policy.View{Rules: []intent.Rule{ruleOf("db")}}}, nil)
	expect("a rule has changed", "web", "deny")
	a.programmed(first)
	expect("an older version says nothing of it", "web", "deny")
	_, third, _ := a.take()
	a.Change(policy.Delta{View: policy.View{Rules: []intent.Rule{ruleOf("db"), ruleOf("web")}}}, nil)
	a.programmed(third)
	expect("it has changed again", "deny")
	_, fourth, _ := a.take()
	a.programmed(fourth)
	expect("all is done", "web", "db", "deny")

	a.Change(policy.Delta{RemovedSubjects: []string{intent.PodSubject("2")}, RemovedRules: []string{"db"}}, nil)
	expect("a pod is gone, and with it a policy", "deny")
	_, fifth, _ := a.take()
	a.programmed(fifth)
	expect("the others are in effect", "web", "deny")

	b := newAgent("b", tally)
	b.Change(policy.Delta{View: policy.View{Rules: []intent.Rule{ruleOf("web")}, Subjects: []intent.Subject{pod("3", nil, "web")}}}, nil)
	_, version, _ := b.take()
	b.programmed(version)
	if n := tally.count(np("web")); n != 2 {
		t.Errorf("it is in effect on %d nodes, not 2", n)
	}
	a.leave()
	b.leave()
	expect("all agents have left")
	a.programmed(fifth)
	expect("what comes late does not count")
}

// What changes again before it is sent is sent once.
func TestPendingIsBounded(t *testing.T) {
	a := newAgent("a", newTally())
	for i := range 1000 {
		r := ruleOf("web")
		r.Number = i
		a.Change(policy.Delta{View: policy.View{Rules: []intent.Rule{r}}}, nil)
	}
	a.Change(policy.Delta{RemovedRules: []string{"other"}}, nil)
	got, version, _ := a.take()
	if len(got) != 2 || version != 1 {
		t.Errorf("%d items in version %d", len(got), version)
	}
	if again, same, _ := a.take(); len(again) != 0 || same != 1 {
		t.Errorf("%d items are sent again, in version %d", len(again), same)
	}
}
