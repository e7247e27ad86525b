// SPDX-License-Identifier: Apache-2.0

package clusterintent

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
)

// judges are policies that know objects up to some version.
type judges struct {
	known    policy.Basis
	progress chan struct{}
}

func (j *judges) Subscribe(string, policy.Subscriber) func() { return func() {} }

func (j *judges) Published() policy.Basis { return j.known }

// upTo is a Basis of Pods and Ports.
func upTo(pods, ports uint64) policy.Basis {
	return policy.Basis{podKind: {Changed: pods}, portKind: {Changed: ports}}
}

func newSource(j *judges, mode intent.PolicyMode) *Source {
	return New(Options{
		Monitor: heartbeat.New(time.Minute), Policies: j, PoliciesProgressed: func() <-chan struct{} { return j.progress },
		Settings: Settings{PolicyMode: mode},
	})
}

func portOf(name string, version int) *v1alpha1.Port {
	return &v1alpha1.Port{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: strconv.Itoa(version)}}
}

func podOf(name string, version int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: strconv.Itoa(version)}}
}

// delta is a change of policies for a Subject.
func delta(subject string) policy.Delta {
	return policy.Delta{View: policy.View{Subjects: []intent.Subject{{Key: subject}}}}
}

// taken is what is taken now, sorted: objects, those that are gone, and changes of policies.
func taken(s *Source) (list []string) {
	pending, _, policies := s.take()
	for key, e := range pending {
		text := key.kind.Elem().Name() + " " + client.ObjectKeyFromObject(e.object).Name
		if e.gone {
			text += " is gone"
		}
		list = append(list, text)
	}
	for _, d := range policies {
		list = append(list, "policies for "+d.Subjects[0].Key)
	}
	slices.Sort(list)
	return list
}

// A Port that comes or changes waits until policies know it, and what they say until all is noted
// that they have looked at. What goes waits for nothing, nor do other objects.
func TestInStep(t *testing.T) {
	type step struct {
		do   func(*Source, *judges)
		want []string
	}
	note := func(o client.Object, gone, relevant bool) func(*Source, *judges) {
		return func(s *Source, _ *judges) { s.note(o, gone, relevant) }
	}
	know := func(b policy.Basis) func(*Source, *judges) { return func(_ *Source, j *judges) { j.known = b } }
	say := func(subject string, of policy.Basis) func(*Source, *judges) {
		return func(s *Source, j *judges) { j.known = of; s.Change(delta(subject), of) }
	}
	for name, steps := range map[string][]step{
		"a Port that policies do not know": {
			{note(portOf("a", 10), false, true), nil},
			{know(upTo(9, 9)), nil},
			{know(upTo(9, 10)), []string{"Port a"}},
		},
		"a newer version of a Port that waits": {
			{note(portOf("a", 10), false, true), nil},
			{note(portOf("a", 12), false, true), nil},
			{know(upTo(9, 10)), nil},
			{know(upTo(9, 12)), []string{"Port a"}},
		},
		"a Port that goes while it waits": {
			{note(portOf("a", 10), false, true), nil},
			{note(portOf("a", 11), true, true), []string{"Port a is gone"}},
		},
		"a pod": {{note(podOf("a", 10), false, true), []string{"Pod a"}}},
		"policies that have seen more": {
			{say("a", upTo(10, 0)), nil},
			{note(podOf("b", 9), false, true), []string{"Pod b"}},
			{note(podOf("a", 10), false, true), []string{"Pod a", "policies for a"}},
		},
		"a change without effect is seen as well": {
			{say("a", upTo(10, 0)), nil},
			{note(podOf("a", 10), false, false), []string{"policies for a"}},
		},
		"a Port and what policies say of it": {
			{note(portOf("a", 10), false, true), nil},
			{say("a", upTo(0, 10)), []string{"Port a", "policies for a"}},
		},
		"changes stay in order": {
			{say("a", upTo(10, 0)), nil},
			{say("b", upTo(11, 0)), nil},
			{note(podOf("b", 11), false, true), []string{"Pod b", "policies for a", "policies for b"}},
		},
		"a Port that a change which waits knows": {
			{note(portOf("a", 10), false, true), nil},
			{say("a", upTo(20, 10)), nil},
			{note(podOf("a", 20), false, true), []string{"Pod a", "Port a", "policies for a"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := &judges{known: upTo(0, 0), progress: make(chan struct{})}
			s := newSource(j, intent.EnforcedPolicies)
			s.Begin(policy.View{}, upTo(0, 0))
			s.take()
			for i, step := range steps {
				step.do(s, j)
				if got := taken(s); !slices.Equal(got, step.want) {
					t.Errorf("step %d: %q is taken, want %q", i, got, step.want)
				}
			}
		})
	}
}

// Nothing waits where policies are not enforced.
func TestNotInStep(t *testing.T) {
	s := newSource(&judges{known: upTo(0, 0)}, intent.UnenforcedPolicies)
	s.note(portOf("a", 10), false, true)
	if got := fmt.Sprint(taken(s)); got != "[Port a]" {
		t.Errorf("%s is taken", got)
	}
}

// A Source that holds a Port back is woken when policies know more.
func TestWokenByPolicies(t *testing.T) {
	j := &judges{known: upTo(0, 0), progress: make(chan struct{})}
	s := newSource(j, intent.EnforcedPolicies)
	s.note(portOf("a", 10), false, true)
	if taken(s); s.held == nil {
		t.Fatal("nothing wakes it")
	}
	j.known = upTo(0, 10)
	if taken(s); s.held != nil {
		t.Error("it is woken for nothing")
	}
}
