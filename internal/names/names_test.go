// SPDX-License-Identifier: Apache-2.0

package names

import (
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/translate/translatetest"
)

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 63)
	node := strings.Repeat("n.", 126) + "n"
	for _, c := range []struct{ name, got, want string }{
		{"router", NamespaceRouter("shop"), "ns-shop"},
		{"network", NamespaceNetwork("shop", "worker1"), "ns-shop-worker1"},
		{"network, node with a dash", NamespaceNetwork("shop", "worker-1"), "ns-shop-worker-1"},
		{"network, namespace with a dash", NamespaceNetwork("web-shop", "worker1"), "ns-web-shop-worker1-" + digest("web-shop", "worker1")},
		{"router, cut", NamespaceRouter(long), "ns-" + long[:47] + "-" + digest(long)},
		{"network, cut at a dot", NamespaceNetwork("shop", node), "ns-shop-" + strings.Repeat("n.", 20) + "n-" + digest("shop", node)},
		{"IPv4 block", BlockName("blue", netip.MustParsePrefix("10.1.2.64/26")), "blue-10-1-2-64-26"},
		{"IPv4 block, not masked", BlockName("blue", netip.MustParsePrefix("10.1.2.65/26")), "blue-10-1-2-64-26"},
		{"IPv6 block", BlockName("blue", netip.MustParsePrefix("fd00:10::40/122")), "blue-fd00-0010-0000-0000-0000-0000-0000-0040-122"},
		{"single address", BlockName("blue", netip.MustParsePrefix("10.1.2.3/32")), "blue-10-1-2-3-32"},
		{"label", LabelValue("worker1.example.net"), "worker1.example.net"},
		{"long label", LabelValue(node), strings.Repeat("n.", 24) + "n" + "-" + digest(node)},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.name, c.got, c.want)
		}
	}
}

// The generators favor what could be confused: dashes, digits and hexadecimal letters, and names
// at their longest.
var (
	dnsLabel     = rapid.StringMatching(`[a-b0-1]([a-b0-1-]{0,4}[a-b0-1])?|[a-b]{60,63}`)
	dnsSubdomain = rapid.Custom(func(t *rapid.T) string {
		parts := rapid.SliceOfN(dnsLabel, 1, 4).Draw(t, "labels")
		return strings.TrimRight(cut(strings.Join(parts, "."), 253), ".-")
	})
)

func cut(s string, length int) string { return s[:min(len(s), length)] }

// Of any two inputs that differ, the names differ, and each can be the name of an object.
func TestNamesAreUnique(t *testing.T) {
	type pair struct{ a, b string }
	check := func(t *rapid.T, what string, in1, in2 pair, out1, out2 string) {
		if (in1 == in2) != (out1 == out2) {
			t.Fatalf("%s of %q and %q: %q and %q", what, in1, in2, out1, out2)
		}
		if problems := validation.IsDNS1123Subdomain(out1); problems != nil {
			t.Fatalf("%s of %q is %q: %v", what, in1, out1, problems)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		namespace1, namespace2 := dnsLabel.Draw(t, "namespace 1"), dnsLabel.Draw(t, "namespace 2")
		name1, name2 := dnsSubdomain.Draw(t, "name 1"), dnsSubdomain.Draw(t, "name 2")
		prefix1, prefix2 := translatetest.Prefixes.Draw(t, "prefix 1"), translatetest.Prefixes.Draw(t, "prefix 2")
		check(t, "NamespaceRouter", pair{a: namespace1}, pair{a: namespace2}, NamespaceRouter(namespace1), NamespaceRouter(namespace2))
		check(t, "NamespaceNetwork", pair{namespace1, name1}, pair{namespace2, name2},
			NamespaceNetwork(namespace1, name1), NamespaceNetwork(namespace2, name2))
		check(t, "BlockName", pair{name1, prefix1.String()}, pair{name2, prefix2.String()},
			BlockName(name1, prefix1), BlockName(name2, prefix2))
		check(t, "LabelValue", pair{a: name1}, pair{a: name2}, LabelValue(name1), LabelValue(name2))
		for _, v := range []string{LabelValue(name1), LabelValue(namespace1)} {
			if problems := validation.IsValidLabelValue(v); problems != nil {
				t.Fatalf("LabelValue %q: %v", v, problems)
			}
		}
	})
}

// One split of the same letters between namespace and node, or network and address, is not another.
func TestNamesOfTheSameLetters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.StringMatching(`[a-b]-?[a-b](-?[a-b]){0,6}`).Draw(t, "letters")
		names := map[string]string{}
		for i := range letters {
			if letters[i] != '-' {
				continue
			}
			name := NamespaceNetwork(letters[:i], letters[i+1:])
			if other, taken := names[name]; taken {
				t.Fatalf("%s on %s is %q, and so is %s", letters[:i], letters[i+1:], name, other)
			}
			names[name] = letters[:i] + " on " + letters[i+1:]
		}
	})
}
