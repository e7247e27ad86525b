// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"testing"
)

func TestBars(t *testing.T) {
	slow, fast := []float64{10, 30, 50}, []float64{20, 20, 20} // ratios 0.5, 1.5, 2.5
	for name, tc := range map[string]struct {
		result Result
		met    bool
	}{
		"the ratio reaches the bar":     {paired("x", "1/s", slow, fast).atLeast(1.5, 2), true},
		"the ratio is below the bar":    {paired("x", "1/s", slow, fast).atLeast(1.6, 2), false},
		"the ratio is above the most":   {paired("x", "ms", slow, fast).atMost(1.4, 1), false},
		"the value is below the most":   {absolute("x", "ms", 49).atMost(50, 25), true},
		"the value is above the most":   {absolute("x", "ms", 51).atMost(50, 25), false},
		"compared, lower is better":     {compared("x", "ms", 3, 2, 1.5, 1, lower), true},
		"compared, not high enough":     {compared("x", "1/s", 3, 4, 0.8, 1, higher), false},
		"beside a reference, no bar":    {beside("x", "ms", 9, 1), true},
		"nothing to compare with, free": {absolute("x", "ms", 9), true},
	} {
		if tc.result.Met != tc.met {
			t.Errorf("%s: %+v: met %t, want %t", name, tc.result, tc.result.Met, tc.met)
		}
	}
}

// A round in which the machine did something else counts as one round, for both.
func TestPaired(t *testing.T) {
	r := paired("x", "1/s", []float64{100, 10, 120}, []float64{50, 5, 100})
	if r.Ours != 100 || *r.Reference != 50 || *r.Ratio != 2 {
		t.Errorf("ours %g, reference %g, ratio %g; want 100, 50 and 2", r.Ours, *r.Reference, *r.Ratio)
	}
}

func TestNth(t *testing.T) {
	if got, want := nth(netip.MustParseAddr("10.128.0.0"), 99_999), netip.MustParseAddr("10.129.134.159"); got != want {
		t.Errorf("address 99,999 is %s, want %s", got, want)
	}
}
