// SPDX-License-Identifier: Apache-2.0

package ctflush

import (
	"errors"
	"strings"
	"testing"
)

// shrinking is a hash table as the userspace datapath has: filled to a fifth it becomes half as
// large, and a search that does that ends early.
type shrinking struct {
	own, others int
	slots       int
}

func (s *shrinking) count() (int, error) { return s.own + s.others, nil }

func (s *shrinking) search() error {
	for s.own > 0 {
		s.own--
		if s.own+s.others < s.slots/5 {
			s.slots /= 2
			return nil
		}
	}
	return nil
}

func TestUntilComplete(t *testing.T) {
	for name, table := range map[string]shrinking{
		"empty":                   {0, 0, 5},
		"one":                     {1, 0, 5},
		"one of many":             {1, 200_000, 655_360},
		"one, and the table ends": {1, 131_072, 655_360},
		"a few, and it ends":      {100, 131_070, 655_360},
		"half":                    {100_000, 100_000, 655_360},
		"nearly all":              {60_000, 1000, 81_920},
		"all":                     {3_000_000, 0, 5_242_880},
	} {
		t.Run(name, func(t *testing.T) {
			if err := untilComplete(table.count, table.search); err != nil {
				t.Fatal(err)
			}
			if table.own > 0 {
				t.Errorf("%d connections are left", table.own)
			}
		})
	}
}

// TestUntilCompleteMeanwhile has other connections come and go in the same passes.
func TestUntilCompleteMeanwhile(t *testing.T) {
	table := shrinking{20_000, 120_000, 655_360}
	pass := 0
	err := untilComplete(table.count, func() error {
		table.others += []int{15_000, -10_000}[pass%2]
		pass++
		return table.search()
	})
	if err != nil || table.own > 0 {
		t.Errorf("%d connections are left: %v", table.own, err)
	}
}

func TestUntilCompleteEnds(t *testing.T) {
	n, passes := 1, 0
	err := untilComplete(
		func() (int, error) { n = 1000 - n; return n, nil },
		func() error { passes++; return nil },
	)
	if err == nil || !strings.Contains(err.Error(), "connections may be left") || passes != maxPasses {
		t.Errorf("%d passes over a table that never rests: %v", passes, err)
	}
	broken := errors.New("broken")
	if err := untilComplete(table{}.count, func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("a search that fails: %v", err)
	}
	if err := untilComplete(
		func() (int, error) { return 0, broken }, func() error { return nil },
	); !errors.Is(err, broken) {
		t.Errorf("a count that fails: %v", err)
	}
}

// table is an empty one.
type table struct{}

func (table) count() (int, error) { return 0, nil }
