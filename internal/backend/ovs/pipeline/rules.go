// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"slices"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// rules collects what is compiled for one object, and notes what the object
// depends on.
type rules struct {
	state         *snapshot
	numbers       *Numbers
	neighbourRate uint32
	local         intent.Local
	// defaultRoutes says whether any private router has one.
	defaultRoutes bool
	narrow        bool                  // see anyNarrow
	outside       bool                  // see anyAnswering
	uses          map[uint64]directions // see Compiler
	owner         string

	feature      *feature
	accept       [maxFeature + 1]uint64 // cookies of flows that do not drop, by feature
	flows        []openflow.Flow
	groups       []openflow.Group
	meters       []openflow.Meter
	meanings     []meant
	dependencies []unitKey // looked up, there or not
	problems     []string
}

// meant is a cookie and its meaning.
type meant struct {
	cookie  uint64
	meaning Meaning
}

// begin attributes the flows that follow to f.
func (r *rules) begin(f *feature) { r.feature = f }

// as attributes the flows that emit adds to f.
func (r *rules) as(f *feature, emit func()) {
	was := r.feature
	r.begin(f)
	emit()
	r.begin(was)
}

// cookie is that of the current feature's flows, all that drop for the same
// reason having the same.
func (r *rules) cookie(reason string) uint64 {
	accept := &r.accept[r.feature.number]
	if reason == "" && *accept != 0 {
		return *accept
	}
	c := cookie(r.feature.number, r.owner, reason)
	if reason == "" {
		*accept = c
	}
	r.meanings = append(r.meanings, meant{c, Meaning{Feature: r.feature.name, Owner: r.owner, Reason: reason}})
	return c
}

// problem notes why something of the object cannot be compiled.
func (r *rules) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for _, p := range r.problems {
		if p == text {
			return
		}
	}
	r.problems = append(r.problems, text)
}

// network looks up a network and its router, which a physical one does not have.
func (r *rules) network(name string) (n intent.Network, rt intent.Router, ok bool) {
	n, rt, ok = r.lookup(name)
	switch {
	case ok:
	case n.Name == "":
		r.problem("network %q does not exist", name)
	default:
		r.problem("router %q of network %q does not exist", n.Router, name)
	}
	return n, rt, ok
}

// lookup is network without reporting a problem when the network is missing.
func (r *rules) lookup(name string) (n intent.Network, rt intent.Router, ok bool) {
	r.dependOn(unitKey{kindNetwork, name})
	if n, ok = r.state.Networks().Get(name); !ok || n.Physical != "" {
		return n, rt, ok
	}
	r.dependOn(unitKey{kindRouter, n.Router})
	rt, ok = r.state.Routers().Get(n.Router)
	return n, rt, ok
}

func (r *rules) dependOn(key unitKey) {
	for _, k := range r.dependencies {
		if k == key {
			return
		}
	}
	r.dependencies = append(r.dependencies, key)
}

// number is the OpenFlow port of a Port of this node.
func (r *rules) number(p intent.Port) uint32 { return r.numbers.Port(p.ID) }

// flow is a flow being written. It is added by goTo, end or drop.
type flow struct {
	rules *rules
	f     openflow.Flow
}

// on begins a flow of table t for packets that have all the fields.
func (r *rules) on(t Table, priority uint16, fields ...openflow.FieldValue) flow {
	return flow{r, openflow.Flow{Table: t.ID, Priority: priority, Match: openflow.NewMatch(fields...)}}
}

// set assigns fields, in order.
func (w flow) set(fields ...openflow.FieldValue) flow {
	w.f.Actions = slices.Grow(w.f.Actions, len(fields))
	for _, v := range fields {
		w.f.Actions = append(w.f.Actions, openflow.SetField(v))
	}
	return w
}

// do appends actions.
func (w flow) do(actions ...openflow.Action) flow {
	w.f.Actions = append(w.f.Actions, actions...)
	return w
}

// goTo adds the flow; the packet goes on in table t.
func (w flow) goTo(t Table) {
	w.f.Goto = t.ID
	w.end()
}

// end adds the flow; its actions have done everything.
func (w flow) end() {
	w.f.Cookie = w.rules.cookie("")
	w.rules.flows = append(w.rules.flows, w.f)
}

// added reports whether the object has a flow for the same packets by now.
func (w flow) added() bool {
	return slices.ContainsFunc(w.rules.flows, func(f openflow.Flow) bool { return f.Key() == w.f.Key() })
}

// drop adds the flow; it has no actions, and the reason can be asked for.
func (w flow) drop(reason string) {
	w.f.Cookie = w.rules.cookie(reason)
	w.rules.flows = append(w.rules.flows, w.f)
}
