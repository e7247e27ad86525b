// SPDX-License-Identifier: Apache-2.0

package rapidtest

import (
	"flag"
	"testing"

	"pgregory.net/rapid"
)

// Of one seed rounds have the same cases each time, and each round has others.
func TestRounds(t *testing.T) {
	before := flag.Lookup("rapid.seed").Value.String()
	t.Cleanup(func() { _ = flag.Set("rapid.seed", before) })
	if err := flag.Set("rapid.seed", "7"); err != nil {
		t.Fatal(err)
	}
	cases := func(round int) (list []uint64) {
		Round(t, round, func(t *rapid.T) { list = append(list, rapid.Uint64().Draw(t, "case")) })
		return list
	}
	drawn := map[uint64]int{}
	for round := range 3 {
		first, again := cases(round), cases(round)
		for i, n := range first {
			if again[i] != n {
				t.Fatalf("case %d of round %d is %d, and then %d", i, round, n, again[i])
			}
			drawn[n]++
		}
	}
	// Small numbers are drawn more often than others.
	if len(drawn) < 200 {
		t.Errorf("3 rounds have %d different cases", len(drawn))
	}
}
