// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"coelan.io/coelan/test/lab/probe"
)

func TestCosts(t *testing.T) {
	stream, rr := traffics[0], traffics[1]
	if got := rr.costs("x", 1000, 2000); got != nil {
		t.Errorf("where instructions are not counted: %v", got)
	}
	t.Setenv(instructionTime, "8ns")
	got := rr.costs("x", 1000, 2000)
	if len(got) != 1 || got[0].Name != "x-instructions" || got[0].Unit != perTransaction ||
		got[0].Ours != 125_000 || *got[0].Reference != 62_500 || *got[0].Ratio != 2 {
		t.Errorf("1,000 transactions in a second of 125 million instructions: %+v", got)
	}
	// 8.192 Mbit are 1,000 KiB.
	if n, ok := stream.instructions(8.192); !ok || n < 124_999.9 || n > 125_000.1 {
		t.Errorf("a stream of 8.192 Mbit/s: %v instructions per KiB, %v; want 125,000", n, ok)
	}
}

func TestTurns(t *testing.T) {
	rr, ours, reference := traffics[1], []float64{10, 30, 20}, []float64{10, 40, 40}
	if r := rr.turns("x", ours, reference); r.Ours != 20 || *r.Ratio != 0.75 {
		t.Errorf("by time: %+v, want the medians of rates and of the turns' ratios", r)
	}
	t.Setenv(instructionTime, "8ns")
	if r := rr.turns("x", ours, reference); r.Ours != 30 || *r.Reference != 40 || *r.Ratio != 0.75 {
		t.Errorf("counted: %+v, want the turns with the fewest instructions", r)
	}
}

func TestPaced(t *testing.T) {
	var ran []probe.Extent
	load := func(e probe.Extent) (float64, error) {
		ran = append(ran, e)
		return 1, nil
	}
	tr := traffic{counted: 100}
	if _, err := tr.paced(load, time.Second); err != nil || len(ran) != 1 || ran[0].Time != time.Second {
		t.Errorf("by time: ran %v, %v", ran, err)
	}
	t.Setenv(instructionTime, "8ns")
	ran = nil
	if _, err := tr.paced(load, time.Second); err != nil || len(ran) != 2 || ran[0].Units != 25 || ran[1].Units != 100 {
		t.Errorf("counted: ran %v, %v, want 25 units to warm up and 100", ran, err)
	}
}
