// SPDX-License-Identifier: Apache-2.0

package policystream

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/policystream/server"
	"coelan.io/coelan/internal/policystream/streamtest"
)

func TestProgrammed(t *testing.T) {
	c := streamtest.Start(t)
	c.Set("a", view())
	c.Set("b", view())
	check := func(want int) {
		t.Helper()
		timeout := time.After(10 * time.Second)
		for {
			got := c.Hub.ProgrammedNodes(ofPolicy("web"))
			if got == (server.ProgrammedNodes{Wanted: 2, Programmed: want}) {
				return
			}
			select {
			case <-c.Hub.ProgrammedChanged():
			case <-timeout:
				t.Fatalf("%+v, want %d of 2", got, want)
			}
		}
	}
	check(0)
	// One agent implements nothing of what it receives.
	lazy := client.New(with(c.ClientOptions("b"), func(o *client.Options) {
		o.OnChange = func(client.Change) {}
	}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { lazy.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	_, stop := streamtest.StartAgent(t, c.ClientOptions("a"))
	check(1)
	v := view()
	v.Rules[0].Groups = []string{"a", "b"}
	c.Set("a", v)
	check(1)
	for lazy.Status().Version == 0 {
		time.Sleep(time.Millisecond)
	}
	lazy.Programmed(1)
	check(2)
	stop()
	check(1)
}

// pair starts two controllers of one authority, which have a view for each of the nodes a and b.
func pair(t *testing.T) (first, second *streamtest.Controller) {
	t.Helper()
	authority, err := streamtest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	first, second = start(t, authority), start(t, authority)
	for _, c := range []*streamtest.Controller{first, second} {
		c.Set("a", view())
		c.Set("b", view())
	}
	return first, second
}

// follow has each controller receive what the other's agents report.
func follow(t *testing.T, first, second *streamtest.Controller) {
	first.Follow(t, first, second)
	second.Follow(t, first, second)
}

// Two controllers add up what their agents say.
func TestProgrammedElsewhere(t *testing.T) {
	first, second := pair(t)
	follow(t, first, second)
	streamtest.StartAgent(t, first.ClientOptions("a"))
	_, stop := streamtest.StartAgent(t, second.ClientOptions("b"))
	check := func(want int) {
		t.Helper()
		timeout := time.After(20 * time.Second)
		for _, c := range []*streamtest.Controller{first, second} {
			for c.Hub.ProgrammedNodes(ofPolicy("web")) != (server.ProgrammedNodes{Wanted: 2, Programmed: want}) {
				select {
				case <-c.Hub.ProgrammedChanged():
				case <-timeout:
					t.Fatalf("controller %s: %+v, want %d of 2", c.Address, c.Hub.ProgrammedNodes(ofPolicy("web")), want)
				}
			}
		}
	}
	check(2)
	stop()
	check(1)
}

// What an agent says is refused is known to all controllers as of its node, as long as it says so,
// and is not counted as in effect.
func TestRefused(t *testing.T) {
	first, second := pair(t)
	follow(t, first, second)
	a, _ := streamtest.StartAgent(t, first.ClientOptions("a"))
	b, stop := streamtest.StartAgent(t, second.ClientOptions("b"))
	red := intent.PolicyRef{Kind: intent.PolicyKind(intent.KindNetwork), Name: "red"}
	check := func(what string, programmed int, want map[intent.PolicyRef][]server.NodeRefusal) {
		t.Helper()
		timeout := time.After(20 * time.Second)
		for _, c := range []*streamtest.Controller{first, second} {
			for c.Hub.ProgrammedNodes(ofPolicy("web")).Programmed != programmed || !cmp.Equal(c.Hub.Refused(), want) {
				select {
				case <-c.Hub.ProgrammedChanged():
				case <-c.Hub.RefusedChanged():
				case <-timeout:
					t.Fatalf("%s: controller %s: %+v, refused %v, want %v", what, c.Address, c.Hub.ProgrammedNodes(ofPolicy("web")),
						c.Hub.Refused(), want)
				}
			}
		}
	}
	type refused = map[intent.PolicyRef][]server.NodeRefusal
	check("nothing is refused", 2, refused{})
	web := policy.Refusal{Object: ofPolicy("web"), Reason: "BAD"}
	a.Refused([]policy.Refusal{web, {Object: red, Reason: "WORSE"}, {Object: ofPolicy("of-no-pod-here"), Reason: "BAD"}})
	check("by one node", 1, refused{ofPolicy("web"): {{Node: "a", Reason: "BAD"}}, red: {{Node: "a", Reason: "WORSE"}}})
	b.Refused([]policy.Refusal{web})
	check("by two", 0, refused{
		ofPolicy("web"): {{Node: "a", Reason: "BAD"}, {Node: "b", Reason: "BAD"}}, red: {{Node: "a", Reason: "WORSE"}},
	})
	a.Refused([]policy.Refusal{web})
	check("less of one", 0, refused{ofPolicy("web"): {{Node: "a", Reason: "BAD"}, {Node: "b", Reason: "BAD"}}})
	stop()
	check("and one has left", 0, refused{ofPolicy("web"): {{Node: "a", Reason: "BAD"}}})
	b, stop = streamtest.StartAgent(t, second.ClientOptions("b"))
	b.Refused([]policy.Refusal{web})
	check("and is back", 0, refused{ofPolicy("web"): {{Node: "a", Reason: "BAD"}, {Node: "b", Reason: "BAD"}}})
	// Another controller gets reports of the same agent.
	second.Hub.SetBehind("a test")
	second.Hub.SetBehind("")
	check("and has moved", 0, refused{ofPolicy("web"): {{Node: "a", Reason: "BAD"}, {Node: "b", Reason: "BAD"}}})
	a.Refused(nil)
	b.Refused(nil)
	check("nothing again", 2, refused{})
	stop()
}

// What a central system does not do counts on no node, and for all kinds, with what nodes refuse.
func TestUnsupported(t *testing.T) {
	c := streamtest.Start(t)
	c.Set("a", view())
	a, _ := streamtest.StartAgent(t, c.ClientOptions("a"))
	out := intent.PolicyRef{Kind: intent.PolicyKind(intent.KindEgress), Name: "out"}
	check := func(want map[intent.PolicyRef][]server.NodeRefusal) {
		t.Helper()
		timeout := time.After(20 * time.Second)
		for !cmp.Equal(c.Hub.Refused(), want) {
			select {
			case <-c.Hub.RefusedChanged():
			case <-timeout:
				t.Fatalf("refused %v, want %v", c.Hub.Refused(), want)
			}
		}
	}
	c.Hub.SetUnsupported(map[intent.PolicyRef]string{out: "no Egresses", ofPolicy("web"): "too many rules"})
	check(map[intent.PolicyRef][]server.NodeRefusal{
		out: {{Reason: "no Egresses"}}, ofPolicy("web"): {{Reason: "too many rules"}},
	})
	// What writes the conditions of policies waits for this one.
	select {
	case <-c.Hub.ProgrammedChanged():
	case <-time.After(20 * time.Second):
		t.Error("ProgrammedChanged has no element")
	}
	a.Refused([]policy.Refusal{{Object: ofPolicy("web"), Reason: "BAD"}})
	check(map[intent.PolicyRef][]server.NodeRefusal{
		out: {{Reason: "no Egresses"}}, ofPolicy("web"): {{Reason: "too many rules"}, {Node: "a", Reason: "BAD"}},
	})
	c.Hub.SetUnsupported(nil)
	check(map[intent.PolicyRef][]server.NodeRefusal{ofPolicy("web"): {{Node: "a", Reason: "BAD"}}})
}

// A controller that has an address of each family is one.
func TestProgrammedAtTwoAddresses(t *testing.T) {
	first, second := pair(t)
	again := *second
	again.Address = strings.Replace(second.Address, "127.0.0.1", "[::ffff:127.0.0.1]", 1)
	first.Follow(t, second, &again)
	streamtest.StartAgent(t, second.ClientOptions("b"))
	// The second address may come with the first, or after it.
	timeout, late := time.After(20*time.Second), (<-chan time.Time)(nil)
	for {
		switch r := first.Hub.ProgrammedNodes(ofPolicy("web")); {
		case r.Programmed > 1:
			t.Fatalf("%+v: one agent counts twice", r)
		case r.Programmed == 1 && late == nil:
			late = time.After(300 * time.Millisecond)
		}
		select {
		case <-first.Hub.ProgrammedChanged():
		case <-late:
			return
		case <-timeout:
			t.Fatal("the other controller is not heard")
		}
	}
}

// All controllers receive a pod that an agent of one has attached, and its node.
func TestAttached(t *testing.T) {
	first, second := pair(t)
	heard := map[*streamtest.Controller]chan server.NodeAttachment{}
	for _, c := range []*streamtest.Controller{first, second} {
		heard[c] = make(chan server.NodeAttachment, 10)
		c.Hub.OnAttached = func(a server.NodeAttachment) { heard[c] <- a }
	}
	follow(t, first, second)
	agent := streamtest.NewAgent(first.ClientOptions("a"))
	want := server.NodeAttachment{Node: "a", Attachment: policy.Attachment{
		Namespace: "default", Name: "web", Subject: intent.PodSubject("2"), Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")},
	}}
	agent.Attached(want.Attachment) // before there is a stream
	expect := func(c *streamtest.Controller) {
		t.Helper()
		select {
		case got := <-heard[c]:
			if !cmp.Equal(got, want, compareAddresses) {
				t.Errorf("%+v, want %+v", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("controller %s has not heard of the pod", c.Address)
		}
	}
	// Second has to follow first before first receives anything that it is to pass on.
	streamtest.StartAgent(t, first.ClientOptions("b"))
	for second.Hub.ProgrammedNodes(ofPolicy("web")).Programmed == 0 {
		<-second.Hub.ProgrammedChanged()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { agent.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	expect(first)
	expect(second)
	want.Name = "web2"
	agent.Attached(want.Attachment)
	expect(first)
	expect(second)
	// What makes no sense ends the stream, and the next one is as good as the first.
	agent.Attached(policy.Attachment{Namespace: "default"})
	agent.Await(t, "another stream", func() bool { return agent.Status().Streams == 2 })
	agent.Attached(want.Attachment)
	expect(first)
	expect(second)
}

// A node without pods has an empty view, which is in effect like others.
func TestEmptyView(t *testing.T) {
	c := streamtest.Start(t)
	a, _ := streamtest.StartAgent(t, c.ClientOptions("a"))
	a.Await(t, "a stream", func() bool { return a.Status().Complete })
	c.Set("a", view())
	a.Await(t, "its first pod", has(a, view()))
	timeout := time.After(10 * time.Second)
	for c.Hub.ProgrammedNodes(ofPolicy("web")).Programmed != 1 {
		select {
		case <-c.Hub.ProgrammedChanged():
		case <-timeout:
			t.Fatal("its policy is not in effect")
		}
	}
	if s := a.Status(); s.Streams != 1 {
		t.Errorf("%d streams: %s", s.Streams, s.LastError)
	}
}
