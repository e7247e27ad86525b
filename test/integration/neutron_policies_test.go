// SPDX-License-Identifier: Apache-2.0

//go:build neutron && integration

package integration

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/test/lab"
	"coelan.io/coelan/test/lab/probe"
)

// TestNeutronPolicies has a real Neutron enforce policies by security groups.
func TestNeutronPolicies(t *testing.T) {
	l := lab.New(t, lab.Options{Neutron: true, Policies: true})
	w := &world{Lab: l, n1: l.Nodes[0], n2: l.Nodes[1]}
	w.a, w.b = addPodAs(t, w.n1, lab.PodSpec{Name: "a"}), addPodAs(t, w.n1, lab.PodSpec{Name: "b"})
	w.c, w.d = addPodAs(t, w.n2, lab.PodSpec{Name: "c"}), addPodAs(t, w.n2, lab.PodSpec{Name: "d"})
	for _, p := range []*lab.Pod{w.a, w.c} {
		for f := range lab.Dual.Each {
			for _, port := range []uint16{8080, 8081} {
				serve(t, p, netip.AddrPortFrom(p.Address(f), port), probe.WhoAmI)
			}
		}
	}
	t.Run("closed until known", func(t *testing.T) {
		for f := range lab.Dual.Each {
			comesTo(t, f.String()+" from another node", unreached(w.a, serverOf(w.c, f, 8080)))
			comesTo(t, f.String()+" from the pod's own node", reaches(w.n1, serverOf(w.a, f, 8080)))
		}
	})
	b := newRulebook(w, w.a, w.b, w.c, w.d)
	b.publish(t)
	for f := range lab.Dual.Each {
		comesTo(t, f.String()+" open", reaches(w.a, serverOf(w.c, f, 8080)))
	}
	t.Run("one policy", func(t *testing.T) { neutronPolicy(t, w, b) })
	t.Run("peers come and go", func(t *testing.T) { neutronPeers(t, w, b) })
	t.Run("by hand", func(t *testing.T) { neutronRulesByHand(t, w, b) })
	t.Run("namespace", func(t *testing.T) { neutronNamespace(t, w, b) })
	t.Run("without northd", func(t *testing.T) { neutronWithoutNorthd(t, w) })

	for _, p := range []*lab.Pod{w.a, w.b, w.c, w.d} {
		b.open(p)
	}
	b.publish(t)
	comesTo(t, "open again", reaches(w.d, serverOf(w.a, lab.IPv4, 8080)))
	var left []string
	poll(t.Context(), t, func() bool { left = neutronGroups(t, w); return len(left) == 0 },
		func() { t.Errorf("groups are left: %v", left) })
	poll(t.Context(), t, func() bool { return len(w.Neutron.Unsupported()) == 0 },
		func() { t.Errorf("not done: %v", w.Neutron.Unsupported()) })
}

func serverOf(p *lab.Pod, f lab.Family, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(p.Address(f), port)
}

// comesTo waits for minutes: each group and each rule is a call of Neutron, which takes a second on
// a busy machine.
func comesTo(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	becomesWithin(t, 2*time.Minute, what, check)
}

// neutronGroups are the names of the security groups of policies and their peers, neutronRules how
// many rules they have.
func neutronGroups(t *testing.T, w *world) (names []string) {
	t.Helper()
	groups, _ := neutronCall(t, w, "GET", "security-groups", "")["security_groups"].([]any)
	for _, g := range groups {
		name, _ := g.(map[string]any)["name"].(string)
		if strings.HasPrefix(name, "NetworkPolicy ") || strings.HasPrefix(name, "peers-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func neutronRules(t *testing.T, w *world) (n int) {
	t.Helper()
	groups, _ := neutronCall(t, w, "GET", "security-groups", "")["security_groups"].([]any)
	for _, g := range groups {
		name, _ := g.(map[string]any)["name"].(string)
		if rules, _ := g.(map[string]any)["security_group_rules"].([]any); strings.HasPrefix(name, "NetworkPolicy ") {
			n += len(rules)
		}
	}
	return n
}

// A policy lets one pod reach one port, and then another one; the pod's own node always reaches it.
func neutronPolicy(t *testing.T, w *world, b *rulebook) {
	for _, port := range []uint16{8080, 8081} {
		b.isolate(w.c, intent.Ingress, intent.Rule{Groups: b.group("b", w.b), Ports: tcpPort(port, port)})
		b.publish(t)
		other := 8080 + 8081 - port
		for f := range lab.Dual.Each {
			comesTo(t, fmt.Sprint(f, " from the peer to ", port), reaches(w.b, serverOf(w.c, f, port)))
			comesTo(t, fmt.Sprint(f, " from another to ", port), unreached(w.a, serverOf(w.c, f, port)))
			comesTo(t, fmt.Sprint(f, " from the peer to ", other), unreached(w.b, serverOf(w.c, f, other)))
			comesTo(t, f.String()+" from the node", reaches(w.n2, serverOf(w.c, f, other)))
			comesTo(t, f.String()+" what it sends", reaches(w.c, serverOf(w.a, f, port)))
		}
	}
	group := neutronOne(t, w, "security-groups", "name=NetworkPolicy%20lab/web-deny")
	if group["description"] != "coelan/Policy/NetworkPolicy lab/web-deny" {
		t.Errorf("group %v", group)
	}
}

// Peers that come and go change no group and no rule.
func neutronPeers(t *testing.T, w *world, b *rulebook) {
	groups, rules := neutronGroups(t, w), neutronRules(t, w)
	b.group("b", w.a, w.b)
	b.publish(t)
	comesTo(t, "another peer", reaches(w.a, serverOf(w.c, lab.IPv4, 8081)))
	e := addPodAs(t, w.n1, lab.PodSpec{Name: "e"})
	b.open(e)
	b.group("b", w.b, e)
	b.publish(t)
	comesTo(t, "a new pod", reaches(e, serverOf(w.c, lab.IPv4, 8081)))
	comesTo(t, "a peer no longer", unreached(w.a, serverOf(w.c, lab.IPv4, 8081)))
	comesTo(t, "a peer still", reaches(w.b, serverOf(w.c, lab.IPv4, 8081)))
	if now := neutronGroups(t, w); !slices.Equal(now, groups) || neutronRules(t, w) != rules {
		t.Errorf("groups were %v and are %v; %d rules were %d", groups, now, neutronRules(t, w), rules)
	}
	delete(b.subjects, e)
	b.group("b", w.b)
	b.publish(t)
	must(t, e.Delete(t.Context()))
}

// A rule that is deleted by hand is made anew, and one that is added is removed.
func neutronRulesByHand(t *testing.T, w *world, _ *rulebook) {
	group := neutronOne(t, w, "security-groups", "name=NetworkPolicy%20lab/web-deny")
	before := neutronRules(t, w)
	for _, r := range group["security_group_rules"].([]any) {
		neutronCall(t, w, "DELETE", "security-group-rules/"+r.(map[string]any)["id"].(string), "")
	}
	neutronCall(t, w, "POST", "security-group-rules", fmt.Sprintf(`{"security_group_rule": {"project_id": %q,
		"security_group_id": %q, "direction": "ingress", "ethertype": "IPv4"}}`, group["project_id"], group["id"]))
	comesTo(t, "open by hand", reaches(w.a, serverOf(w.c, lab.IPv4, 8081)))
	w.Neutron.StopController()
	must(t, w.Neutron.StartController())
	comesTo(t, "closed again", unreached(w.a, serverOf(w.c, lab.IPv4, 8081)))
	for f := range lab.Dual.Each {
		comesTo(t, f.String()+" from the peer", reaches(w.b, serverOf(w.c, f, 8081)))
	}
	if now := neutronRules(t, w); now != before {
		t.Errorf("%d rules were %d", now, before)
	}
}

// Pods of a namespace reach each other, and others do not reach them.
func neutronNamespace(t *testing.T, w *world, b *rulebook) {
	own := b.group("namespace", w.a, w.b, w.c)
	for _, p := range []*lab.Pod{w.a, w.b, w.c} {
		b.isolate(p, intent.Ingress, intent.Rule{Groups: own})
	}
	b.publish(t)
	for f := range lab.Dual.Each {
		comesTo(t, f.String()+" from another node", reaches(w.c, serverOf(w.a, f, 8080)))
		comesTo(t, f.String()+" on the node", reaches(w.b, serverOf(w.a, f, 8080)))
		comesTo(t, f.String()+" back", reaches(w.a, serverOf(w.c, f, 8080)))
		comesTo(t, f.String()+" from outside of it", unreached(w.d, serverOf(w.a, f, 8080)))
		comesTo(t, f.String()+" from outside of it on the node", unreached(w.d, serverOf(w.c, f, 8080)))
	}
}

// Ports that are ready let everything in. One that is to let nothing in comes when OVN knows that.
func neutronWithoutNorthd(t *testing.T, w *world) {
	neutronPorts(t, w)
	w.OVN.Kill(lab.OVNNorthd)
	f, err := w.n1.NewPodAs(lab.PodSpec{Name: "f"})
	must(t, err)
	added, closed := make(chan error, 1), len(neutronClosed(t, w))
	go func() { added <- f.Add(within(t, time.Minute)) }()
	neutronPoll(t, func() bool { return len(neutronClosed(t, w)) > closed },
		func() { t.Errorf("%d ports let nothing in, as before the pod came", closed) })
	select {
	case err := <-added:
		t.Errorf("the pod is there before OVN knows what its port lets in (%v)", err)
		added <- err
	case <-time.After(5 * time.Second):
	}
	must(t, w.OVN.Start(lab.OVNNorthd))
	must(t, <-added)
	for family := range lab.Dual.Each {
		serve(t, f, serverOf(f, family, 8080), probe.WhoAmI)
		comesTo(t, family.String()+" from its node", reaches(w.n1, serverOf(f, family, 8080)))
		must(t, unreached(w.b, serverOf(f, family, 8080))(t.Context()))
	}
	must(t, f.Delete(t.Context()))
}

// neutronClosed are the ports that no group lets everything into.
func neutronClosed(t *testing.T, w *world) (ids []any) {
	t.Helper()
	open := neutronOne(t, w, "security-groups", "name=open-ingress")["id"]
	list, _ := neutronCall(t, w, "GET", "ports", "")["ports"].([]any)
	for _, p := range list {
		port := p.(map[string]any)
		if groups, _ := port["security_groups"].([]any); port["port_security_enabled"] == true && !slices.Contains(groups, open) {
			ids = append(ids, port["id"])
		}
	}
	return ids
}
