// SPDX-License-Identifier: Apache-2.0

package pipeline

import "coelan.io/coelan/openflow"

// registers is the register map: what which bits of registers and of ct_mark hold. The declaration
// of the bits adds to it, and docs/develop/datapath.md is generated from it.
var registers []register

// register is an entry of the register map.
type register struct {
	bits openflow.Subfield
	// part of the pipeline in which the bits hold it; "": everywhere. Parts that use the same bits
	// do not see the same packet at the same time.
	part  string
	holds string
}

// The parts of the pipeline that have bits of their own.
const (
	inAnswers  = "answers"
	ofServices = "Services"
	ofPolicies = "policies"
	ofPathMTU  = "path MTU"
)

// regBits declares what bits lo to hi of f hold.
func regBits(f openflow.Field, lo, hi int, part, holds string) openflow.Subfield {
	registers = append(registers, register{f.Bits(lo, hi), part, holds})
	return f.Bits(lo, hi)
}

// regField declares what all bits of f hold.
func regField(f openflow.Field, part, holds string) openflow.Field {
	return regBits(f, 0, f.Width()-1, part, holds).Field
}

// regFlag declares when a bit of f is set, and returns what matches or sets it.
func regFlag(f openflow.Field, bit int, part, holds string) openflow.FieldValue {
	return regBits(f, bit, bit, part, holds).Value(1)
}

// unset matches packets that do not have a flag, or takes it away.
func unset(flag openflow.FieldValue) openflow.FieldValue {
	_, mask := flag.Num()
	return flag.Field().Masked(0, mask)
}
