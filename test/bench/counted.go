// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"time"
)

// instructionTime is the variable that says by how much the machine's clock advances for each
// instruction that it runs. It is set where instructions are counted (test/kernel -counted).
const instructionTime = "COELAN_INSTRUCTION_TIME"

// instructions is how many are run for one unit of a load, if the machine counts them: one
// transaction, or 1 KiB of a stream.
func (tr traffic) instructions(rate float64) (float64, bool) {
	each, err := time.ParseDuration(os.Getenv(instructionTime))
	if err != nil || each <= 0 {
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
