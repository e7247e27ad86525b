// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/backend/ovs/quarantine"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/wire"
	"coelan.io/coelan/openflow"
)

// picky is a switch that refuses messages of a test's choice.
type picky struct {
	*bridge.Fake
	mu     sync.Mutex
	refuse func(text string) bool
	// It names only the first of them, as Open vSwitch does of what it finds at a commit.
	first bool
}

func (p *picky) set(first bool, refuse func(text string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse, p.first = refuse, first
}

func (p *picky) Bundle(ctx context.Context, msgs []openflow.Message) error {
	p.mu.Lock()
	refuse, first := p.refuse, p.first
	p.mu.Unlock()
	var errs joined
	for i, m := range msgs {
		if refuse != nil && !deletes(m) && refuse(messageText(m)) {
			errs = append(errs, &openflow.MessageError{Index: i, Message: m, Err: &openflow.Error{Type: 2, Code: 5}})
		}
	}
	switch {
	case len(errs) == 0:
		return p.Fake.Bundle(ctx, msgs)
	case first:
		return errs[0]
	}
	return errs
}

// joined are several errors.
type joined []error

func (j joined) Error() string { return j[0].Error() }

func (j joined) Unwrap() []error { return j }

func deletes(m openflow.Message) bool {
	switch m := m.(type) {
	case *openflow.FlowMod:
		return m.Command == openflow.FlowDeleteStrict
	case *openflow.GroupMod:
		return m.Command == openflow.GroupDelete
	}
	return false
}

func messageText(m openflow.Message) string {
	switch m := m.(type) {
	case *openflow.FlowMod:
		return m.Flow.String()
	case *openflow.GroupMod:
		return m.Group.String()
	}
	return ""
}

// refusals is a backend's flows on a switch that refuses some.
type refusals struct {
	*testing.T
	*Backend
	sw     *picky
	events *eventList
	said   []policy.Refusal // to controllers
}

// eventList keeps Events by what they are about.
type eventList struct{ list []string }

func (l *eventList) PodWarning(namespace, name, _, reason, message string) {
	l.ObjectWarning("", "Pod", namespace, name, reason, message)
}

func (l *eventList) PortWarning(namespace, name, _, reason, message string) {
	l.ObjectWarning("", "Port", namespace, name, reason, message)
}

func (l *eventList) ServiceWarning(namespace, name, _, reason, message string) {
	l.ObjectWarning("", "Service", namespace, name, reason, message)
}

func (l *eventList) NodeWarning(name, _, reason, message string) {
	l.ObjectWarning("", "Node", "", name, reason, message)
}

func (l *eventList) ServiceNotice(string, string, string, string, string) {}

func (l *eventList) ObjectWarning(_, kind, namespace, name, reason, message string) {
	l.list = append(l.list, fmt.Sprintf("%s %s/%s %s: %s", kind, namespace, name, reason, message))
}

const pods = 5

func podAddress(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 244, 1, byte(10 + n)}) }

func testPort(n int) intent.Port {
	return intent.Port{
		ID: fmt.Sprintf("c%d/eth0", n), Namespace: "default", Pod: fmt.Sprintf("pod-%d", n), Interface: "eth0", UID: fmt.Sprintf("uid-%d", n),
		Network: intent.DefaultNetworkName, Node: "n1", MAC: intent.MAC{0x0a, 0xce, 10, 244, 1, byte(10 + n)},
		Addresses: []netip.Addr{podAddress(n)},
	}
}

// testRule has a policy of that name let TCP ports in from anywhere.
func testRule(policy string, ports ...uint16) intent.Rule {
	r := intent.Rule{
		ID:     "NetworkPolicy/default/" + policy + "/ingress/1",
		Policy: intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "default", Name: policy}, Number: 1,
		Direction: intent.Ingress, Tier: intent.NetworkPolicyTier, Action: intent.Allow, AnyPeer: true,
	}
	for _, p := range ports {
		r.Ports = append(r.Ports, intent.PortRange{Protocol: 6, First: p, Last: p})
	}
	return r
}

// testSubject is governed by rules.
func testSubject(n int, rules ...intent.Rule) intent.Subject {
	s := intent.Subject{Key: testPort(n).SubjectKey()}
	for _, r := range rules {
		s.Rules = append(s.Rules, r.ID)
		s.IngressIsolation = append(s.IngressIsolation, r.Policy)
	}
	slices.Sort(s.Rules)
	return s
}

func testService(n int) intent.NodeService {
	return intent.NodeService{
		Namespace: "default", Name: fmt.Sprintf("svc-%d", n), UID: fmt.Sprintf("suid-%d", n), Router: intent.DefaultRouterName,
		Ports: []intent.NodeServicePort{{
			Protocol: intent.TCP, Port: 80, ClusterIP: netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)}),
			Endpoints: []intent.Endpoint{{Address: podAddress(0), Port: 8080}},
		}},
	}
}

func newRefusals(t *testing.T) *refusals {
	t.Helper()
	r := &refusals{T: t, sw: &picky{Fake: bridge.NewFake()}, events: &eventList{}}
	b := testBackend(t, r.events)
	for n := range 2 * pods {
		b.numbers.set(testPort(n).ID, uint32(20+n)) //nolint:gosec // a few
	}
	b.flows.neighbourRate = 0 // meters are in no bundle
	b.flows.leftOut = func(list []quarantine.Entry) { r.said = refusalsOf(list) }
	b.flows.begin, b.flows.synced = func(context.Context) {}, func(context.Context) error { return nil }
	b.flows.bridge = bridge.New(bridge.Options{
		Connect: func(context.Context) (bridge.Switch, error) { return r.sw, nil }, Learned: pipeline.Learned,
	})
	r.Backend = b
	r.update(func(tx *intent.Tx) {
		tx.Replace(intent.Objects{
			Local: intent.Local{
				Node: "n1", Datapath: intent.DatapathNetdev, Encapsulation: intent.VXLAN, TunnelIP: netip.MustParseAddr("192.0.2.1"),
				MTU: 1450, ServiceMode: intent.NativeServices, PolicyMode: intent.EnforcedPolicies,
			},
			Routers: []intent.Router{{Name: intent.DefaultRouterName, ID: intent.DefaultRouter, Shared: true, VNI: 1}},
			Networks: []intent.Network{
				{Name: intent.DefaultNetworkName, ID: intent.DefaultNetwork, VNI: 1, Router: intent.DefaultRouterName},
			},
			Nodes: []intent.Node{{
				Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
				Subnets: []intent.Subnet{{
					Network: intent.DefaultNetworkName, Prefix: netip.MustParsePrefix("10.244.1.0/24"),
					Gateway: netip.MustParseAddr("10.244.1.1"),
				}},
			}},
		})
		for n := range pods {
			tx.SetPort(testPort(n))
			tx.SetSubject(testSubject(n))
		}
	})
	r.must(r.sync())
	return r
}

func (r *refusals) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *refusals) update(change func(*intent.Tx)) *intent.State {
	r.Helper()
	s, err := r.Intent.Update(func(tx *intent.Tx) error { change(tx); return nil })
	r.must(err)
	return s
}

func (r *refusals) sync() error { return r.flows.sync(r.Context(), r.Intent.State()) }

// without fails unless the switch has all flows but those of these objects, and these are the ones
// reported.
func (r *refusals) without(refs ...intent.Ref) {
	r.Helper()
	var got []intent.Ref
	out := map[intent.Ref]string{}
	for _, e := range r.flows.quarantine.List() {
		got = append(got, e.Object)
		out[e.Object] = "the switch refuses " + e.Object.String() + ": " + e.Err
	}
	slices.SortFunc(refs, intent.Ref.Compare)
	slices.SortFunc(got, intent.Ref.Compare)
	if diff := cmp.Diff(refs, got); diff != "" {
		r.Errorf("left out (-want +got):\n%s", diff)
	}
	want := bridge.NewFake()
	b := bridge.New(bridge.Options{Connect: want.Connect, Learned: pipeline.Learned})
	_, err := b.Sync(r.Context(), pipeline.Desired(pipeline.Input{State: r.Intent.State().Without(out), Numbers: r.numbers.get()}))
	r.must(err)
	if diff := cmp.Diff(want.Text(), r.sw.Text()); diff != "" {
		r.Errorf("flows (-want +got):\n%s", diff)
	}
	var said, conditioned []intent.Ref
	for _, o := range r.said {
		said = append(said, intent.Ref{Kind: intent.Kind(o.Object.Kind), Key: o.Object.Ref().Key})
		if o.Reason == "" {
			r.Errorf("controllers get no reason for %s", o.Object)
		}
	}
	for _, ref := range refs {
		if wire.Refusable(intent.PolicyKind(ref.Kind)) {
			conditioned = append(conditioned, ref)
		}
	}
	if !slices.Equal(said, conditioned) {
		r.Errorf("controllers are told that %v are refused, want %v", said, conditioned)
	}
	if len(refs) != len(r.Backend.refusals.list()) {
		r.Errorf("status has %d refused objects, want %d", len(r.Backend.refusals.list()), len(refs))
	}
	registry, sum := prometheus.NewRegistry(), 0.0
	r.must(registry.Register(&refusedCollector{r.flows.quarantine}))
	families, err := registry.Gather()
	r.must(err)
	for _, m := range families[0].GetMetric() {
		sum += m.GetGauge().GetValue()
	}
	if int(sum) != len(refs) {
		r.Errorf("coelan_refused_objects is %v, want %d", sum, len(refs))
	}
}

// event fails unless there is one about the object that has the switch's error.
func (r *refusals) event(about string) {
	r.Helper()
	if !slices.ContainsFunc(r.events.list, func(e string) bool {
		return strings.HasPrefix(e, about+" RefusedBySwitch: node n1: the switch refuses it: OFPBAC_BAD_ARGUMENT")
	}) {
		r.Errorf("no event about %s in:\n%s", about, strings.Join(r.events.list, "\n"))
	}
}

// has refuses what has one of these texts.
func has(texts ...string) func(string) bool {
	return func(rule string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(rule, text) })
	}
}

func policyNamed(name string) intent.Ref {
	return intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "default", Name: name}.Ref()
}
