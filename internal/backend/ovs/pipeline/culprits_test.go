// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/intent"
)

// Every owner of rules is traced back to objects. Without these it has no rules, the ports that a
// policy is for are closed, and compiling the difference gives the same as compiling everything.
func TestWithoutCulprits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state := drawView(t)
		incremental, whole := New(), New()
		incremental.Compile(inputOf(state))
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			owners := slices.Sorted(maps.Keys(rulesOf(whole.Compile(inputOf(state)), whole)))
			refused := rapid.SliceOfN(rapid.SampledFrom(owners), 1, 5).Draw(t, "refused")
			out, closed := map[intent.Ref]string{}, map[string]bool{}
			for _, owner := range refused {
				culprits := Culprits(state, owner)
				if len(culprits) == 0 && owner != "local" {
					t.Fatalf("%s is from no object", owner)
				}
				for _, ref := range culprits {
					if state.Describe(ref) == "" {
						t.Fatalf("%s is from %s, which does not exist", owner, ref)
					}
					out[ref] = "refused"
					policy, _ := ref.Policy()
					for rule := range state.RulesOfPolicy(policy) {
						for subject := range state.SubjectsOf(rule.ID) {
							closed[subject.Key] = true
						}
					}
				}
			}
			part := state.Without(out)
			full := New()
			want, got := full.Compile(inputOf(part)), incremental.Compile(inputOf(part))
			if !sameRules(rulesOf(want, full), rulesOf(got, incremental)) {
				t.Fatalf("without %v (-full +incremental):\n%s", out, cmp.Diff(texts(full, want), texts(incremental, got)))
			}
			for _, owner := range refused {
				if owner != "local" && !want.Get(owner).Empty() {
					t.Fatalf("%s has rules without %v", owner, Culprits(state, owner))
				}
			}
			if part.Local().PolicyMode != intent.EnforcedPolicies {
				continue
			}
			for p := range part.Ports().All() {
				if _, why := judgedOf(full.last, p); closed[p.SubjectKey()] && why == "" {
					t.Fatalf("port %s is open without a policy that is for it", p.ID)
				}
			}
		}
	})
}
