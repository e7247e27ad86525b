// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
)

// What an agent says is refused is bounded in number and length, and is of one line.
func TestRefusals(t *testing.T) {
	object := func(kind, name, reason string) *Refusal {
		return &Refusal{Object: &PolicyRef{Kind: kind, Namespace: "a", Name: name}, Reason: reason}
	}
	many := func(n int) *Refusals {
		m := &Refusals{}
		for range n {
			m.Objects = append(m.Objects, object("NetworkPolicy", "web", "r"))
		}
		return m
	}
	for _, tc := range []struct {
		name string
		m    *Refusals
		want int
		err  string
	}{
		{name: "none", m: nil},
		{name: "all kinds", m: &Refusals{Objects: []*Refusal{
			object("NetworkPolicy", "web", "r"), object("ClusterNetworkPolicy", "web", "r"), object("SecurityGroup", "web", "r"),
			object("Network", "red", "r"), object("Router", "red", "r"),
		}}, want: 5},
		{name: "a kind of a later release", m: &Refusals{Objects: []*Refusal{object("Meter", "web", "r"), object("Network", "red", "r")}}, want: 1},
		{name: "as many as there may be", m: many(MaxRefusals), want: MaxRefusals},
		{name: "more", m: many(MaxRefusals + 1), err: "more than 64"},
		{name: "no object", m: &Refusals{Objects: []*Refusal{{Reason: "r"}}}, err: "no kind or no name"},
		{name: "no name", m: &Refusals{Objects: []*Refusal{object("Network", "", "r")}}, err: "no kind or no name"},
		{name: "a long name", m: &Refusals{Objects: []*Refusal{object("Network", strings.Repeat("a", 254), "r")}}, err: "too long"},
		{name: "a long reason", m: &Refusals{Objects: []*Refusal{object("Network", "red", strings.Repeat("a", 257))}}, err: "more than 256 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list, err := RefusalsOf(tc.m)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			if len(list) != tc.want {
				t.Errorf("%d objects, want %d", len(list), tc.want)
			}
		})
	}
	red := intent.PolicyRef{Kind: "Network", Name: "red"}
	sent := []policy.Refusal{{Object: red, Reason: "BAD\n\x1b[31mred \xff" + strings.Repeat("ä", 200)}}
	for range MaxRefusals {
		sent = append(sent, policy.Refusal{Object: red, Reason: "r"})
	}
	got, err := RefusalsOf(RefusalsMessage(sent))
	if err != nil || len(got) != MaxRefusals {
		t.Fatalf("%d objects, error %v", len(got), err)
	}
	want := "BAD  [31mred \uFFFD" + strings.Repeat("ä", 120)
	if diff := cmp.Diff(want, got[0].Reason); diff != "" {
		t.Errorf("reason (-want +got):\n%s", diff)
	}
}
