// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJudge(t *testing.T) {
	type counts = map[string]int
	with := map[string]string{"Linux": "6.1"}
	before := figures{with, counts{"pod-crr": 400_000, "pod-rr": 50_000}}
	for name, tc := range map[string]struct {
		counted counts
		with    map[string]string
		lines   []string
		failed  bool
	}{
		"the same":          {counted: counts{"pod-crr": 400_000, "pod-rr": 50_000}},
		"within the spread": {counted: counts{"pod-crr": 411_900, "pod-rr": 48_600}},
		"one has grown": {
			counted: counts{"pod-crr": 400_000, "pod-rr": 52_000}, failed: true,
			lines: []string{"pod-rr: GROWN by 4.0 %, from 50000 to 52000 instructions"},
		},
		"one is cheaper": {
			counted: counts{"pod-crr": 380_000, "pod-rr": 50_000},
			lines:   []string{"pod-crr: cheaper by 5.0 %, from 400000 to 380000 instructions: renew the figures"},
		},
		"both": {
			counted: counts{"pod-crr": 380_000, "pod-rr": 52_000}, failed: true,
			lines: []string{
				"pod-crr: cheaper by 5.0 %, from 400000 to 380000 instructions: renew the figures",
				"pod-rr: GROWN by 4.0 %, from 50000 to 52000 instructions",
			},
		},
		"not counted any more": {
			counted: counts{"pod-crr": 400_000}, failed: true,
			lines: []string{"pod-rr: has a figure, and was not counted: renew the figures"},
		},
		"new": {
			counted: counts{"pod-crr": 400_000, "pod-rr": 50_000, "pod-stream": 4000}, failed: true,
			lines: []string{"pod-stream: 4000 instructions, and has no figure: renew the figures"},
		},
		"another kernel": {
			counted: counts{"pod-crr": 400_000, "pod-rr": 50_000}, with: map[string]string{"Linux": "6.12"},
			lines: []string{`the figures were counted with Linux "6.1", this with "6.12"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.with == nil {
				tc.with = maps.Clone(with)
			}
			lines, failed := before.judge(figures{tc.with, tc.counted})
			if d := cmp.Diff(tc.lines, lines); d != "" || failed != tc.failed {
				t.Errorf("failed %t, want %t; lines (-want +got):\n%s", failed, tc.failed, d)
			}
		})
	}
}

func TestFiguresFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "instructions.json")
	want := figures{map[string]string{"Linux": "6.1"}, map[string]int{"pod-crr": 400_000}}
	if err := writeFigures(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := readFigures(path)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("what was written (-want +got), %v:\n%s", err, d)
	}
	for name, data := range map[string]string{
		"not JSON": "<<<<<<< ours", "no figures": "{}", "other figures": `{"instructions": {"pod-crr": "many"}}`,
	} {
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readFigures(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want an error that names the file", name, err)
		}
	}
	missing := filepath.Join(t.TempDir(), "missing.json")
	if _, err := readFigures(missing); err == nil || !strings.Contains(err.Error(), missing) ||
		!strings.Contains(err.Error(), "UPDATE=1") {
		t.Errorf("a missing file: %v, want an error that names it and says how to write it", err)
	}
}

func TestGate(t *testing.T) {
	dir := t.TempDir()
	old, renewed := filepath.Join(dir, "old.json"), filepath.Join(dir, "new.json")
	counted := []Result{absolute("pod-crr", perTransaction, 400_000.4)}
	chosen := []measure{{name: briefSet}}
	for name, tc := range map[string]struct {
		figure int
		says   string
		fails  bool
	}{
		"grown": {300_000, "pod-crr: GROWN by 33.3 %", true}, "as before": {400_000, "", false},
		"cheaper": {500_000, "pod-crr: cheaper by 20.0 %", false},
	} {
		if err := writeFigures(old, figures{versions(), map[string]int{"pod-crr": tc.figure}}); err != nil {
			t.Fatal(err)
		}
		g := gate{before: old, after: renewed}
		if err := g.open(chosen); err != nil {
			t.Fatal(err)
		}
		g.results = counted
		var out bytes.Buffer
		if err := g.pass(&out); (err != nil) != tc.fails || !strings.HasPrefix(out.String(), tc.says) ||
			tc.says == "" && out.Len() > 0 {
			t.Errorf("%s: %v and %q, want %q, an error: %t", name, err, &out, tc.says, tc.fails)
		}
		if f, err := readFigures(renewed); err != nil || f.Instructions["pod-crr"] != 400_000 {
			t.Errorf("%s: new figures %v, %v", name, f, err)
		}
	}
	if err := (&gate{before: old}).open([]measure{{name: "pod"}}); err == nil {
		t.Error("a gate without the group that it is about: no error")
	}
	if err := (&gate{}).open(nil); err != nil {
		t.Errorf("no gate: %v", err)
	}
}
