// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

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
