// SPDX-License-Identifier: Apache-2.0

//go:build integration

package backend

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// TestBackendOVSPolicies and TestBackendOVNPolicies are what each enforces.
func TestBackendOVSPolicies(t *testing.T) { policies(t, config.OVSBackend) }

func TestBackendOVNPolicies(t *testing.T) { policies(t, config.OVNBackend) }

// The policies of the cases. All rules of a case are theirs.
var (
	network  = intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "lab", Name: "network"}
	cluster  = intent.PolicyRef{Kind: intent.ClusterNetworkPolicy, Name: "cluster"}
	security = intent.PolicyRef{Kind: intent.SecurityGroup, Namespace: "lab", Name: "security"}
)

// governed is what policies say of a pod.
type governed struct {
	pod             *lab.Pod
	rules           []intent.Rule
	ingress, egress bool // isolated by network
	security        bool
	closed          string
}

// attempt is to reach something; it fails if there is no answer.
type attempt struct {
	name string
	try  func(ctx context.Context, f lab.Family) error
}

// policyCase leaves pods open that it does not name.
type policyCase struct {
	name            string
	pods            []governed
	denied, allowed []attempt
}

// answers bounds the wait for an answer that may not come.
const answers = 300 * time.Millisecond

// policies judge by each kind of match: what does not fit is denied, so a match that a backend
// takes and ignores, or that never fits, fails a case.
func policies(t *testing.T, backend config.BackendType) {
	o := optionsOf(backend)
	o.Policies = true
	l := lab.New(t, o)
	w := &world{Lab: l, backend: backend, n1: l.Nodes[0], n2: l.Nodes[1]}
	w.a, w.b, w.c = w.pod(t, w.n1, "lab", "a"), w.pod(t, w.n1, "lab", "b"), w.pod(t, w.n2, "lab", "c")
	for _, p := range []*lab.Pod{w.a, w.b, w.c} {
		for f := range lab.Dual.Each {
			for _, port := range []uint16{8080, 8081, 8082} {
				server, err := probe.Serve(p, netip.AddrPortFrom(p.Address(f), port), probe.WhoAmI)
				must(t, err)
				t.Cleanup(server.Close)
			}
		}
	}
	w.service("lab", "of-b", 60, nil, podEndpoints(w.b)...)
	w.service("lab", "of-c", 61, nil, podEndpoints(w.c)...)
	closed := []attempt{tcp(w.a.Host, w.b, 8080), tcp(w.a.Host, w.c, 8080)}
	for f := range lab.Dual.Each {
		denied(t, f, "before policies are known", closed)
	}
	w.judge(t, nil)
	for f := range lab.Dual.Each {
		allowed(t, f, "without policies", closed)
	}
	cases := slices.Concat(w.peerCases(), w.portCases(), w.egressCases(), w.tierCases())
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w.judge(t, c.pods)
			if closed, is := neutronCloses[c.name]; is && w.Neutron != nil {
				c.denied, c.allowed = slices.Concat(c.denied, c.allowed), nil
				w.refuses(t, closed)
			}
			for f := range lab.Dual.Each {
				denied(t, f, c.name, c.denied)
				allowed(t, f, c.name, c.allowed)
			}
		})
	}
	w.judge(t, nil)
	for f := range lab.Dual.Each {
		allowed(t, f, "without policies again", closed)
	}
	if w.Neutron != nil {
		w.refuses(t, refusal{})
	}
}

// refusal is what Neutron says of the one policy that it does not enforce as it is; none: it
// enforces all.
type refusal struct {
	policy intent.PolicyRef
	says   string
}

// neutronCloses are the cases in which Neutron closes the pods, and says so of a policy: its
// security groups only allow, in no order, and what any group of a port allows passes.
var neutronCloses = map[string]refusal{
	"Admin denies":                        {cluster, "security groups of Neutron only allow"},
	"Admin passes":                        {cluster, "security groups of Neutron only allow"},
	"Baseline denies":                     {cluster, "security groups of Neutron only allow"},
	"a SecurityGroup and a NetworkPolicy": {security, "both a SecurityGroup and another policy"},
}

func (w *world) refuses(t *testing.T, want refusal) {
	t.Helper()
	eventually(t, "what Neutron does not enforce", func(context.Context) error {
		now := w.Neutron.Unsupported()
		alone := len(now) == 1 && want.says != "" || len(now) == 0 && want.says == ""
		if !alone || !strings.Contains(now[want.policy], want.says) {
			return fmt.Errorf("it is %v, want %q of %s alone", now, want.says, want.policy)
		}
		return nil
	})
}

func denied(t *testing.T, f lab.Family, what string, list []attempt) {
	t.Helper()
	for _, a := range list {
		eventually(t, fmt.Sprintf("%s %s: denied: %s", f, what, a.name), func(ctx context.Context) error {
			brief, cancel := context.WithTimeout(ctx, answers)
			defer cancel()
			if err := a.try(brief, f); err == nil {
				return errors.New("there is an answer")
			}
			return ctx.Err() // at the end, nothing has been tried
		})
	}
}

func allowed(t *testing.T, f lab.Family, what string, list []attempt) {
	t.Helper()
	for _, a := range list {
		eventually(t, fmt.Sprintf("%s %s: allowed: %s", f, what, a.name), func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			return a.try(ctx, f)
		})
	}
}

// judge publishes what policies say of pods, all of which are peers in a group of their name.
func (w *world) judge(t *testing.T, pods []governed) {
	t.Helper()
	views := map[string]lab.PolicyView{}
	for _, n := range w.Nodes {
		views[n.Name] = lab.PolicyView{}
	}
	for _, p := range []*lab.Pod{w.a, w.b, w.c} {
		g := governed{pod: p}
		if i := slices.IndexFunc(pods, func(g governed) bool { return g.pod == p }); i >= 0 {
			g = pods[i]
		}
		v := views[p.Node.Name]
		g.addTo(&v)
		for _, peer := range []*lab.Pod{w.a, w.b, w.c} {
			used := slices.ContainsFunc(v.Rules, func(r intent.Rule) bool { return slices.Contains(r.Groups, peer.Name) })
			known := slices.ContainsFunc(v.Peers, func(k intent.Peer) bool { return k.Address == peer.Address(lab.IPv4) })
			for f := range lab.Dual.Each {
				if used && !known {
					v.Peers = append(v.Peers, intent.Peer{
						Space: intent.DefaultRouterName, Address: peer.Address(f), Groups: []string{peer.Name},
					})
				}
			}
		}
		views[p.Node.Name] = v
	}
	ctx, cancel := context.WithTimeout(t.Context(), comeAbout)
	defer cancel()
	must(t, w.PublishPolicies(ctx, views))
}

// addTo adds a pod's subject and rules to what its node has to know.
func (g governed) addTo(v *lab.PolicyView) {
	s := intent.Subject{Key: intent.PodSubject(g.pod.UID), Closed: g.closed}
	if g.ingress {
		s.IngressIsolation = []intent.PolicyRef{network}
	}
	if g.egress {
		s.EgressIsolation = []intent.PolicyRef{network}
	}
	if g.security {
		s.SecurityGroups = []intent.PolicyRef{security}
	}
	for _, r := range g.rules {
		s.Rules = append(s.Rules, r.ID)
		if !slices.ContainsFunc(v.Rules, func(k intent.Rule) bool { return k.ID == r.ID }) {
			v.Rules = append(v.Rules, r)
		}
	}
	slices.Sort(s.Rules)
	v.Subjects = append(v.Subjects, s)
}

// rule is one of network that allows; change makes another of it.
func rule(number int, d intent.Direction, change func(*intent.Rule)) intent.Rule {
	r := intent.Rule{
		Policy: network, Number: number, Direction: d, Tier: intent.NetworkPolicyTier, Action: intent.Allow,
	}
	change(&r)
	direction := "ingress"
	if r.Direction == intent.Egress {
		direction = "egress"
	}
	r.ID = fmt.Sprintf("%s/%s/%s/%s/%d%s", r.Policy.Kind, r.Policy.Namespace, r.Policy.Name, direction, number, r.ID)
	return r
}

// of allows pods, or those of another policy's rule.
func of(pods ...*lab.Pod) func(*intent.Rule) {
	return func(r *intent.Rule) {
		for _, p := range pods {
			r.Groups = append(r.Groups, p.Name)
		}
		slices.Sort(r.Groups)
	}
}

func anyone(r *intent.Rule) { r.AnyPeer = true }

// ports narrows a rule.
func ports(peers func(*intent.Rule), list ...intent.PortRange) func(*intent.Rule) {
	return func(r *intent.Rule) { peers(r); r.Ports = list }
}

func portRange(p intent.Protocol, first, last uint16) intent.PortRange {
	return intent.PortRange{Protocol: uint8(p), First: first, Last: last}
}

func tcp(from *lab.Host, to *lab.Pod, port uint16) attempt {
	return tcpAt(fmt.Sprintf("%s at port %d", to.Name, port), from,
		func(f lab.Family) netip.AddrPort { return netip.AddrPortFrom(to.Address(f), port) })
}

func tcpAt(what string, from *lab.Host, at func(lab.Family) netip.AddrPort) attempt {
	return attempt{from.Name + " to " + what, func(ctx context.Context, f lab.Family) error {
		_, err := probe.Seen(ctx, from, at(f))
		return err
	}}
}

func udp(from, to *lab.Pod, port uint16) attempt {
	return attempt{fmt.Sprintf("%s to %s at UDP port %d", from.Name, to.Name, port), func(ctx context.Context, f lab.Family) error {
		at := netip.AddrPortFrom(to.Address(f), port)
		_, err := probe.AskUDP(ctx, from, to, at, at, "?")
		return err
	}}
}

func ping(from, to *lab.Pod) attempt {
	return attempt{from.Name + " pings " + to.Name, func(ctx context.Context, f lab.Family) error {
		r, err := (probe.Ping{Dst: to.Address(f), Count: 1}).Run(ctx, from)
		if err == nil && r.Lost() > 0 {
			err = errors.New("no answer")
		}
		return err
	}}
}
