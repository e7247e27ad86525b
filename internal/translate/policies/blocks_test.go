// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/translate"
)

// Every address is in exactly one prefix of what is left, or in none if it was excepted.
func TestWithout(t *testing.T) {
	prefix := func(t *rapid.T, name string, base byte, least int) netip.Prefix {
		var a [16]byte
		a[0], a[15] = base, rapid.Byte().Draw(t, name)
		if rapid.Bool().Draw(t, name+" by half") {
			a[14] = 1
		}
		bits := rapid.IntRange(least, 128).Draw(t, name+" bits")
		return netip.PrefixFrom(netip.AddrFrom16(a), bits).Masked()
	}
	rapid.Check(t, func(t *rapid.T) {
		of := prefix(t, "prefix", 0xfd, 112)
		var excepted []netip.Prefix
		for i := range rapid.IntRange(0, 6).Draw(t, "count") {
			excepted = append(excepted, prefix(t, fmt.Sprint("except ", i), 0xfd, 116))
		}
		left, ok := without(of, excepted, maxBlocks)
		if !ok {
			t.Fatal("too many")
		}
		for range 50 {
			var a [16]byte
			a[0], a[14], a[15] = 0xfd, rapid.ByteRange(0, 2).Draw(t, "byte"), rapid.Byte().Draw(t, "address")
			address := netip.AddrFrom16(a)
			want := 0
			if of.Contains(address) && !slices.ContainsFunc(excepted, func(p netip.Prefix) bool { return p.Contains(address) }) {
				want = 1
			}
			got := 0
			for _, p := range left {
				if p.Contains(address) {
					got++
				}
			}
			if got != want {
				t.Fatalf("%s is in %d of %v, want %d: %s without %v", address, got, left, want, of, excepted)
			}
		}
		if !slices.IsSortedFunc(left, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) }) {
			t.Fatalf("not in order: %v", left)
		}
	})
}

// Nothing is left of a prefix without itself, also of a single address.
func TestWithoutAll(t *testing.T) {
	for _, text := range []string{"10.0.0.1/32", "fd00::1/128", "0.0.0.0/0", "::/0", "10.0.0.0/31"} {
		p := netip.MustParsePrefix(text)
		if left, ok := without(p, []netip.Prefix{p}, maxBlocks); len(left) > 0 || !ok {
			t.Errorf("%s: %v, %v", p, left, ok)
		}
	}
}

// A policy may name 10,000 addresses. What makes more prefixes than there may be allows nothing,
// and nothing else is lost.
func TestManyAddresses(t *testing.T) {
	o := &networkingv1.NetworkPolicy{}
	o.Namespace, o.Name = "shop", "many"
	peers := func(count int, except ...string) (list []networkingv1.NetworkPolicyPeer) {
		for i := range count {
			list = append(list, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("10.%d.%d.1/32", i/256, i%256)}})
		}
		if len(except) > 0 {
			list = append(list, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "fd00::/8", Except: except}})
		}
		return list
	}
	o.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: peers(10_000)}}
	p, problems := NetworkPolicy(o)
	if len(problems) > 0 || len(p.Rules[0].Blocks) != 10_000 {
		t.Fatalf("%d blocks, problems %v", len(p.Rules[0].Blocks), problems)
	}
	var except []string
	for i := range 10_000 {
		except = append(except, fmt.Sprintf("fd00:%x::5/128", i))
	}
	o.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: peers(5, except...)}, {From: peers(7)}}
	p, problems = NetworkPolicy(o)
	if len(problems) != 1 || problems[0].Reason != translate.TooMany || len(p.Rules[0].Blocks) != 5 || len(p.Rules[1].Blocks) != 7 {
		t.Fatalf("%d and %d blocks, problems %v", len(p.Rules[0].Blocks), len(p.Rules[1].Blocks), problems)
	}
}

// checkPolicy says what is true of every Policy.
func checkPolicy(t interface{ Fatalf(string, ...any) }, p policy.Policy, problems []translate.Problem) {
	type place struct {
		direction any
		number    int
	}
	seen := map[place]bool{}
	for _, r := range p.Rules {
		if at := (place{r.Direction, r.Number}); seen[at] || r.Number < 1 {
			t.Fatalf("two rules %v: %+v", at, p)
		} else {
			seen[at] = true
		}
		for i, b := range r.Blocks {
			if b != b.Masked() || b.Addr().Is4In6() || i > 0 && (r.Blocks[i-1].Overlaps(b) || r.Blocks[i-1].Addr().Compare(b.Addr()) >= 0) {
				t.Fatalf("blocks %v", r.Blocks)
			}
		}
		for _, port := range r.Ports {
			if port.Name == "" && !port.ICMP && port.First > port.Last {
				t.Fatalf("ports %+v", r.Ports)
			}
		}
		for _, s := range r.Peers {
			if s.Nodes == nil && s.SecurityGroup == "" && (s.Pods == nil || s.Namespace == "" && s.Namespaces == nil) {
				t.Fatalf("selector %+v", s)
			}
		}
		if r.Closed != "" && len(problems) == 0 {
			t.Fatalf("closed without a problem: %+v", r)
		}
	}
	if p.Priority > maxClusterPriority {
		t.Fatalf("priority %d", p.Priority)
	}
	for _, problem := range problems {
		if problem.Object == "" || problem.Field == "" || problem.Reason == "" || problem.Text == "" {
			t.Fatalf("a problem says too little: %+v", problem)
		}
	}
}
