// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
)

// Result is one line of the table. What a measure does not have is null in JSON.
type Result struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Ours and Reference are in Unit; Ratio is the one by the other.
	Ours      float64  `json:"ours"`
	Reference *float64 `json:"reference"`
	Ratio     *float64 `json:"ratio"`
	// Bar is what Ratio must reach, Aim what it should; without a Reference they
	// are about Ours. A rate must be above, anything else below.
	Bar *float64 `json:"bar"`
	Aim *float64 `json:"aim"`
	// Met says that Bar is reached, or that there is none.
	Met bool `json:"met"`
}

// direction says which way is better.
type direction int

const (
	lower direction = iota
	higher
)

// compared is a result that a reference was measured for.
func compared(name, unit string, ours, reference, bar, aim float64, better direction) Result {
	r := beside(name, unit, ours, reference)
	return r.judged(bar, aim, better)
}

// beside is a result with a reference that tells how to read it, and that need not be reached.
func beside(name, unit string, ours, reference float64) Result {
	ratio := ours / reference
	return Result{Name: name, Unit: unit, Ours: ours, Reference: &reference, Ratio: &ratio, Met: true}
}

// paired is a result of rounds in which ours and the reference took turns: the medians, and the
// median of the rounds' ratios, which a machine that does much else at times disturbs less.
func paired(name, unit string, ours, reference []float64) Result {
	var ratios []float64
	for i := range ours {
		ratios = append(ratios, ours[i]/reference[i])
	}
	r := beside(name, unit, percentile(ours, 0.5), percentile(reference, 0.5))
	r.Ratio = new(percentile(ratios, 0.5))
	return r
}

// atLeast gives a result a bar that what is compared must reach.
func (r Result) atLeast(bar, aim float64) Result { return r.judged(bar, aim, higher) }

// atMost gives a result a bar that what is compared must stay below.
func (r Result) atMost(bar, aim float64) Result { return r.judged(bar, aim, lower) }

func (r Result) judged(bar, aim float64, better direction) Result {
	what := r.Ours
	if r.Ratio != nil {
		what = *r.Ratio
	}
	r.Bar, r.Aim = &bar, &aim
	r.Met = what <= bar && better == lower || what >= bar && better == higher
	return r
}

// absolute is a result that there is nothing to compare with.
func absolute(name, unit string, ours float64) Result {
	return Result{Name: name, Unit: unit, Ours: ours, Met: true}
}

func printTable(w io.Writer, results []Result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "name\tours\treference\tunit\tratio\tbar\taim\tmet\t")
	for _, r := range results {
		met := ""
		if r.Bar != nil {
			met = map[bool]string{true: "yes", false: "NO"}[r.Met]
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Name, number(&r.Ours), number(r.Reference), r.Unit,
			number(r.Ratio), number(r.Bar), number(r.Aim), met)
	}
	_ = t.Flush()
}

// number prints at least three significant digits.
func number(v *float64) string {
	switch {
	case v == nil:
		return ""
	case *v >= 100 || *v == float64(int(*v)):
		return strconv.FormatFloat(*v, 'f', 0, 64)
	default:
		return strconv.FormatFloat(*v, 'g', 3, 64)
	}
}

func writeJSON(path string, results []Result) error {
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// percentile of unsorted values; p is between 0 and 1.
func percentile(values []float64, p float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(p*float64(len(sorted)-1)+0.5)]
}
