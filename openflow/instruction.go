// SPDX-License-Identifier: Apache-2.0

package openflow

import "fmt"

// Types of instructions, OpenFlow 1.5.1 section 7.2.5.
const (
	instGoto          = 1
	instWriteMetadata = 2
	instWriteActions  = 3
	instApplyActions  = 4
	instClearActions  = 5
)

// appendInstructions appends what f does in the order in which a switch does it, which is also
// the order in which Open vSwitch wants it.
func (f *Flow) appendInstructions(b []byte) []byte {
	if len(f.Actions) > 0 {
		b = appendActionList(b, instApplyActions, f.Actions)
	}
	if f.ClearActions {
		b = append(b, 0, instClearActions, 0, 8, 0, 0, 0, 0)
	}
	if len(f.WriteActions) > 0 {
		b = appendActionList(b, instWriteActions, f.WriteActions)
	}
	if f.MetadataMask != 0 {
		b = append(b, 0, instWriteMetadata, 0, 24, 0, 0, 0, 0)
		b = be.AppendUint64(b, f.Metadata&f.MetadataMask)
		b = be.AppendUint64(b, f.MetadataMask)
	}
	if f.Goto != 0 {
		b = append(b, 0, instGoto, 0, 8, f.Goto, 0, 0, 0)
	}
	return b
}

func appendActionList(b []byte, inst byte, actions []Action) []byte {
	start := len(b)
	b = appendActions(append(b, 0, inst, 0, 0, 0, 0, 0, 0), actions)
	be.PutUint16(b[start+2:], uint16(len(b)-start))
	return b
}

// decodeInstructions reads instructions up to the end of r into f.
func (f *Flow) decodeInstructions(r *reader) {
	for r.left() > 0 {
		typ, n := r.uint16(), int(r.uint16())
		if r.err == nil && (n < 8 || n%8 != 0) {
			r.fail("instruction %d of %d bytes", typ, n)
		}
		body := r.sub(n - 4)
		if r.err != nil {
			return
		}
		switch typ {
		case instGoto:
			f.Goto = body.uint8()
		case instWriteMetadata:
			body.skip(4)
			f.Metadata, f.MetadataMask = body.uint64(), body.uint64()
		case instWriteActions:
			body.skip(4)
			f.WriteActions = body.actions()
		case instApplyActions:
			body.skip(4)
			f.Actions = body.actions()
		case instClearActions:
			f.ClearActions = true
		default:
			body.fail("instruction of type %d", typ)
		}
		if body.err != nil {
			r.err = fmt.Errorf("instructions: %w", body.err)
			return
		}
	}
}
