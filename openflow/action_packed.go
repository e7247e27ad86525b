// SPDX-License-Identifier: Apache-2.0

package openflow

import "sync"

// PackedActions are actions in wire form, which takes a fraction of the memory. They
// count as the actions that they stand for, wherever these can be.
type PackedActions struct{ packed *packed }

type packed struct {
	wire   string
	refers bool // to a group or a meter
	sound  bool // whatever they stand for is right, if there is a packet for it
}

// wireBuffers are for short use.
var wireBuffers = sync.Pool{New: func() any { return new([]byte) }}

// Pack returns one action that stands for all of these, to save memory where very many are kept.
func Pack(actions ...Action) PackedActions {
	buf := wireBuffers.Get().(*[]byte)
	defer wireBuffers.Put(buf)
	*buf = appendActions((*buf)[:0], actions)
	p := packed{wire: string(*buf)}
	c := checker{anyPacket: true}
	p.sound = c.actions(actions) == nil
	for _, a := range actions {
		switch a := a.(type) {
		case GroupAction, MeterAction, Controller, CloneAction:
			p.refers = true
		case PackedActions:
			p.refers = p.refers || a.Refers()
		}
	}
	return PackedActions{&p}
}

// Actions returns what a stands for.
func (a PackedActions) Actions() []Action {
	r := reader{b: []byte(a.packed.wire)}
	return r.actions()
}

// Refers reports whether any of the actions may use a group or a meter.
func (a PackedActions) Refers() bool { return a.packed.refers }

func (a PackedActions) String() string           { return ActionsString(a.Actions()) }
func (a PackedActions) appendTo(b []byte) []byte { return append(b, a.packed.wire...) }
