// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"coelan.io/coelan/test/lab/probe"
)

// instructionTime is the variable that says by how much the machine's clock advances for each
// instruction that it runs. It is set where instructions are counted (test/kernel -counted).
const instructionTime = "COELAN_INSTRUCTION_TIME"

// counting is the time of an instruction, if the machine counts them.
func counting() (time.Duration, bool) {
	each, err := time.ParseDuration(os.Getenv(instructionTime))
	return each, err == nil && each > 0
}

// warmUp is which part of a counted load runs before it: programs are read from the disk, caches
// and flows filled. An idle machine's clock follows real time, so a wait for the disk would count.
const warmUp = 4

// paced runs a load for a time. Where instructions are counted it runs a fixed number of units
// instead, after fewer to warm up, and without collections of garbage, which some turns would have
// and others not.
func (tr traffic) paced(load func(probe.Extent) (float64, error), d time.Duration) (float64, error) {
	if _, ok := counting(); !ok {
		return load(probe.Extent{Time: d})
	}
	if _, err := load(probe.Extent{Units: tr.counted / warmUp}); err != nil {
		return 0, err
	}
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	return load(probe.Extent{Units: tr.counted})
}

// best is the rate that stands for those of several turns: the median, or where instructions are
// counted the highest, because what else the machine does in a turn can only add instructions.
func best(rates []float64) float64 {
	if _, ok := counting(); ok {
		return slices.Max(rates)
	}
	return percentile(rates, 0.5)
}

// turns is the result of turns that ours and the reference took.
func (tr traffic) turns(name string, ours, reference []float64) Result {
	if _, ok := counting(); ok {
		return beside(name, tr.unit, best(ours), best(reference))
	}
	return paired(name, tr.unit, ours, reference)
}

// instructions is how many are run for one unit of a load, if the machine counts them: one
// transaction, or 1 KiB of a stream.
func (tr traffic) instructions(rate float64) (float64, bool) {
	each, ok := counting()
	if !ok {
		return 0, false
	}
	return float64(time.Second/each) / (rate * tr.perSecond), true
}

// costs are the instructions that a load takes, of ours and the reference, if they are counted.
func (tr traffic) costs(name string, ours, reference float64) []Result {
	a, ok := tr.instructions(ours)
	if !ok {
		return nil
	}
	b, _ := tr.instructions(reference)
	return []Result{beside(name+"-instructions", tr.costUnit, a, b)}
}
