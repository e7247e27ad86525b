// SPDX-License-Identifier: Apache-2.0

package openflow

import "fmt"

// learn reads a Learn after its subtype.
func (r *reader) learn(subtype uint16) Action {
	var a Learn
	a.IdleTimeout, a.HardTimeout, a.Priority, a.Cookie = r.uint16(), r.uint16(), r.uint16(), r.uint64()
	flags := r.uint16()
	a.SendFlowRem, a.DeleteLearned = flags&learnSendFlowRem != 0, flags&learnDeleteLearned != 0
	a.Table = r.uint8()
	r.skip(1)
	a.FinIdleTimeout, a.FinHardTimeout = r.uint16(), r.uint16()
	if subtype == nxLearn2 {
		a.Limit = r.uint32()
		ofs := r.uint16()
		r.skip(2)
		if flags&learnWriteResult != 0 {
			f := r.field()
			if f == fieldNone {
				return nil
			}
			a.ResultDst = Subfield{f, ofs, 1}
		}
	}
	for r.left() >= 2 {
		header := r.uint16()
		if header == 0 {
			break
		}
		s, known := r.learnSpec(header)
		if !known {
			return nil
		}
		a.Specs = append(a.Specs, s)
	}
	return a
}

// learnSpec reads what follows a spec's header.
func (r *reader) learnSpec(header uint16) (s LearnSpec, known bool) {
	n := header & learnBits
	s.Kind = LearnKind(header >> learnDstShift & 3)
	if s.Kind > LearnOutput || s.Kind == LearnOutput && header&learnImmediate != 0 {
		r.err = fmt.Errorf("learn spec %#04x", header)
		return s, true
	}
	if header&learnImmediate == 0 {
		f := r.field()
		s.Src = Subfield{f, r.uint16(), n}
		if f == fieldNone {
			return s, false
		}
	} else {
		b := r.next(immediateLen(n))
		if len(b) > 16 {
			return s, false
		}
		s.value = uintOf(b)
	}
	if s.Kind != LearnOutput {
		f := r.field()
		s.Dst = Subfield{f, r.uint16(), n}
		if f == fieldNone {
			return s, false
		}
	}
	return s, true
}
