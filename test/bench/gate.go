// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// figures are counted instructions, and the software that they were counted with.
type figures struct {
	// With has the versions of the software that runs most of the instructions.
	With map[string]string `json:"with"`
	// Instructions of one connection, one exchange or one KiB, by name.
	Instructions map[string]int `json:"instructions"`
}

// growth is how much more a unit may cost than the figure says before the gate fails, and how much
// less until the figure is to be renewed: turns vary by less.
const growth = 0.03

// newFigures of the results of measureInstructions.
func newFigures(results []Result, with map[string]string) figures {
	f := figures{With: with, Instructions: map[string]int{}}
	for _, r := range results {
		f.Instructions[r.Name] = int(r.Ours + 0.5)
	}
	return f
}

// readFigures reads the figures to compare with.
func readFigures(path string) (figures, error) {
	var f figures
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, fmt.Errorf("figures of instructions: %w: `make gate-kernel UPDATE=1` writes them", err)
	case err != nil:
		return f, fmt.Errorf("figures of instructions: %w", err)
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return f, fmt.Errorf("figures of instructions: %s: %w: `make gate-kernel UPDATE=1` writes it anew", path, err)
	}
	if len(f.Instructions) == 0 {
		return f, fmt.Errorf("figures of instructions: %s has none: `make gate-kernel UPDATE=1` writes it anew", path)
	}
	return f, nil
}

// writeFigures writes them as the file in the tree is.
func writeFigures(path string, f figures) error {
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// judge compares counted instructions with the figures. It returns a line for each difference that
// is worth a look, and whether one of them fails the gate: more instructions than before, or a
// figure without a count or a count without a figure.
func (f figures) judge(counted figures) (lines []string, failed bool) {
	names := maps.Clone(f.Instructions)
	maps.Copy(names, counted.Instructions)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		before, known := f.Instructions[name]
		now, taken := counted.Instructions[name]
		change := float64(now)/float64(before) - 1
		switch {
		case !taken:
			lines, failed = append(lines, name+": has a figure, and was not counted: renew the figures"), true
		case !known || before <= 0:
			lines, failed = append(lines, fmt.Sprintf("%s: %d instructions, and has no figure: renew the figures",
				name, now)), true
		case change > growth:
			lines, failed = append(lines, fmt.Sprintf("%s: GROWN by %.1f %%, from %d to %d instructions",
				name, 100*change, before, now)), true
		case change < -growth:
			lines = append(lines, fmt.Sprintf("%s: cheaper by %.1f %%, from %d to %d instructions: renew the figures",
				name, -100*change, before, now))
		}
	}
	for _, what := range slices.Sorted(maps.Keys(counted.With)) {
		if f.With[what] != counted.With[what] {
			lines = append(lines, fmt.Sprintf("the figures were counted with %s %q, this with %q",
				what, f.With[what], counted.With[what]))
		}
	}
	return lines, failed
}

// errGrown is the gate's failure, of which the lines say more.
var errGrown = errors.New("instructions are not as the figures say: mend it, or `make gate-kernel UPDATE=1` renews them")

// gate compares the counted instructions of the brief set with the figures of a file, and writes
// them to another one. Either file may be empty.
type gate struct {
	before, after string
	figures       figures
	results       []Result
}

// open reads the figures to compare with, before anything is measured.
func (g *gate) open(chosen []measure) (err error) {
	if g.before == "" && g.after == "" {
		return nil
	}
	if !slices.ContainsFunc(chosen, func(m measure) bool { return m.name == briefSet }) {
		return fmt.Errorf("-gate and -figures are about the group %s, which is not measured: "+
			"`make gate-kernel` does", briefSet)
	}
	if g.before != "" {
		g.figures, err = readFigures(g.before)
	}
	return err
}

// pass writes the new figures, and the differences to w.
func (g *gate) pass(w io.Writer) error {
	if g.before == "" && g.after == "" {
		return nil
	}
	counted := newFigures(g.results, versions())
	if g.after != "" {
		if err := writeFigures(g.after, counted); err != nil {
			return err
		}
	}
	if g.before == "" {
		return nil
	}
	lines, failed := g.figures.judge(counted)
	for _, l := range lines {
		fmt.Fprintln(w, l)
	}
	if failed {
		return errGrown
	}
	return nil
}

// versions of what runs most of the instructions.
func versions() map[string]string {
	v := map[string]string{"Go": runtime.Version()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		v["Linux"] = unix.ByteSliceToString(u.Release[:])
	}
	if out, err := exec.Command("ovs-vswitchd", "--version").Output(); err == nil {
		first, _, _ := strings.Cut(string(out), "\n")
		v["Open vSwitch"] = first[strings.LastIndex(first, " ")+1:]
	}
	return v
}
