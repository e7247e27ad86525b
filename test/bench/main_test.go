// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestChoose(t *testing.T) {
	var everywhere int
	for _, m := range measures {
		if !m.counted {
			everywhere++
		}
	}
	for _, tc := range []struct {
		name, only, out string
		counts          bool
		groups          int
		file            string
		fails           bool
	}{
		{name: "all", groups: everywhere, file: resultsFile},
		{name: "all, to a file", out: "x.json", groups: everywhere, file: "x.json"},
		{name: "all, counted", counts: true, groups: len(measures), file: resultsFile},
		{name: "counted", only: "^instructions$", counts: true, groups: 1},
		{name: "counted, elsewhere", only: "^instructions$", fails: true},
		{name: "some write nothing", only: "^cni$", groups: 1},
		{name: "some, to a file", only: "^cni$", out: "x.json", groups: 1, file: "x.json"},
		{name: "none", only: "no such group", fails: true},
		{name: "not a regular expression", only: "(", fails: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.counts {
				t.Setenv(instructionTime, "8ns")
			}
			chosen, file, err := choose(tc.only, tc.out)
			if (err != nil) != tc.fails || len(chosen) != tc.groups || file != tc.file {
				t.Errorf("%d groups to %q, %v; want %d groups to %q, an error: %t", len(chosen), file, err, tc.groups, tc.file, tc.fails)
			}
		})
	}
}
