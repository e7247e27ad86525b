// SPDX-License-Identifier: Apache-2.0

// Package rapidtest checks more generated cases than rapid does at once.
package rapidtest

import (
	"testing"

	"pgregory.net/rapid"
)

// Round checks as many cases as rapid.Check does, and others in each round. The rounds of a seed,
// as of RAPID_SEED, are always the same.
func Round(t *testing.T, round int, check func(*rapid.T)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		// Cases of a seed are made of one sequence of numbers: each round begins later in it.
		for range round {
			rapid.Uint64().Draw(t, "round")
		}
		check(t)
	})
}
