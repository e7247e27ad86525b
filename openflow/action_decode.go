// SPDX-License-Identifier: Apache-2.0

package openflow

// maxActionDepth bounds actions within actions: clone within clone and so on.
const maxActionDepth = 16

// actions reads actions up to the end of r.
func (r *reader) actions() []Action {
	if r.depth++; r.depth > maxActionDepth {
		r.fail("actions within actions more than %d deep", maxActionDepth)
	}
	defer func() { r.depth-- }()
	list := make([]Action, 0, r.countActions())
	for r.left() > 0 {
		if len(r.b) < 8 {
			r.fail("action: %w", errShort)
			return nil
		}
		typ, n := be.Uint16(r.b), int(be.Uint16(r.b[2:]))
		if n < 8 || n%8 != 0 || n > len(r.b) {
			r.fail("action %d of %d bytes", typ, n)
			return nil
		}
		raw := r.b[:n]
		body := r.sub(n)
		body.skip(4)
		a := body.action(typ)
		if body.err != nil {
			r.fail("action %d: %w", typ, body.err)
			return nil
		}
		if a == nil {
			a = UnknownAction{string(raw)}
		}
		list = append(list, a)
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// countActions returns the number of actions that follow, as their lengths say.
func (r *reader) countActions() (n int) {
	if r.err != nil {
		return 0
	}
	for b := r.b; len(b) >= 8; n++ {
		length := int(be.Uint16(b[2:]))
		if length < 8 || length > len(b) {
			break
		}
		b = b[length:]
	}
	return n
}

// action reads an action after its type and length. It returns nil for one that this
// package does not know, or that has a field which it does not know.
func (r *reader) action(typ uint16) Action {
	switch typ {
	case actOutput:
		return OutputAction{r.uint32(), r.uint16()}
	case actGroup:
		return GroupAction{r.uint32()}
	case actMeter:
		return MeterAction{r.uint32()}
	case actSetQueue:
		return SetQueueAction{r.uint32()}
	case actPushVLAN:
		return PushVLANAction{r.uint16()}
	case actPushMPLS:
		return PushMPLSAction{r.uint16()}
	case actPopMPLS:
		return PopMPLSAction{r.uint16()}
	case actSetField:
		return r.setField()
	case actCopyField:
		return r.move()
	case actExperimenter:
		if r.uint32() != vendorNicira {
			return nil
		}
		return r.nxAction(r.uint16())
	}
	return simpleActionOf(typ, 0)
}

// simpleActionOf returns the action without arguments of the given type, or nil.
func simpleActionOf(typ, subtype uint16) Action {
	for a := range numSimple {
		if s := &simpleActions[a]; s.typ == typ && s.subtype == subtype {
			return a
		}
	}
	return nil
}

// nxAction reads one of Nicira's actions after its subtype.
func (r *reader) nxAction(subtype uint16) Action {
	switch subtype {
	case nxResubmit, nxResubmitCT:
		port := uint32(port32(uint128{0, uint64(r.uint16())}).lo)
		return ResubmitAction{port, r.uint8(), subtype == nxResubmitCT}
	case nxCT:
		return r.ct()
	case nxNAT:
		return r.nat()
	case nxConjunction:
		clause, n := r.uint8(), r.uint8()
		return ConjunctionAction{r.uint32(), clause + 1, n}
	case nxNote:
		return NoteAction{string(r.next(r.left()))}
	case nxClone:
		r.skip(6)
		return CloneAction{r.actions()}
	case nxController:
		a := Controller{}
		a.setMaxLen(r.uint16())
		a.ID = r.uint16()
		a.Reason = PacketInReason(PacketInReason(r.uint8()).wire())
		return a
	case nxController2:
		return r.controller2()
	case nxLearn, nxLearn2:
		return r.learn(subtype)
	case nxOutputReg, nxOutputReg2:
		return r.outputField(subtype)
	case nxOutputTrunc:
		return OutputTruncAction{uint32(port32(uint128{0, uint64(r.uint16())}).lo), r.uint32()}
	case nxStackPush, nxStackPop:
		return r.stack(subtype)
	case nxCheckPktLarger:
		n, ofs, f := r.uint16(), r.uint16(), r.field()
		if f == fieldNone {
			return nil
		}
		return CheckPktLargerAction{n, Subfield{f, ofs, 1}}
	case nxMultipath:
		return r.multipath()
	case nxFinTimeout:
		return FinTimeoutAction{r.uint16(), r.uint16()}
	case nxDeleteField:
		if f := r.field(); f.isTunMetadata() {
			return DeleteFieldAction{f}
		}
		return nil
	}
	return simpleActionOf(actExperimenter, subtype)
}

// field reads a field's header, fieldNone if it is unknown.
func (r *reader) field() Field {
	if r.err != nil {
		return fieldNone
	}
	h, err := parseOXMHeader(r.b)
	if err != nil {
		r.err = err
		return fieldNone
	}
	r.skip(h.size)
	return h.field
}

// subfield makes a Subfield of a field and what ofsBits made.
func subfield(f Field, ofsBits uint16) Subfield { return Subfield{f, ofsBits >> 6, ofsBits&0x3f + 1} }

func (r *reader) setField() Action {
	if r.err != nil {
		return nil
	}
	v, _, err := parseOXM(r.b)
	if err != nil {
		r.err = err
		return nil
	}
	if v.field == fieldNone {
		return nil
	}
	return SetFieldAction{v.normal()}
}

func (r *reader) move() Action {
	n, from, to := r.uint16(), r.uint16(), r.uint16()
	r.skip(2)
	src, dst := r.field(), r.field()
	if src == fieldNone || dst == fieldNone {
		return nil
	}
	return MoveAction{Subfield{src, from, n}, Subfield{dst, to, n}}
}

func (r *reader) outputField(subtype uint16) Action {
	var a OutputFieldAction
	bits := r.uint16()
	if subtype == nxOutputReg2 {
		a.MaxLen = r.uint16()
	}
	f := r.field()
	if subtype == nxOutputReg {
		a.MaxLen = r.uint16()
	}
	if f == fieldNone {
		return nil
	}
	a.Source = subfield(f, bits)
	return a
}

func (r *reader) stack(subtype uint16) Action {
	ofs, f, n := r.uint16(), r.field(), r.uint16()
	if f == fieldNone {
		return nil
	}
	if subtype == nxStackPush {
		return PushAction{Subfield{f, ofs, n}}
	}
	return PopAction{Subfield{f, ofs, n}}
}

func (r *reader) multipath() Action {
	var a MultipathAction
	a.Fields, a.Basis = HashFields(r.uint16()), r.uint16()
	r.skip(2)
	a.Algorithm, a.Links, a.Arg = MultipathAlgorithm(r.uint16()), r.uint16()+1, r.uint32()
	r.skip(2)
	bits, f := r.uint16(), r.field()
	if f == fieldNone {
		return nil
	}
	a.Dest = subfield(f, bits)
	return a
}

func (a *Controller) setMaxLen(n uint16) {
	a.NoPacket = n == 0
	if n != maxLenAll {
		a.MaxLen = n
	}
}

func (r *reader) controller2() Action {
	var a Controller
	r.skip(6)
	for r.left() > 0 {
		p := r.prop()
		var err error
		switch p.typ {
		case ctlMaxLen:
			var n uint16
			n, err = p.uint16()
			a.setMaxLen(n)
		case ctlID:
			a.ID, err = p.uint16()
		case ctlReason:
			var n uint8
			n, err = p.uint8()
			a.Reason = PacketInReason(PacketInReason(n).wire())
		case ctlUserdata:
			a.Userdata = string(p.value)
		case ctlPause:
			a.Pause = true
		case ctlMeter:
			a.Meter, err = p.uint32()
		default:
			return nil
		}
		if err != nil {
			r.fail("controller: %w", err)
		}
	}
	return a
}
